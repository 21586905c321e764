"""A share of the rows drawn with a seed, each class in proportion."""

from collections.abc import Hashable, Sequence

import numpy as np


def draw(classes: Sequence[Hashable], size: int, seed: int, *, stay: int) -> np.ndarray:
    """Indices of `size` rows, ascending; every class gives its share to within one row.

    `stay` rows of every class are left: what is drawn for validation must not be missing from training. Where that
    is more than the rest, fewer than `size` are drawn.
    """
    generator = np.random.default_rng(seed)
    members: dict[Hashable, list[int]] = {}
    for index, name in enumerate(classes):
        members.setdefault(name, []).append(index)
    groups = list(members.values())
    room = np.array([len(group) - stay for group in groups])
    wanted = np.minimum([len(group) * size / len(classes) for group in groups], room)
    taken = np.floor(wanted).astype(int)
    # What rounding down left over goes to the largest remainders, earlier classes first.
    order = np.argsort(-(wanted - taken), kind="stable")
    for group in order[taken[order] < room[order]][: size - int(taken.sum())]:
        taken[group] += 1
    drawn = [generator.permutation(group)[:n] for group, n in zip(groups, taken, strict=True)]
    return np.sort(np.concatenate(drawn)).astype(np.int64)
