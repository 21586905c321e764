"""Memory and time of a combination at any micro-batch, from the few that were measured."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from launcher.cutter import CostModel, Limits
from launcher.devices import Device
from launcher.forecast.measure import Measurement, Point, Size

LARGE, LARGER = 32, 64  # examples: sizes at which activations rule, so that their slope is the one that counts
ALIGNED = 16  # tokens; attention kernels pad masks to so many
MOST_ATTENTION = 0.999999  # a recipe states less than one
SHORTER = 4  # times; the second length, with as many tokens in all


def sizes(longest: int, limit: int | None) -> list[Size]:
    """What to measure, first a size at which almost nothing but states counts.

    By the power of two that holds the longest text, so that other data with this model finds them measured; never
    above the `limit` of tokens that the model reads.
    """
    high = max(SHORTER * ALIGNED, 1 << (longest - 1).bit_length())
    high = high if limit is None else min(high, limit)
    low = high // SHORTER
    return [(1, low), (LARGE * SHORTER, low), (LARGER * SHORTER, low), (LARGER, high)]


@dataclass(frozen=True)
class Line:
    """base + examples x length x (per_token + per_square x length), in bytes; never below `floor`."""

    base: float
    per_token: float
    per_square: float
    floor: float

    def most_examples(self, length: int, room: float) -> float:
        """How many texts of that length stay within `room` bytes."""
        if max(self.floor, self.base) > room:
            return 0.0
        each = length * (self.per_token + self.per_square * length)
        return (room - self.base) / each if each > 0 else np.inf

    def at(self, examples: int, length: int) -> float:
        return max(self.floor, self.base + examples * length * (self.per_token + self.per_square * length))


@dataclass(frozen=True)
class Surface:
    """`lines` by phase and `update` in bytes, all on the device included; times in seconds on that device."""

    lines: dict[str, Line]
    update: float
    host: int
    cost: CostModel
    seconds_per_token: float
    update_seconds: float

    def with_states(self, states: float, update: float, host: int, update_seconds: float) -> Surface:
        """The same micro-batches beside another optimizer: `states` bytes more are held all the time."""
        lines = {
            phase: replace(line, base=line.base + states, floor=line.floor + states)
            for phase, line in self.lines.items()
        }
        return replace(self, lines=lines, update=update, host=host, update_seconds=update_seconds)

    def peak(self, examples: int, length: int) -> float:
        """Bytes at the fullest moment with micro-batches of that size."""
        return max(self.update, *(line.at(examples, length) for line in self.lines.values()))

    def limits(self, room: float, lengths: np.ndarray) -> Limits | None:
        """The largest micro-batches of texts of these padded lengths; None where not each fits alone."""
        if self.update > room:
            return None
        distinct = [int(length) for length in np.unique(lengths)]
        most = [min(line.most_examples(length, room) for line in self.lines.values()) for length in distinct]
        if min(most) < 1:
            return None
        binding = min(self.lines.values(), key=lambda line: line.most_examples(distinct[-1], room))
        attention = binding.per_square / binding.per_token if binding.per_token > 0 else 0.0
        one = Limits(attention=min(round(attention, 6), MOST_ATTENTION))
        tokens = min(count * one.size(length) for count, length in zip(most, distinct, strict=True))
        # Whole tokens, but no fewer than the longest text counts for.
        limits = replace(one, tokens=max(int(min(tokens, 2**40)), math.ceil(one.size(distinct[-1]))))
        fitting = [limits.most_examples(length) or 0 for length in distinct]
        return limits if all(count <= bound for count, bound in zip(fitting, most, strict=True)) else None


def make_surface(measured: Measurement, device: Device, time_factor: float, network: float | None = None) -> Surface:
    """Through the measured sizes; the smallest gives the floor. Predicted times are taken `time_factor` fold.

    `network`: bytes/s to the next process, as in Work.seconds.
    """
    small, *large = measured.points
    lines = {phase: _line(phase, small, large) for phase in small.peaks}
    overhead, per_token, per_square = (time_factor * value for value in _fit_seconds(measured.points, device, network))
    cost = CostModel(overhead / per_token, per_square / per_token)
    update_seconds = measured.update_work.seconds(device, network) * time_factor
    return Surface(lines, measured.update, measured.host, cost, per_token, update_seconds)


def _line(phase: str, small: Point, large: list[Point]) -> Line:
    """Two sizes of one length give base and slope; a third, of another length, what of the slope grows with it."""
    first, second, longer = large
    per_text = (second.peaks[phase] - first.peaks[phase]) / (second.examples - first.examples)
    base = first.peaks[phase] - first.examples * per_text
    short, long = per_text / first.length, (longer.peaks[phase] - base) / longer.examples / longer.length
    per_square = max(0.0, (long - short) / (longer.length - first.length))
    per_token = max(0.0, long - per_square * longer.length)
    return Line(base, per_token, per_square, small.peaks[phase])


def _fit_seconds(points: tuple[Point, ...], device: Device, network: float | None) -> tuple[float, float, float]:
    """Overhead, seconds per token, and per token and length; none below zero, errors relative."""
    seconds = np.array([point.work.seconds(device, network) for point in points])
    tokens = np.array([point.examples * point.length for point in points], float)
    squares = np.array([point.examples * point.length**2 for point in points], float)
    columns = np.stack([np.ones_like(tokens), tokens, squares], axis=1) / seconds[:, None]
    overhead, per_token, per_square = _least_squares(columns)
    least = seconds.max() / tokens.max() / 100  # a model whose time is all overhead still takes some per token
    return overhead, max(per_token, least), per_square


def _least_squares(columns: np.ndarray) -> list[float]:
    """Factors, none below zero, with which the columns add up to one: the best over all sets of columns."""
    scale = columns.max(axis=0)  # of like size, or the smallest is lost in rounding
    best, best_error = [0.0] * columns.shape[1], np.inf
    for number in range(1, columns.shape[1] + 1):
        for kept in combinations(range(columns.shape[1]), number):
            some = columns[:, kept] / scale[list(kept)]
            found, *_ = np.linalg.lstsq(some, np.ones(len(columns)))
            error = float(np.square(some @ found - 1).sum())
            if found.min() >= 0 and error < best_error:
                best, best_error = [0.0] * columns.shape[1], error
                for place, value in zip(kept, found / scale[list(kept)], strict=True):
                    best[place] = float(value)
    return best
