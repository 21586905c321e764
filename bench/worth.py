"""What a plan is worth: the plan for a simulated card against a fixed recipe that fits on it, in turn in one process.

    python bench/worth.py --cap 600MB
    python bench/worth.py --cap fixed          # the card holds just what the fixed recipe takes

The fixed recipe is that of a published article for small cards: micro-batches of one text, 32 of them an update,
checkpointing, Adafactor, every text padded to 128 tokens. The plan gets the same model, reviews, length, optimizer and
order of examples, and chooses the rest. Both train on a card that raises out-of-memory above the cap; turns of a few
updates alternate, so that whatever else the machine does meets both.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import transformers
import yaml
from accelerate.state import AcceleratorState

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from launcher.build import Session, build_session  # noqa: E402
from launcher.check import check  # noqa: E402
from launcher.devices import CPU  # noqa: E402
from launcher.evaluate import evaluate  # noqa: E402
from launcher.forecast.assumed import MARGINS  # noqa: E402
from launcher.load import load_parts  # noqa: E402
from launcher.plan import make_plan  # noqa: E402
from launcher.planner.start import plan  # noqa: E402
from launcher.processes import start_form  # noqa: E402
from launcher.simulated_card import SimulatedCard  # noqa: E402
from launcher.train import rehearse, train_update  # noqa: E402
from launcher.units import format_bytes, parse_bytes  # noqa: E402

SHARED = ROOT.parent / "shared"
FIXED = {
    "gradient_accumulation": {"micro_batch": 1},
    "gradient_checkpointing": True,
    "uniform_dynamic_padding": False,
    "adafactor": True,
    "max_length": {"tokens": 128},
}
PLANNED = {"adafactor": True, "max_length": {"tokens": 128}}
NO_LIMIT = 2**50


@dataclass
class Contestant:
    """Turns in seconds of `updates` updates each."""

    name: str
    session: Session
    card: SimulatedCard
    what: str
    seconds: list[float] = field(default_factory=list)
    done: int = 0

    def take_turn(self, updates: int) -> None:
        start = time.perf_counter()
        with self.card:
            for indices in self.session.sampler.updates(self.done, self.done + updates):
                float(train_update(self.session, self.session.cutter.cut(indices)).loss)
        self.seconds.append(time.perf_counter() - start)
        self.done += updates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cap", default="600MB", help="memory of the simulated card, or: fixed")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--updates", type=int, default=6, help="in a turn")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    transformers.utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        total = options.rounds * options.updates + 1
        fixed = enter("fixed recipe", write(Path(folder) / "fixed.yaml", FIXED, total), NO_LIMIT)
        # A plan keeps a margin free: with this cap it may take 0.3 % more than the fixed recipe did.
        cap = (
            round(fixed.card.peak * 1.003 / (1 - MARGINS["cpu"]))
            if options.cap == "fixed"
            else parse_bytes(options.cap)
        )
        fixed.card.memory = cap
        planned = enter("plan", write(Path(folder) / "planned.yaml", PLANNED, total, cap), cap)
        for number in range(options.rounds):
            for contestant in (fixed, planned):
                contestant.take_turn(options.updates)
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    print_table(cap, [fixed, planned], options.updates)


def write(path: Path, strategies: dict[str, Any], updates: int, budget: int | None = None) -> Path:
    recipe = {
        "name": path.stem,
        "model": {"source": str(SHARED / "models/multilingual-e5-small-zh")},
        "task": {"type": "sequence_classification"},
        "data": {
            "train": str(SHARED / "data/hotel_reviews.csv"),
            "columns": {"text": "review"},
            "validation": {"share": 0.1},
        },
        "training": {"batch_size": 32, "updates": updates, "learning_rate": 1.0e-4},
        "strategies": strategies,
        "memory": {"budget": budget} if budget else {},
    }
    path.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return path


def enter(name: str, path: Path, memory: int) -> Contestant:
    """Builds, and runs the first update and the rehearsal, in which either side warms up, outside the clock."""
    job = check(path)
    made, what = make_plan(job), "as it stands"
    if job.recipe.memory.budget is not None:
        (proposal,) = plan(job, [(CPU, memory)])
        if isinstance(proposal, Exception):
            raise proposal
        made = make_plan(job, proposal.chosen(), proposal.cost)
        what = f"{proposal.strategies}, forecast {format_bytes(proposal.total)}"
    AcceleratorState._reset_state(reset_partial_state=True)
    session = build_session(made, start_form(made), load_parts(made))
    card = SimulatedCard(memory)
    card.hold([*session.model.parameters(), *session.model.buffers()])
    contestant = Contestant(name, session, card, what)
    session.set_train_mode()
    contestant.take_turn(1)
    with card:
        rehearse(session)
    contestant.seconds.clear()
    return contestant


def print_table(cap: int, contestants: list[Contestant], updates: int) -> None:
    fixed, planned = contestants
    examples = updates * fixed.session.sampler.batch_size
    ratios = [one / other for one, other in zip(fixed.seconds, planned.seconds, strict=True)]
    print(f"Simulated card of {format_bytes(cap)}; plan: {planned.what}\n")
    print("| | examples/s | ratio | peak of tensors | accuracy |\n| --- | ---: | ---: | ---: | ---: |")
    for contestant, ratio in ((fixed, "1.00"), (planned, f"{statistics.median(ratios):.2f}")):
        speed = examples / statistics.median(contestant.seconds)
        spread = "" if contestant is fixed else f" ({min(ratios):.2f} to {max(ratios):.2f})"
        accuracy = evaluate(contestant.session).metrics["accuracy"]
        size = f"{contestant.card.peak / 2**20:.1f} MiB"
        print(f"| {contestant.name} | {speed:.1f} | {ratio}{spread} | {size} | {accuracy:.4f} |")


if __name__ == "__main__":
    main()
