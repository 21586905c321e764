"""Plans for several processes on a machine that has none of them."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from launcher.check import check
from launcher.cli import app
from launcher.devices import NETWORK, find_device
from launcher.errors import RecipeError
from launcher.forecast.kernels import sent_bytes
from launcher.planner.asked import find_gpus
from launcher.planner.combinations import Combination
from launcher.planner.ground import stand_on
from launcher.planner.propose import propose
from launcher.planner.search import search, weigh
from launcher.strategies.mixed_precision import FP16_UNDER_ZERO, MixedPrecision
from launcher.strategies.zero import Zero
from launcher.units import MIB
from tests.planner.conftest import TWO_CORES

pytestmark = [
    pytest.mark.usefixtures("plan_here"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # DeepSpeed's
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # torch's own, of its next names
    pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor:UserWarning"),  # by DeepSpeed
]


@pytest.fixture
def plain(recipe):
    """The tiny recipe with small buckets, as DeepSpeed's would be larger than the model."""

    def make(processes, **sections):
        return stand_on(check(recipe(**sections), processes=processes, target=TWO_CORES), TWO_CORES)

    return make


def test_a_plan_for_two_holds_the_buckets_of_ddp(plain):
    alone, two = plain(1).surface([]), plain(2).surface([])
    gradients = 308_232
    assert two.peak(1, 8) - alone.peak(1, 8) == pytest.approx(gradients, rel=0.01)
    assert two.update_seconds > alone.update_seconds


def test_what_ddp_sends_is_twice_its_own_part_of_the_gradients_once_an_update(plain):
    for processes in (2, 8):
        ground = plain(processes)
        ground.surface([])
        (measured,) = ground.measured.values()
        assert measured.update_work.sent == pytest.approx(2 * 308_232 * (processes - 1) / processes, rel=0.01)
        # DDP sends the model's buffers with the first forward after that.
        assert measured.points[0].work.sent <= 2 * 64 * 8
        assert [point.work.sent for point in measured.points[1:]] == [0, 0, 0]


def test_shards_are_planned_where_the_whole_does_not_fit(recipe, tmp_path):
    """Seven copies of 300 KB do not fit into 2 MB; DeepSpeed's stage 1 with small buckets does."""
    small = tmp_path / "small.json"
    small.write_text(json.dumps({"zero_optimization": {"reduce_bucket_size": 20_000, "allgather_bucket_size": 20_000}}))
    zero = {"zero": {"stage": 3, "config": str(small)}}
    path = recipe(strategies={"uniform_dynamic_padding": True} | zero)
    ground = stand_on(check(path, processes=4, target=TWO_CORES), TWO_CORES)
    found = propose(ground, 2 * MIB)
    assert found.total <= 2 * MIB
    assert found.forecast.peak.rows["optimizer"] < 200_000
    whole = stand_on(check(recipe(strategies={"zero": False}), processes=4, target=TWO_CORES), TWO_CORES)
    assert isinstance(search(whole, (), int(1.2 * MIB)), list)


def test_zero_is_tried_only_where_nothing_fits_without(plain):
    ground = plain(2)
    found = search(ground, (), 40 * MIB)
    assert not any(strategy.key == "zero" for strategy in found.option.strategies)
    ways = {one.combination.name for one in search(ground, (), MIB // 2)}
    assert {"zero (stage 1)", "zero", "zero (stage 3)"} <= ways


def test_fp16_is_not_put_under_zero_by_the_plan_either(recipe):
    """Each is open to the planner on a T4, and DeepSpeed would clip before it takes the scale back."""
    card = find_device("T4")
    ground = stand_on(check(recipe(), processes=2, target=card), card)
    left_out: list[str] = []
    both = Combination((MixedPrecision(precision="fp16"), Zero(stage=1)))
    assert weigh(ground, both, 40 * MIB, left_out) is None
    assert left_out == [f"mixed_precision (precision fp16) + zero (stage 1): {FP16_UNDER_ZERO}"]


def test_from_one_computer_to_the_next_the_network_is_the_slowest_way(recipe):
    card = find_device("A100")
    for nodes, rate in ((1, card.peer), (2, NETWORK)):
        assert stand_on(check(recipe(), processes=4, nodes=nodes, target=card), card).network == rate


def test_a_table_of_gpus_says_where_the_batch_size_stops_dividing(recipe, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    recipe()
    arguments = ["plan", "recipe.yaml", "--device", "RTX 3060", "--gpus", "1,2,5"]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "140"})
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines() if line.strip()[:1].isdigit()]
    assert [(row[0], row[5]) for row in rows] == [("1", "24"), ("2", "12"), ("5", "4")]
    assert "4 or 5" in result.stdout


@pytest.mark.parametrize(
    ("text", "counts"),
    [(None, [1]), ("8", [8]), ("1,2,8", [1, 2, 8]), ("1..64", [1, 2, 4, 8, 16, 32, 64]), ("3..13", [3, 6, 12])],
)
def test_numbers_of_gpus(text, counts):
    assert find_gpus(text) == counts


@pytest.mark.parametrize("text", ["", "two", "0", "1...4", "-1..4", "1,,2"])
def test_no_numbers_of_gpus(text):
    with pytest.raises(RecipeError, match=r"write 8, 1,2,8 or 1\.\.64"):
        find_gpus(text)


def test_a_ring_sends_all_but_the_own_part():
    import torch

    tensor = torch.zeros(100)
    assert sent_bytes(torch.ops.c10d.allreduce_.default, ([tensor],), 4) == 2 * 400 * 3 // 4
    assert sent_bytes(torch.ops.c10d._allgather_base_.default, (tensor, tensor[:25]), 4) == 400 * 3 // 4
    assert sent_bytes(torch.ops.c10d._reduce_scatter_base_.default, (tensor[:25], tensor), 4) == 400 * 3 // 4
