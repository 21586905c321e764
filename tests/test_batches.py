"""Which examples make an update: a true shuffle, the same on every machine, each example once an epoch."""

import numpy as np

from launcher.batches import UpdateSampler
from launcher.padding import Padding


def test_an_epoch_holds_every_example_once_and_its_last_update_may_be_smaller():
    updates = list(UpdateSampler(10, 4, seed=0).updates(0, 3))
    assert [len(update) for update in updates] == [4, 4, 2]
    assert sorted(np.concatenate(updates).tolist()) == list(range(10))


def test_epochs_differ_and_seeds_differ_but_a_seed_repeats():
    first, second = (np.concatenate(list(UpdateSampler(50, 10, 0).updates(a, a + 5))) for a in (0, 5))
    other = np.concatenate(list(UpdateSampler(50, 10, 1).updates(0, 5)))
    again = np.concatenate(list(UpdateSampler(50, 10, 0).updates(0, 5)))
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, other)
    assert np.array_equal(first, again)


def test_starting_late_gives_the_updates_that_would_have_come():
    sampler = UpdateSampler(50, 8, seed=3)
    whole = list(sampler.updates(0, 20))
    late = list(sampler.updates(9, 20))
    assert all(np.array_equal(a, b) for a, b in zip(whole[9:], late, strict=True))


def test_padding_to_a_multiple_stops_at_the_models_limit():
    lengths = np.array([3, 8, 505, 510])
    assert Padding(multiple_of=8, limit=510).padded(lengths).tolist() == [8, 8, 510, 510]
    assert Padding(fixed=512).padded(lengths).tolist() == [512] * 4
