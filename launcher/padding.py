"""How long a text becomes once it stands in a micro-batch."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Padding:
    """`fixed`: every text to this length; else to the longest beside it, rounded up, never above `limit`."""

    fixed: int | None = None
    multiple_of: int = 1
    limit: int | None = None

    def padded(self, lengths: np.ndarray) -> np.ndarray:
        """Tokens -> the least tokens they take, padding included; int64, same shape."""
        if self.fixed is not None:
            return np.full_like(lengths, self.fixed)
        rounded = -(-lengths // self.multiple_of) * self.multiple_of
        # RoBERTa's table ends at 512: a text of 510 must not become 520.
        return rounded if self.limit is None else np.maximum(np.minimum(rounded, self.limit), lengths)
