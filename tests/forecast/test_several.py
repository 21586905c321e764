"""The forecast of one of several processes, against what a counter before the allocator sees on two real ones."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from launcher.check import check
from launcher.devices import CPU, find_device
from launcher.errors import ForecastError
from launcher.forecast.fake_run import fake_run
from launcher.forecast.trace import trace_plan
from launcher.load import load_data
from launcher.plan import make_plan
from launcher.train import worst_update
from tests.conftest import forget_forms, make_tiny_model
from tests.launches.commands import ACCELERATE, TWO, start

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # DeepSpeed's
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # torch's own, of its next names
    pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor:UserWarning"),  # by DeepSpeed, to align
]
HERE = Path(__file__).parent
SMALL = {"zero_optimization": {"reduce_bucket_size": 20_000, "allgather_bucket_size": 20_000}}
FORMS = {
    "ddp": {},
    "zero_1": {"zero": {"stage": 1, "config": "small.json"}},
    "zero_2": {"zero": {"stage": 2, "config": "small.json"}},
    "zero_3": {"zero": {"stage": 3, "config": "small.json"}},
    "zero_3_in_large_buckets": {"zero": {"stage": 3}},
    "fsdp": {"fsdp": {"reshard": True}},
    "fsdp_whole_until_backward": {"fsdp": {"reshard": False}},
}
# gloo gathers and scatters through copies of its own, which NCCL does not.
TOLERANCE = {"fsdp": 0.08, "fsdp_whole_until_backward": 0.03}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, rows_file):
    """Recipes, and beside them what two real processes took."""
    place = tmp_path_factory.mktemp("several")
    model = make_tiny_model(place / "model")
    (place / "small.json").write_text(json.dumps(SMALL), encoding="utf-8")
    for name, strategies in FORMS.items():
        limit = {"gradient_accumulation": {"tokens": 150}, "uniform_dynamic_padding": True}
        content = {
            "name": name,
            "model": {"source": str(model)},
            "task": {"type": "sequence_classification"},
            "data": {"train": str(rows_file)},
            "training": {"batch_size": 24, "updates": 2, "learning_rate": 1e-3},
            "strategies": limit | strategies,
        }
        (place / f"{name}.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def real(folder):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler, for a counter that stands before torch's allocator")
    counter = folder / "allocations.so"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", HERE / "allocations.c", "-o", counter, "-ldl"], check=True)
    command = [*ACCELERATE, *TWO, str(HERE / "several_job.py"), str(folder)]
    done = start(command, cwd=folder, LD_PRELOAD=str(counter))
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads((folder / f"peaks-{rank}.json").read_text()) for rank in (0, 1)]


def trace(path, processes, device=CPU):
    forget_forms()
    plan = make_plan(check(path, processes=processes, target=device))
    try:
        return trace_plan(plan, load_data(plan), device)
    finally:
        forget_forms()


def held(path, processes):
    """Bytes between two updates."""
    forget_forms()
    plan = make_plan(check(path, processes=processes))
    try:
        with fake_run(plan, load_data(plan), CPU, with_work=False) as run:
            for _ in range(2):
                run.update(worst_update(run.session))
            return sum(event.size for event in run.tracker.events)
    finally:
        forget_forms()


@pytest.mark.launch
@pytest.mark.parametrize("name", FORMS)
def test_what_one_of_two_processes_takes_is_forecast(folder, real, name):
    found = trace(folder / f"{name}.yaml", 2).peak.size
    for answers in real:
        assert found == pytest.approx(answers[name]["peak"], rel=TOLERANCE.get(name, 0.01))


@pytest.mark.launch
@pytest.mark.parametrize("name", FORMS)
def test_the_shards_that_one_of_two_processes_holds_are_forecast(folder, real, name):
    found = held(folder / f"{name}.yaml", 2)
    for answers in real:
        assert found == pytest.approx(answers[name]["held"], rel=0.01)


@pytest.mark.parametrize("name", ["zero_3", "fsdp"])
def test_states_shrink_with_the_processes(folder, name):
    of_two, of_eight = (trace(folder / f"{name}.yaml", processes).phases["forward"].rows for processes in (2, 8))
    assert of_eight["optimizer"] == pytest.approx(of_two["optimizer"] / 4, rel=0.05)


def test_what_comes_after_zero_3_is_whole_again(folder):
    """transformers would go on making models in shards for as long as it finds DeepSpeed's configuration."""
    before = trace(folder / "ddp.yaml", 1).peak
    trace(folder / "zero_3.yaml", 2)
    assert trace(folder / "ddp.yaml", 1).peak == before


def test_one_thousand_processes_are_forecast_as_two(folder):
    found = trace(folder / "zero_2.yaml", 1024)
    assert 0 < found.phases["update"].rows["optimizer"] < 10_000


def test_a_card_is_forecast_beside_others(folder):
    found = trace(folder / "fsdp.yaml", 4, find_device("RTX 3090"))
    assert found.reserved >= found.allocated >= found.peak.size > 0


def test_shards_in_the_hosts_memory_are_refused_by_name(folder, tmp_path):
    content = yaml.safe_load((folder / "fsdp.yaml").read_text())
    content["strategies"]["fsdp"] = {"offload": True}
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    with pytest.raises(ForecastError, match="fsdp with offload to the host's memory cannot be followed yet"):
        trace(path, 2, find_device("RTX 3090"))
