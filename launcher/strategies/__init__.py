"""All strategies, in the order in which they are shown and applied to the model."""

from launcher.strategies.adafactor import Adafactor
from launcher.strategies.base import Cost, Problem, Strategy
from launcher.strategies.dynamic_padding import DynamicPadding
from launcher.strategies.eight_bit_optimizer import EightBitOptimizer
from launcher.strategies.fast_tokenizer import FastTokenizer
from launcher.strategies.freezing import Freezing
from launcher.strategies.fsdp import Fsdp
from launcher.strategies.gradient_accumulation import GradientAccumulation
from launcher.strategies.gradient_checkpointing import GradientCheckpointing
from launcher.strategies.max_length import MaxLength
from launcher.strategies.mixed_precision import MixedPrecision
from launcher.strategies.optimizer_offload import OptimizerOffload
from launcher.strategies.uniform_dynamic_padding import UniformDynamicPadding
from launcher.strategies.zero import Zero

# Freezing stands before checkpointing, which leaves frozen layers alone.
ALL: tuple[type[Strategy], ...] = (
    GradientAccumulation,
    Freezing,
    MixedPrecision,
    EightBitOptimizer,
    OptimizerOffload,
    GradientCheckpointing,
    Adafactor,
    FastTokenizer,
    DynamicPadding,
    UniformDynamicPadding,
    MaxLength,
    Zero,
    Fsdp,
)

__all__ = ["ALL", "Cost", "Problem", "Strategy"]
