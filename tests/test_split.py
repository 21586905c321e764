from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from launcher.split import draw

CLASSES = ["good"] * 60 + ["bad"] * 30 + ["so so"] * 10


def test_each_class_gives_its_share() -> None:
    drawn = draw(CLASSES, 20, seed=0, stay=1)
    assert Counter(CLASSES[index] for index in drawn) == {"good": 12, "bad": 6, "so so": 2}


def test_the_same_seed_draws_the_same_rows_and_another_does_not() -> None:
    first = draw(CLASSES, 20, seed=0, stay=1)
    assert np.array_equal(first, draw(CLASSES, 20, seed=0, stay=1))
    assert not np.array_equal(first, draw(CLASSES, 20, seed=1, stay=1))


def test_rows_come_in_their_order_each_once() -> None:
    drawn = draw(CLASSES, 50, seed=3, stay=1)
    assert len(drawn) == 50
    assert np.array_equal(drawn, np.unique(drawn))


def test_a_class_with_one_row_stays_in_training() -> None:
    classes = ["good"] * 5 + ["rare"]
    assert all(5 not in draw(classes, 3, seed=seed, stay=1) for seed in range(20))


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=60), st.data())
def test_no_class_gives_more_than_its_share_and_a_row_or_its_only_one(classes: list[str], data: st.DataObject) -> None:
    size = data.draw(st.integers(1, len(classes)))
    drawn = Counter(classes[index] for index in draw(classes, size, seed=0, stay=1))
    for name, rows in Counter(classes).items():
        assert drawn[name] <= rows * size / len(classes) + 1
        assert drawn[name] == 0 or rows > 1
        assert drawn[name] < rows or size == len(classes)


@given(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=60), st.data())
def test_where_no_row_must_stay_exactly_so_many_are_drawn(classes: list[str], data: st.DataObject) -> None:
    size = data.draw(st.integers(1, len(classes)))
    drawn = draw(classes, size, seed=0, stay=0)
    assert len(np.unique(drawn)) == size
    for name, rows in Counter(classes).items():
        assert abs(sum(classes[index] == name for index in drawn) - rows * size / len(classes)) < 1
