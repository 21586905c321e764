"""Nine published speeds of BERT-large training on one V100, and the work of the same steps on fake tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from scipy.stats import spearmanr
from torch.nn.utils import clip_grad_norm_

from launcher.devices import Device
from launcher.forecast.cuda_rules import cuda_rules
from launcher.forecast.fake_world import fake_world
from launcher.forecast.work import BANDWIDTH_SHARE, MATRIX_SHARE, Work, WorkRecorder

BATCH, LENGTH = 4, 512
CONFIG = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}


@dataclass(frozen=True)
class Setting:
    """`speed` in samples/s; an optimizer step is over four samples, one by one where `accumulates`."""

    speed: float
    accumulates: bool = False
    checkpoints: bool = False
    is_half: bool = False
    optimizer: str = "adamw"

    @property
    def name(self) -> str:
        words = ["1 x 4" if self.accumulates else "4"]
        words += ["checkpointing"] if self.checkpoints else []
        words += ["fp16"] if self.is_half else []
        return ", ".join([*words, *([] if self.optimizer == "adamw" else [self.optimizer])])


# transformers' documentation of 2022, "Efficient Training on a Single GPU" (v4.21, perf_train_gpu_one): Trainer on
# bert-large-uncased for classification, random texts of 512 tokens, one V100-SXM2 with 16 GB.
PUBLISHED = (
    Setting(8.86),
    Setting(7.75, accumulates=True),
    Setting(5.99, accumulates=True, checkpoints=True),
    Setting(18.64, is_half=True),
    Setting(10.09, accumulates=True, checkpoints=True, is_half=True),
    Setting(7.96, optimizer="adafactor"),
    Setting(9.06, accumulates=True, checkpoints=True, is_half=True, optimizer="adafactor"),
    Setting(9.15, optimizer="8-bit adam"),
    Setting(10.35, accumulates=True, checkpoints=True, is_half=True, optimizer="8-bit adam"),
)


def works() -> list[Work]:
    """Of one optimizer step of each setting as Trainer made it in 2022, put together from parts that they share.

    Not in it: the scaler of fp16, which goes over the gradients once, and the batches' way to the card.
    """
    with fake_world(), cuda_rules((7, 0), "no"):
        micro_batches, steps = cache(micro_batch_works), cache(step_work)
        return [
            sum(micro_batches(setting.accumulates, setting.checkpoints, setting.is_half), steps(setting.optimizer))
            for setting in PUBLISHED
        ]


def make_model() -> Any:
    from transformers import BertConfig, BertForSequenceClassification

    # Attention as single operators, as it was written then.
    config = BertConfig(**CONFIG, attn_implementation="eager", use_cache=False)
    return BertForSequenceClassification(config).train()


def micro_batch_works(accumulates: bool, checkpoints: bool, is_half: bool) -> list[Work]:
    """One for each of an update; those after the first add to gradients that are there, and are alike."""
    model, recorder = make_model(), WorkRecorder()
    if checkpoints:
        model.activation_checkpointing_enable({"use_reentrant": True})
    first, *more = [backward(model, recorder, 1 if accumulates else BATCH, is_half) for _ in range(1 + accumulates)]
    return [first, *more * (BATCH - 1)]


def backward(model: Any, recorder: WorkRecorder, size: int, is_half: bool) -> Work:
    with recorder:
        ids = torch.zeros(size, LENGTH, dtype=torch.long)
        labels = torch.zeros(size, dtype=torch.long)
        # The CPU's autocast stands in for CUDA's, and bf16 for fp16, whose units are the same.
        with torch.autocast("cpu", torch.bfloat16) if is_half else nullcontext():
            loss = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels).loss / (BATCH // size)
        loss.backward()
    return recorder.take()


def step_work(optimizer_name: str) -> Work:
    """Not of the first step, in which states are born."""
    model, recorder = make_model(), WorkRecorder()
    optimizer = make_optimizer(optimizer_name, model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    with recorder:
        clip_grad_norm_(model.parameters(), 1.0, foreach=False)
        optimizer.step()
    return recorder.take()


def speeds(works: list[Work], device: Device) -> list[float]:
    """Predicted, in samples/s."""
    return [BATCH / work.seconds(device) for work in works]


def agreement(works: list[Work], device: Device) -> float:
    """Spearman's rank correlation of predicted and published speeds."""
    return float(spearmanr([setting.speed for setting in PUBLISHED], speeds(works, device)).statistic)


def varied(device: Device, matrices: float, bandwidth: float, launch: float) -> Device:
    """As if large kernels reached these shares of the peaks, and one took `launch` seconds at the least."""
    factor = matrices / MATRIX_SHARE
    return replace(
        device,
        float32=device.float32 * factor,
        half=device.half * factor,
        bandwidth=device.bandwidth * bandwidth / BANDWIDTH_SHARE,
        launch=launch,
    )


def make_optimizer(name: str, parameters: Iterator[Any]) -> Any:
    if name == "adafactor":
        from transformers.optimization import Adafactor

        return Adafactor(parameters)
    if name == "8-bit adam":
        from bitsandbytes.optim import Adam8bit

        return Adam8bit(parameters)
    # One parameter after the other, as AdamW was then.
    return torch.optim.AdamW(parameters, foreach=False, fused=False)
