"""A share of the rows drawn with a seed, each class in proportion."""

from collections.abc import Hashable, Sequence

import numpy as np


def draw(classes: Sequence[Hashable], size: int, seed: int) -> np.ndarray:
    """Indices of `size` rows, ascending; every class gives its share to within one row.

    A class with one row is never drawn: what is drawn for validation would be missing from training.
    """
    generator = np.random.default_rng(seed)
    members: dict[Hashable, list[int]] = {}
    for index, name in enumerate(classes):
        members.setdefault(name, []).append(index)
    groups = list(members.values())
    wanted = np.array([len(group) * size / len(classes) if len(group) > 1 else 0.0 for group in groups])
    taken = np.floor(wanted).astype(int)
    # What rounding down left over goes to the largest remainders, earlier classes first.
    order = np.argsort(-(wanted - taken), kind="stable")
    room = [g for g in order if taken[g] < len(groups[g]) - 1]
    for group in room[: size - int(taken.sum())]:
        taken[group] += 1
    drawn = [generator.permutation(group)[:n] for group, n in zip(groups, taken, strict=True)]
    return np.sort(np.concatenate(drawn)).astype(np.int64)
