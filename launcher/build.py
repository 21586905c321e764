"""Plan -> Session: everything that one update needs, built once."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from launcher.batches import Cutter, UpdateSampler
from launcher.collate import Collator
from launcher.cutter import CostModel
from launcher.data import Examples
from launcher.errors import DataError, RecipeError
from launcher.forms import Form
from launcher.model_parts import frozen_modules
from launcher.padding import Padding
from launcher.plan import Plan
from launcher.recipe import Training
from launcher.shards import shape_of

if TYPE_CHECKING:
    from accelerate import Accelerator
    from torch import nn
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

# What starting one micro-batch costs, in tokens' worth of its work. CPU: all-MiniLM 63, multilingual-e5-small 50, the
# fit's error 11-13 %; 2026-11-30, 2 cores of an Intel Xeon (family 6, model 207), shared with other work,
# `python bench/micro_batch_cost.py MODEL`. CUDA: not measured yet.
OVERHEAD_TOKENS = {"cpu": 56.0, "cuda": 1024.0}


@dataclass
class Session:
    """What the loop works on; `examples` are those that it trains on."""

    plan: Plan
    form: Form
    schedule: LRScheduler | None
    collator: Collator
    examples: Examples
    sampler: UpdateSampler
    cutter: Cutter
    validation: tuple[Examples, Cutter] | None
    labels: tuple[str, ...]
    frozen: list[nn.Module]
    total_updates: int

    @property
    def accelerator(self) -> Accelerator:
        return self.form.accelerator

    @property
    def model(self) -> nn.Module:
        """As the form has wrapped it."""
        return self.form.model

    @property
    def optimizer(self) -> Optimizer:
        """As the form has wrapped it."""
        return self.form.optimizer

    def set_train_mode(self) -> None:
        """Training mode, less the modules that are frozen as a whole."""
        self.model.train()
        for module in self.frozen:
            module.eval()


@dataclass(frozen=True)
class Parts:
    """What was loaded: a model that the strategies have changed, its tokenizer, and the tokenised data."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    labels: tuple[str, ...]
    train: Examples
    held: Examples | None
    length_limit: int | None


def change_model(plan: Plan, model: PreTrainedModel) -> list[str]:
    """All strategies act on the model, in their order; returns what they have to say."""
    return [f"{strategy.key}: {note}" for strategy in plan.strategies for note in strategy.change_model(model)]


def build_session(plan: Plan, form: Form, parts: Parts) -> Session:
    """LaunchError, DataError and RecipeError come before any update."""
    from accelerate.utils import set_seed

    training, model, accelerator = plan.recipe.training, parts.model, form.accelerator
    sampler = UpdateSampler(len(parts.train), training.batch_size, training.seed)
    total = training.updates or updates_of(training.epochs or 0.0, sampler.updates_per_epoch)
    padding = make_padding(plan, [some.lengths.used for some in (parts.train, parts.held) if some], parts.length_limit)
    cutter = make_cutter(plan, accelerator, parts.train.lengths.used, padding, model.config)
    validation = None
    if parts.held is not None:
        validation = parts.held, evaluation_cutter(cutter, parts.held.lengths.used, training.batch_size)
    frozen = frozen_modules(model)
    if form.is_whole and model.device.type != accelerator.device.type:
        model.to(accelerator.device)
    collator = Collator(parts.tokenizer, plan.recipe.task, accelerator.device)
    is_asked = form.is_whole and accelerator.num_processes > 1
    has_unused = is_asked and has_unused_parameters(model, collator, parts.train)
    form.wrap(model, partial(make_optimizer, plan), has_unused=has_unused)
    schedule = make_schedule(training, form.plain_optimizer, total) if plan.settings.scheduled else None
    # From here on each process drops out other units of its own examples.
    set_seed(training.seed, device_specific=True)
    return Session(
        plan=plan,
        form=form,
        schedule=schedule,
        collator=collator,
        examples=parts.train,
        sampler=sampler,
        cutter=cutter,
        validation=validation,
        labels=parts.labels,
        frozen=frozen,
        total_updates=total,
    )


def updates_of(epochs: float, updates_per_epoch: int) -> int:
    """Rounded up, but not for what is only binary: 0.07 epochs of 100 updates are 7.000000000000001."""
    return max(1, math.ceil(round(epochs * updates_per_epoch, 6)))


