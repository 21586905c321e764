"""Cut one update's examples into micro-batches: each fits, together they take the least predicted time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Limits:
    """What one micro-batch of one process may hold; None: no limit of that kind. Tokens count padding.

    A text of `length` tokens counts as length x (1 + length x attention): memory grows with its square where attention
    keeps all scores.
    """

    examples: int | None = None
    tokens: int | None = None
    attention: float = 0.0

    def size(self, length: int) -> float:
        """What one text of that padded length counts for, in tokens."""
        return length * (1 + length * self.attention)

    def most_examples(self, length: int) -> int | None:
        """How many texts of that padded length fit; 0 where not even one does."""
        bounds = [self.examples] if self.examples is not None else []
        if self.tokens is not None:
            bounds.append(int(self.tokens / self.size(length)))
        return min(bounds) if bounds else None


@dataclass(frozen=True)
class CostModel:
    """overhead + examples x length x (1 + length x attention), in units of one token's linear work."""

    overhead: float
    attention: float

    def time(self, examples: np.ndarray | int, length: np.ndarray | int) -> np.ndarray:
        """Relative, for comparing cuts; not seconds of any clock."""
        return np.asarray(self.overhead + examples * length * (1 + length * self.attention))


def cut_sorted(lengths: np.ndarray, *, processes: int, limits: Limits, cost: CostModel) -> list[slice]:
    """The contiguous partition of ascending padded lengths with the least predicted time.

    Each slice is shared among all processes, which run it at the same time: it takes as long as the process with
    most examples. Dynamic programming over the slice's end; numpy looks at all its starts at once.
    """
    n = len(lengths)
    best = np.full(n + 1, np.inf)
    best[0] = 0.0
    start_of = np.zeros(n + 1, np.int64)
    for end in range(1, n + 1):
        length = int(lengths[end - 1])
        most = limits.most_examples(length)
        assert most is None or most > 0, "a text longer than the limit reached the cutter"
        first = 0 if most is None else max(0, end - most * processes)
        starts = np.arange(first, end)
        examples = -(-(end - starts) // processes)
        total = best[first:end] + cost.time(examples, length)
        choice = int(total.argmin())
        best[end], start_of[end] = total[choice], first + choice
    return _walk_back(start_of)


def _walk_back(start_of: np.ndarray) -> list[slice]:
    cuts: list[slice] = []
    end = len(start_of) - 1
    while end > 0:
        cuts.append(slice(int(start_of[end]), end))
        end = int(start_of[end])
    return cuts[::-1]


def cut_in_order(lengths: np.ndarray, *, processes: int, limits: Limits) -> list[slice]:
    """Padded lengths in the order given: each slice takes as many as fit, as plain loaders do."""
    cuts: list[slice] = []
    start, longest = 0, 0
    for index, length in enumerate(lengths.tolist()):
        longest = max(longest, length)
        most = limits.most_examples(longest)
        if most is not None and -(-(index + 1 - start) // processes) > most and index > start:
            cuts.append(slice(start, index))
            start, longest = index, length
    cuts.append(slice(start, len(lengths)))
    return cuts


def predicted_time(lengths: np.ndarray, cuts: list[slice], *, processes: int, cost: CostModel) -> float:
    """What `cost` says of a cut of these padded lengths."""
    sizes = np.array([cut.stop - cut.start for cut in cuts])
    longest = np.array([lengths[cut].max() for cut in cuts])
    return float(cost.time(-(-sizes // processes), longest).sum())


def deal(members: np.ndarray, *, processes: int) -> list[np.ndarray]:
    """One slice's examples to the processes, as cards are dealt, turning round after each row: tokens stay balanced."""
    hands: list[list[int]] = [[] for _ in range(processes)]
    # The longest first, so that the row that is not full holds the shortest.
    for row, start in enumerate(range(0, len(members), processes)):
        cards = members[::-1][start : start + processes].tolist()
        order = range(processes) if row % 2 == 0 else range(processes - 1, -1, -1)
        for process, card in zip(order, cards, strict=False):
            hands[process].append(card)
    return [np.array(hand, np.int64) for hand in hands]
