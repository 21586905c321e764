"""What a search stands on: the job, its data, the device, and the measurements of combinations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from launcher import cache
from launcher.batches import Cutter, UpdateSampler
from launcher.build import make_padding, refuse_too_long
from launcher.calibration import Calibration, calibration_of
from launcher.cutter import CostModel, Limits
from launcher.data import Examples
from launcher.devices import NETWORK, Device
from launcher.forecast.measure import Measurement, Size, measure
from launcher.job import Job
from launcher.load import Loaded, load_data
from launcher.model_source import ModelFacts
from launcher.padding import Padding
from launcher.plan import Plan, make_plan
from launcher.planner.surface import Surface, make_surface, sizes
from launcher.settings import Settings
from launcher.strategies import Strategy
from launcher.tasks.base import Rows

UPDATES_LOOKED_AT = 32  # of an epoch; their cuts stand for all


@dataclass
class Ground:
    """`measured` keeps what was measured once, in this process; the disk keeps it for the next."""

    job: Job
    loaded: Loaded
    device: Device
    calibration: Calibration
    measured: dict[str, Measurement] = field(default_factory=dict)
    optimizers: dict[tuple[str, int], tuple[Measurement, Measurement]] = field(default_factory=dict)

    def plan(self, strategies: Sequence[Strategy], cost: CostModel | None = None) -> Plan:
        return make_plan(self.job, {strategy.key: strategy for strategy in strategies}, cost)

    @property
    def network(self) -> float:
        """Bytes/s to the next process: the slowest way that a ring through all of them takes."""
        return self.device.peer if self.job.nodes == 1 else min(self.device.peer, NETWORK)

    def padding(self, plan: Plan) -> Padding:
        some = [
            self._used(plan, examples.lengths.full) for examples in (self.loaded.train, self.loaded.held) if examples
        ]
        return make_padding(plan, some, self.loaded.length_limit)

    def lengths(self, plan: Plan) -> np.ndarray:
        """Of the training texts, in tokens, as this plan cuts them."""
        return self._used(plan, self.loaded.train.lengths.full)

    def _used(self, plan: Plan, full: np.ndarray) -> np.ndarray:
        bounds = [bound for bound in (plan.settings.max_length, self.loaded.length_limit) if bound is not None]
        return np.minimum(full, min(bounds)) if bounds else full

    def loaded_as(self, plan: Plan) -> Loaded:
        """The data with its texts as long as this plan leaves them."""
        tokens = plan.settings.max_length
        if tokens is None:
            return self.loaded
        train, held = self.loaded.train, self.loaded.held
        return replace(self.loaded, train=shortened(train, tokens), held=shortened(held, tokens) if held else None)

    def longest(self) -> int:
        """Tokens of the longest text as the recipe cuts it, padding included."""
        plan = self.plan(())
        return int(self.padding(plan).padded(self.lengths(plan)).max())

    def sizes(self) -> list[Size]:
        """Of the micro-batches that are measured."""
        return sizes(self.longest(), self.loaded.length_limit)

    def surface(self, strategies: Sequence[Strategy]) -> Surface:
        """Activations are measured beside the recipe's own optimizer; another one only changes what is held."""
        plain = [strategy for strategy in strategies if not chooses_optimizer(strategy)]
        chosen = [strategy for strategy in strategies if chooses_optimizer(strategy)]
        measured = self._measure(plain, self.sizes())
        surface = make_surface(measured, self.device, self.calibration.time, self.network)
        if not chosen:
            return surface
        # Which micro-batches run beside it does not matter to an optimizer; which parameters are trained does.
        key = str([(one.key, one.model_dump()) for one in chosen]), measured.trained
        if key not in self.optimizers:
            self.optimizers[key] = self._measure([*plain, *chosen], []), measured
        own, beside = self.optimizers[key]
        states = own.states - beside.states
        update_seconds = own.update_work.seconds(self.device, self.network) * self.calibration.time
        return surface.with_states(states, own.update, own.host, update_seconds)

    def _measure(self, strategies: Sequence[Strategy], points: list[Size]) -> Measurement:
        plan = self.plan(strategies)
        key = self._key(plan, points)
        if key not in self.measured:
            kept = cache.read("measurements", key)
            if kept is None:
                self.measured[key] = measure(plan, self.loaded, self.device, points)
                cache.write("measurements", key, self.measured[key].as_json())
            else:
                self.measured[key] = Measurement.from_json(kept)
        return self.measured[key]

    def held(self, strategies: Sequence[Strategy]) -> dict[str, int]:
        """What stays between micro-batches, by row, in bytes."""
        return self._measure(strategies, [] if any(map(chooses_optimizer, strategies)) else self.sizes()).held

    def _key(self, plan: Plan, points: list[Size]) -> str:
        """Of all that a measurement depends on; not the data, of which only labels and columns count."""
        settings, recipe = plan.settings, plan.recipe
        acting = [s for s in plan.strategies if type(s).change_model is not Strategy.change_model]
        return cache.fingerprint(
            config=self.loaded.config.to_dict(),
            task=recipe.task.model_dump(),
            columns=self.loaded.train.tokens.column_names,
            optimizer=[settings.optimizer, settings.optimizer_options, settings.scheduled, settings.precision],
            training=[recipe.training.weight_decay, recipe.training.max_grad_norm, recipe.training.schedule],
            strategies=[(s.key, s.model_dump(mode="json")) for s in acting],
            device=[self.device.kind, self.device.capability],
            processes=self.job.processes,
            form=[settings.form, settings.form_options],
            points=points,
        )

    def cutter(self, plan: Plan, limits: Limits, cost: CostModel) -> Cutter:
        """As the run will cut, on its first process."""
        sorted_by_length = plan.settings.sorted_by_length
        return Cutter(self.lengths(plan), self.padding(plan), limits, cost, sorted_by_length, self.job.processes)

    def epoch(self, plan: Plan, limits: Limits, surface: Surface) -> tuple[float, float]:
        """Predicted seconds per epoch, and micro-batches per update."""
        cutter = self.cutter(plan, limits, surface.cost)
        sampler = UpdateSampler(len(cutter.lengths), plan.recipe.training.batch_size, plan.recipe.training.seed)
        updates = sampler.updates_per_epoch
        drawn = list(sampler.updates(0, updates))[:: max(1, updates // UPDATES_LOOKED_AT)]
        seconds, count = 0.0, 0
        for indices in drawn:
            micro_batches = cutter.cut(indices).micro_batches
            shapes = [(len(one.examples), cutter.padded_length(one.examples)) for one in micro_batches]
            seconds += sum(float(surface.cost.time(*shape)) for shape in shapes) * surface.seconds_per_token
            count += len(shapes)
        per_update = seconds / len(drawn) + surface.update_seconds
        return per_update * updates, count / len(drawn)


def stand_on(job: Job, device: Device) -> Ground:
    """Reads and tokenises the data. DataError where a text is longer than the recipe's own micro-batches may be."""
    plan = make_plan(job)
    loaded = load_data(plan)
    facts = job.model or ModelFacts(Path(), loaded.config.to_dict())  # a hub's model is known only now
    ground = Ground(replace(job, model=facts), loaded, device, calibration_of(device.name))
    refuse_too_long(ground.cutter(plan, plan.limits, CostModel(0.0, 0.0)))
    return ground


def shortened(examples: Examples, tokens: int) -> Examples:
    """The first `tokens` of each, for what asks for lengths alone: a tokenizer would keep the special ones."""

    def cut(rows: Rows) -> Rows:
        return {name: [values[:tokens] for values in lists] for name, lists in rows.items()}

    lengths = replace(examples.lengths, used=np.minimum(examples.lengths.used, tokens))
    return replace(examples, tokens=examples.tokens.with_transform(cut), lengths=lengths)


def chooses_optimizer(strategy: Strategy) -> bool:
    settings = Settings()
    strategy.configure(settings)
    return settings.optimizer != Settings().optimizer