def has_unused_parameters(model: PreTrainedModel, collator: Collator, examples: Examples) -> bool:
    """Whether the shortest text leaves a trained parameter without a gradient, as XLNet's mask embedding and experts.

    DDP waits for the gradient of every parameter unless it is told to look, at a price, for those that have none.
    """
    shortest = np.array([int(examples.lengths.used.argmin())])
    batch = collator(examples, shortest, int(examples.lengths.used.min()))
    model.train(False)  # no random numbers are drawn
    collator.task.loss(model(**batch.inputs).logits, batch.labels).backward()  # type: ignore[no-untyped-call]
    unused = any(p.requires_grad and p.grad is None for p in model.parameters())
    model.zero_grad()
    return unused


def make_padding(plan: Plan, lengths: list[np.ndarray], limit: int | None) -> Padding:
    """Fixed padding goes to the longest text that there is, after the cut."""
    longest = max(int(some.max()) for some in lengths)
    fixed = longest if plan.settings.padding == "fixed" else None
    return Padding(fixed, plan.settings.pad_to_multiple_of, limit)


def make_cutter(
    plan: Plan, accelerator: Accelerator, lengths: np.ndarray, padding: Padding, config: PretrainedConfig
) -> Cutter:
    """For this process. DataError where a text is longer than a whole micro-batch may be."""
    cutter = Cutter(
        lengths,
        padding,
        plan.limits,
        plan.cost or cost_model(accelerator.device.type, config),
        plan.settings.sorted_by_length,
        accelerator.num_processes,
        accelerator.process_index,
    )
    refuse_too_long(cutter)
    return cutter


def refuse_too_long(cutter: Cutter) -> None:
    """DataError where a text is longer than a whole micro-batch may be."""
    longest = cutter.too_long()
    if longest is not None:
        takes, limit = math.ceil(cutter.limits.size(longest)), cutter.limits.tokens
        advice = "raise strategies.gradient_accumulation.tokens or cut with strategies.max_length.tokens"
        raise DataError("micro-batches", [f"the longest text takes {takes} tokens, a micro-batch {limit}; {advice}"])


def evaluation_cutter(cutter: Cutter, lengths: np.ndarray, batch_size: int) -> Cutter:
    """As in training, with no more tokens at once than training's largest micro-batch, and that without gradients."""
    worst, limits = cutter.worst(batch_size).examples, cutter.limits
    longest = int(cutter.padding.padded(lengths).max())
    tokens = max(len(worst) * limits.size(cutter.padded_length(worst)), limits.size(longest))
    return replace(cutter, lengths=lengths, limits=replace(limits, tokens=math.ceil(tokens)))


def cost_model(device: str, config: PretrainedConfig) -> CostModel:
    """Per token a layer multiplies 12 h^2 weights and 2 L h scores: L / (6 h) on top (Kaplan et al., 2020)."""
    hidden = getattr(config, "hidden_size", None) or 768
    return CostModel(OVERHEAD_TOKENS.get(device, OVERHEAD_TOKENS["cuda"]), 1 / (6 * hidden))


def make_optimizer(plan: Plan, model: PreTrainedModel) -> Optimizer:
    """Of what is trained; weight decay on matrices only, not on biases and norms."""
    training, settings = plan.recipe.training, plan.settings
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if len(shape_of(p)) >= 2], "weight_decay": training.weight_decay},
        {"params": [p for p in trained if len(shape_of(p)) < 2], "weight_decay": 0.0},
    ]
    options: dict[str, Any] = {"lr": training.learning_rate} | settings.optimizer_options
    return _imported(settings.optimizer)([group for group in groups if group["params"]], **options)  # type: ignore[no-any-return]


def warmup_updates(training: Training, total: int) -> int:
    """Of all `total` updates, those in which the rate still rises."""
    return round(training.warmup * total if training.warmup < 1 else training.warmup)


def check_schedule(training: Training) -> None:
    """RecipeError where the schedule's options do not fit it; before anything large is loaded."""
    import torch

    optimizer = torch.optim.SGD([torch.zeros(1)], lr=training.learning_rate)
    # Without warmup, in which most options are not looked at yet.
    make_schedule(training.model_copy(update={"warmup": 0.0}), optimizer, 1)


def make_schedule(training: Training, optimizer: Optimizer, total: int) -> LRScheduler:
    """transformers' schedule over all updates; RecipeError where its options do not fit it."""
    from transformers import get_scheduler

    try:
        schedule: LRScheduler = get_scheduler(
            training.schedule,
            optimizer,
            num_warmup_steps=warmup_updates(training, total),
            num_training_steps=total,
            scheduler_specific_kwargs=dict(training.schedule_options),
        )
    except (TypeError, ValueError, ArithmeticError) as error:
        raise RecipeError(f"training.schedule {training.schedule}", [f"training.schedule_options: {error}"]) from None
    return schedule


def _imported(dotted: str) -> Callable[..., Any]:
    module, _, name = dotted.partition(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]
