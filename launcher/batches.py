"""Which examples make an update, and in which micro-batches each process runs them; the same on every process."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from launcher.cutter import CostModel, Limits, cut_in_order, cut_sorted, deal
from launcher.padding import Padding


@dataclass(frozen=True)
class MicroBatch:
    """`examples` are indices into the data. An idle process repeats one with weight 0, so that collectives meet."""

    examples: np.ndarray
    weight: float = 1.0


@dataclass(frozen=True)
class Update:
    """One process's part of one optimizer step. `examples` counts those of all processes."""

    micro_batches: tuple[MicroBatch, ...]
    examples: int


class UpdateSampler:
    """Draws each update's examples as plain shuffled training does; the last update of an epoch may be smaller."""

    def __init__(self, examples: int, batch_size: int, seed: int) -> None:
        self.examples = examples
        self.batch_size = batch_size
        self.seed = seed

    @property
    def updates_per_epoch(self) -> int:
        return math.ceil(self.examples / self.batch_size)

    def updates(self, first: int, end: int) -> Iterator[np.ndarray]:
        """Examples of updates `first` to `end` (without it), counted from 0 over all epochs."""
        order_epoch, order = -1, np.empty(0, np.int64)
        for update in range(first, end):
            epoch, position = divmod(update, self.updates_per_epoch)
            if epoch != order_epoch:
                order_epoch, order = epoch, np.random.default_rng([self.seed, epoch]).permutation(self.examples)
            yield order[position * self.batch_size : (position + 1) * self.batch_size]


@dataclass(frozen=True)
class Cutter:
    """Cuts any set of examples, of known lengths (tokens), for `processes`; this process is number `rank`."""

    lengths: np.ndarray
    padding: Padding
    limits: Limits
    cost: CostModel
    sorted_by_length: bool
    processes: int = 1
    rank: int = 0

    def cut(self, indices: np.ndarray) -> Update:
        """Every example in one micro-batch of one process; all processes get the same number of micro-batches."""
        if self.sorted_by_length:
            indices = indices[np.argsort(self.lengths[indices], kind="stable")]
        padded = self.padding.padded(self.lengths[indices])
        if self.sorted_by_length:
            cuts = cut_sorted(padded, processes=self.processes, limits=self.limits, cost=self.cost)
        else:
            cuts = cut_in_order(padded, processes=self.processes, limits=self.limits)
        return Update(tuple(self._hand(indices[cut]) for cut in cuts), len(indices))

    def _hand(self, members: np.ndarray) -> MicroBatch:
        hand = deal(members, processes=self.processes)[self.rank]
        return MicroBatch(hand) if len(hand) else MicroBatch(members[:1], weight=0.0)

    def padded_length(self, examples: np.ndarray) -> int:
        """Tokens that each text of this micro-batch takes."""
        return int(self.padding.padded(self.lengths[examples]).max())

    def worst(self, batch_size: int) -> MicroBatch:
        """The largest micro-batch that the data can bring: most tokens as the limits count, of equals the longest."""
        return self.largest(batch_size)[-1]

    def largest(self, batch_size: int) -> tuple[MicroBatch, ...]:
        """Those that the data can bring and that no other surpasses both in tokens and in length; the longest first.

        A model whose attention keeps all scores may need most memory for few long texts, whatever the limits count.
        """
        longest_first = np.argsort(-self.lengths, kind="stable")
        padded = self.padding.padded(self.lengths[longest_first])
        most = math.ceil(min(batch_size, len(padded)) / self.processes)
        found, best_tokens = [], 0.0
        for length, start in zip(*np.unique(-padded, return_index=True), strict=True):
            length = int(-length)
            tokens = self.limits.size(length)
            if most * tokens <= best_tokens:
                break  # shorter texts cannot make more tokens any more
            fitting = self.limits.most_examples(length)
            size = min(most, len(padded) - int(start), most if fitting is None else fitting)
            if size * tokens > best_tokens:
                found.append(MicroBatch(longest_first[start : start + size]))
                best_tokens = size * tokens
        return tuple(found) or (MicroBatch(longest_first[:1]),)

    def too_long(self) -> int | None:
        """The longest padded text, where not even one such fits into a micro-batch."""
        longest = int(self.padding.padded(self.lengths).max())
        return longest if self.limits.most_examples(longest) == 0 else None


def padding_share(used_tokens: float, padded_tokens: float) -> float:
    """Share of the work that is padding; of a process that is dealt no example, 0."""
    return 1 - used_tokens / padded_tokens if padded_tokens else 0.0
