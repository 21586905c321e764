"""Who takes part in bench/throughput.py: this project's loop and transformers' Trainer, timed by the same clock."""

from __future__ import annotations

import copy
import gc
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from accelerate.state import AcceleratorState, GradientState
from transformers import DataCollatorWithPadding, PrinterCallback, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_pt_utils import get_length_grouped_indices

from launcher.batches import UpdateSampler, padding_share
from launcher.build import Parts, build_session
from launcher.fit import fit
from launcher.job import Job
from launcher.meter import MemoryMeter
from launcher.model_source import read_model_facts
from launcher.plan import Plan, make_plan
from launcher.processes import start_form
from launcher.recipe import Recipe
from launcher.run_state import Phases, Run
from launcher.screen import Screen

ROOT = Path(__file__).resolve().parents[1]
WARM_UP = 1  # updates before the clock starts
# Batches that Trainer's sampler sorts together in a data set of some size; left alone it takes fewer of a small draw.
MEGA_BATCH = 50

Batches = list[np.ndarray]
Strategies = dict[str, dict[str, int]]
Training = dict[str, int | float | str]


@dataclass
class Clock:
    """Runs from the end of the warm-up to the end of the last update."""

    updates: int = 0
    started: float = 0.0
    seconds: float = 0.0

    def update_ended(self) -> None:
        now = time.perf_counter()
        if self.updates == WARM_UP - 1:
            self.started = now
        self.updates += 1
        self.seconds = now - self.started


@dataclass(frozen=True)
class Timing:
    """Of one contestant in one round."""

    examples_per_second: float
    padding: float


@dataclass(frozen=True)
class Part:
    """A model, its tokenised data and the settings that all contestants share."""

    title: str
    recipe: dict[str, object]
    training: Training
    parts: Parts

    def plan(self, strategies: Strategies, *, updates: int, seed: int) -> Plan:
        training = self.training | {"updates": updates, "seed": seed}
        return plan_of(self.recipe, training, strategies)


class ClockedSampler(UpdateSampler):
    """The sampler itself; the loop asks it for the next update when it is through with the one before."""

    def __init__(self, sampler: UpdateSampler, clock: Clock) -> None:
        super().__init__(sampler.examples, sampler.batch_size, sampler.seed)
        self.clock = clock

    def updates(self, first: int, end: int) -> Iterator[np.ndarray]:
        for indices in super().updates(first, end):
            yield indices
            self.clock.update_ended()


class ClockCallback(TrainerCallback):
    """Trainer's side of the same clock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def on_step_end(self, *_: object, **__: object) -> None:
        self.clock.update_ended()


# (part, updates after the warm-up, seed of the draw)
Train = Callable[[Part, int, int], Timing]


def plan_of(recipe: dict[str, object], training: Training, strategies: Strategies) -> Plan:
    """As `launcher run` makes it of a recipe file."""
    stated = {"max_length": recipe["max_length"]} if "max_length" in recipe else {}
    sections = {name: value for name, value in recipe.items() if name != "max_length"}
    whole = sections | {"training": training, "strategies": stated | strategies}
    checked = Recipe.model_validate(whole | {"task": {"type": "sequence_classification"}}).with_base(ROOT)
    return make_plan(Job(checked, read_model_facts(checked.model.source, checked.base), 1))


def draw(part: Part, updates: int, seed: int) -> Batches:
    """What our sampler draws for all updates, the warm-up first."""
    sampler = UpdateSampler(len(part.parts.train), int(part.training["batch_size"]), seed)
    return list(sampler.updates(0, WARM_UP + updates))


def fresh_start() -> None:
    """Accelerate keeps its state for the whole process; the next contestant makes its own."""
    AcceleratorState._reset_state(True)
    GradientState._reset_state()
    gc.collect()


def train_ours(strategies: Strategies) -> Train:
    def train(part: Part, updates: int, seed: int) -> Timing:
        plan = part.plan(strategies, updates=WARM_UP + updates, seed=seed)
        parts = replace(part.parts, model=copy.deepcopy(part.parts.model))
        session = build_session(plan, start_form(plan), parts)
        clock = Clock()
        session.sampler = ClockedSampler(session.sampler, clock)
        with tempfile.TemporaryDirectory() as folder:
            run = Run(Path(folder), Screen(main=True), Phases(MemoryMeter(session.accelerator.device)))
            with run.phase("train"):
                fit(session, run)
        batches = draw(part, updates, seed)[WARM_UP:]
        micro_batches = [some.examples for batch in batches for some in session.cutter.cut(batch).micro_batches]
        return timing(part, clock, batches, micro_batches)

    return train


def train_with_trainer(*, grouped: bool) -> Train:
    """`grouped`: the batches of train_sampling_strategy="group_by_length", made by its own function."""

    def train(part: Part, updates: int, seed: int) -> Timing:
        batches = draw(part, updates, seed)
        if grouped:
            batches = batches[:WARM_UP] + group_by_length(part, batches[WARM_UP:], seed)
        clock = Clock()
        with tempfile.TemporaryDirectory() as folder:
            trainer_for(part, batches, Path(folder), clock).train()
        return timing(part, clock, batches[WARM_UP:], batches[WARM_UP:])

    return train


def group_by_length(part: Part, batches: Batches, seed: int) -> Batches:
    examples = np.concatenate(batches)
    lengths = part.parts.train.lengths.used[examples].tolist()
    generator = torch.Generator().manual_seed(seed)
    order = get_length_grouped_indices(lengths, len(batches[0]), MEGA_BATCH, generator)  # type: ignore[no-untyped-call]
    return np.split(examples[np.array(order)], len(batches))


def trainer_for(part: Part, batches: Batches, folder: Path, clock: Clock) -> Trainer:
    """Trainer with its defaults, less what the comparison is not about; it reads the batches in their order."""
    order, examples = np.concatenate(batches), part.parts.train
    rows = examples.tokens.select(order).flatten_indices(keep_in_memory=True)
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=len(batches),
        per_device_train_batch_size=len(batches[0]),
        learning_rate=float(part.training["learning_rate"]),
        weight_decay=0.0,
        max_grad_norm=1.0,
        lr_scheduler_type="linear",
        train_sampling_strategy="sequential",
        logging_strategy="no",
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    assert arguments.optim == "adamw_torch_fused", "Trainer's optimizer is no longer the one of our loop"
    trainer = Trainer(
        model=copy.deepcopy(part.parts.model),
        args=arguments,
        train_dataset=rows.add_column("labels", [examples.labels[i] for i in order]),
        data_collator=DataCollatorWithPadding(part.parts.tokenizer),
        callbacks=[ClockCallback(clock)],
    )
    trainer.remove_callback(PrinterCallback)  # standard output is for the table
    return trainer


def timing(part: Part, clock: Clock, batches: Batches, micro_batches: Batches) -> Timing:
    assert clock.updates == WARM_UP + len(batches), "the clock missed an update"
    lengths = part.parts.train.lengths.used
    used = sum(int(lengths[batch].sum()) for batch in micro_batches)
    padded = sum(len(batch) * int(lengths[batch].max()) for batch in micro_batches)
    return Timing(sum(map(len, batches)) / clock.seconds, padding_share(used, padded))
