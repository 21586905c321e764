"""What strategies decide, as plain data: they edit it, build.py and the batches read it."""

from dataclasses import dataclass, field
from typing import Any, Literal

Precision = Literal["no", "fp16", "bf16"]
Padding = Literal["fixed", "longest"]
Form = Literal["ddp", "zero", "fsdp"]


@dataclass
class Settings:
    """One field, one owner: two strategies that write the same field are in conflict."""

    precision: Precision = "no"
    # A dotted name and its options; build.py imports it.
    optimizer: str = "torch.optim:AdamW"
    optimizer_options: dict[str, object] = field(default_factory=lambda: {"fused": True})
    # How processes share the model, and the fields of the strategy that says so.
    form: Form = "ddp"
    form_options: dict[str, Any] = field(default_factory=dict)
    # False: the optimizer finds its own rate, the recipe's schedule is not used.
    scheduled: bool = True
    fast_tokenizer: bool = False
    # Longest input in tokens; None: as long as the model can read.
    max_length: int | None = None
    padding: Padding = "fixed"
    pad_to_multiple_of: int = 1
    # Order each update's examples by length before they are cut into micro-batches.
    sorted_by_length: bool = False
    # Micro-batches that each process runs per full update; None: as many as the limits ask.
    accumulation_steps: int | None = None
    # What one process may put through forward and backward at once; None: no limit of that kind.
    micro_batch_examples: int | None = None
    micro_batch_tokens: int | None = None
    # What a token counts more in that limit, for each token of its text.
    micro_batch_attention: float = 0.0
