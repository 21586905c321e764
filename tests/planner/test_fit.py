"""Promise 3, it fits or it says why not: real models on real cards by a second trace, small jobs by training them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from accelerate.state import AcceleratorState

from launcher.check import check
from launcher.devices import find_device
from launcher.errors import BudgetError
from launcher.forecast.trace import trace
from launcher.pipeline import run
from launcher.planner.ground import stand_on
from launcher.planner.propose import propose
from launcher.planner.search import demand
from launcher.units import GIB, MIB
from tests.families import make_family
from tests.planner.fits import (
    answer_of,
    make_model,
    overrides_of,
    review_lengths,
    smallest_budget,
    write_recipe,
    write_rows,
)

ENOUGH = 64 * MIB  # for any of the small jobs


@pytest.fixture
def folder(tmp_path):
    yield tmp_path
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.fixture(scope="session")
def reviews(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("reviews") / "rows.jsonl", review_lengths(400))


@pytest.mark.slow
def test_one_real_model_fits_a_small_card(folder, reviews):
    """As bench/plan_fit.py does for eight on six cards."""
    recipe = write_recipe(folder / "recipe.yaml", make_model("distilbert-base", folder / "model"), reviews)
    card = find_device("GTX 1650")
    found = propose(stand_on(check(recipe, target=card), card), 2 * GIB)
    again = trace(check(recipe, overrides_of(found), target=card), card)
    assert demand(again) + found.context == found.total
    assert found.total + found.margin <= 2 * GIB


@dataclass(frozen=True)
class SmallJob:
    """Sections of a recipe beside the family's model; texts of `lengths` tokens, validation texts of `held`."""

    family: str
    lengths: str = "mixed"
    held: str = "share"
    batch_size: int = 16
    strategies: dict[str, Any] = field(default_factory=dict)
    allow: tuple[str, ...] = ()


_GENERATOR = np.random.default_rng(0)
LENGTHS = {
    "mixed": _GENERATOR.integers(3, 60, 40),
    "skewed": np.array([*_GENERATOR.integers(3, 12, 38), 58, 60]),
    "equal": np.full(30, 32),
    "short": np.full(30, 6),
    "few": _GENERATOR.integers(3, 60, 9),
}
IN_ORDER = {"uniform_dynamic_padding": False, "dynamic_padding": True}
FIXED = {"uniform_dynamic_padding": False}
SMALL_JOBS = {
    "bert": SmallJob("bert"),
    "bert_padded_to_the_longest": SmallJob("bert", strategies=FIXED),
    "bert_in_order": SmallJob("bert", lengths="skewed", strategies=IN_ORDER),
    "bert_equal_lengths": SmallJob("bert", lengths="equal"),
    "bert_short_texts": SmallJob("bert", lengths="short", batch_size=30),
    "bert_batch_above_data": SmallJob("bert", lengths="few", batch_size=64),
    "bert_long_validation": SmallJob("bert", lengths="short", held="skewed"),
    "bert_stated_steps": SmallJob("bert", strategies={"gradient_accumulation": {"steps": 4}}),
    "bert_stated_micro_batch": SmallJob("bert", strategies=IN_ORDER | {"gradient_accumulation": {"micro_batch": 4}}),
    "bert_stated_tokens": SmallJob("bert", lengths="skewed", strategies={"gradient_accumulation": {"tokens": 64}}),
    "bert_stated_max_length": SmallJob("bert", strategies={"max_length": {"tokens": 24}}),
    "bert_adafactor": SmallJob("bert", strategies={"adafactor": True}),
    "roberta_eights": SmallJob("roberta", strategies={"uniform_dynamic_padding": {"multiple_of": 8}}),
    "electra_8_bit_allowed": SmallJob("electra", allow=("eight_bit_optimizer",)),
    "albert": SmallJob("albert"),
    "deberta": SmallJob("deberta-v2", lengths="skewed"),
    "distilbert_freezing_allowed": SmallJob("distilbert", allow=("freezing",)),
    "gpt2": SmallJob("gpt2", batch_size=8),
    "llama_skewed": SmallJob("llama", lengths="skewed"),
    "xlnet": SmallJob("xlnet", batch_size=5),
}


def recipe_of(job, folder, memory):
    rows = write_rows(folder / "rows.jsonl", LENGTHS[job.lengths])
    validation = {"share": 0.25}
    if job.held != "share":
        validation = {"file": str(write_rows(folder / "held.jsonl", LENGTHS[job.held]))}
    return write_recipe(
        folder / "recipe.yaml",
        folder / "model",
        rows,
        data={"validation": validation},
        training={"batch_size": job.batch_size, "updates": 3, "epochs": None, "learning_rate": 1e-3},
        strategies=job.strategies,
        memory={"allow": list(job.allow)} | memory,
    )


@pytest.mark.slow
@pytest.mark.usefixtures("plan_here")
@pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning")  # torch without a card, in pipeline
@pytest.mark.parametrize("name", SMALL_JOBS)
def test_the_smallest_budget_trains_and_less_is_refused_before_the_start(name, folder):
    job = SMALL_JOBS[name]
    make_family(job.family, folder / "model")
    card = find_device("cpu")
    ground = stand_on(check(recipe_of(job, folder, {})), card)
    least = smallest_budget(ground, ENOUGH)
    assert isinstance(answer_of(ground, int(0.85 * least)), BudgetError)
    run_folder = run(check(recipe_of(job, folder, {"budget": f"{int(1.01 * least)}B"})))
    results = json.loads((run_folder / "results.json").read_text())
    assert results["updates"] == 3
    assert results["budget"]["kept"]
    assert "metrics" in results
    # How tight it was, for whoever runs this with -s.
    facts = {phase: round(sizes["fact"] / sizes["forecast"], 4) for phase, sizes in results["forecast"].items()}
    print(f"\n{name}: least {least} bytes, peak {results['budget']['peak'] / least:.3f} of it, facts {facts}")
