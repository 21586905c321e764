"""What every strategy promises, by itself and beside each other one that it does not exclude."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

from launcher.recipe import RecipeStrategies
from launcher.settings import Settings
from launcher.strategies import ALL
from tests.gradients import relative_error, update_gradient

OFF = {"uniform_dynamic_padding": False, "fast_tokenizer": False}
WHOLE_UPDATE = np.arange(24)
# Forms in which processes share a model are tried where there are several: tests/launches.
ON_ONE = [cls for cls in ALL if cls.key not in ("zero", "fsdp")]
PAIRS = [pair for pair in combinations(ON_ONE, 2) if pair[1].key not in pair[0].conflicts]
each_alone = pytest.mark.parametrize("cls", ON_ONE, ids=lambda cls: cls.key)
each = pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.key)
each_pair = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0].key}+{pair[1].key}")


def using(*classes, **training):
    """Sections of a recipe with these strategies alone."""
    return {"strategies": OFF | {cls.key: cls.example for cls in classes}, "training": training}


def train(session, first, end):
    """Updates first to end; returns their losses."""
    from launcher.train import train_update

    session.set_train_mode()
    return [float(train_update(session, session.cutter.cut(i)).loss) for i in session.sampler.updates(first, end)]


def weights(session):
    model = session.accelerator.unwrap_model(session.model)
    return {name: p.detach().clone() for name, p in model.named_parameters()}


@each_alone
def test_two_updates_train(build, cls):
    session = build(**using(cls))
    before = weights(session)
    losses = train(session, 0, 2)
    after = weights(session)
    assert np.isfinite(losses).all()
    trained = [name for name, p in session.model.named_parameters() if p.requires_grad]
    assert trained
    assert any(not torch.equal(before[name], after[name]) for name in trained)
    assert all(torch.equal(before[name], after[name]) for name in before if name not in trained)


@pytest.mark.parametrize("cls", [c for c in ON_ONE if c.cost != "changes_training"], ids=lambda cls: cls.key)
def test_what_does_not_change_training_leaves_the_gradient(build, cls):
    plain = update_gradient(build(**using()), WHOLE_UPDATE)
    assert relative_error(update_gradient(build(**using(cls)), WHOLE_UPDATE), plain) < 1e-5


@each_pair
def test_pairs_train_together(build, pair):
    session = build(**using(*pair))
    assert np.isfinite(train(session, 0, 2)).all()


EXACT_PAIRS = [pair for pair in PAIRS if all(cls.cost != "changes_training" for cls in pair)]


@pytest.mark.parametrize("pair", EXACT_PAIRS, ids=lambda pair: f"{pair[0].key}+{pair[1].key}")
def test_pairs_that_do_not_change_training_leave_the_gradient(build, pair):
    plain = update_gradient(build(**using()), WHOLE_UPDATE)
    assert relative_error(update_gradient(build(**using(*pair)), WHOLE_UPDATE), plain) < 1e-5


@each_alone
def test_a_resumed_run_equals_the_uninterrupted_one(build, cls, tmp_path):
    """Three updates, against one, a save, a fresh build, a load, and two; bit for bit, dropout on."""
    sections = using(cls, updates=3) | {"model": {"config": {"hidden_dropout_prob": 0.1}}}
    session = build(**sections)
    train(session, 0, 3)
    expected = weights(session)

    session = build(**sections)
    train(session, 0, 1)
    save(session, tmp_path / "checkpoint")
    session = build(**sections)
    load(session, tmp_path / "checkpoint")
    train(session, 1, 3)
    found = weights(session)
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []


def save(session, folder):
    if session.schedule is not None:
        session.accelerator.register_for_checkpointing(session.schedule)
    session.accelerator.save_state(str(folder))


def load(session, folder):
    if session.schedule is not None:
        session.accelerator.register_for_checkpointing(session.schedule)
    session.accelerator.load_state(str(folder))


@each
def test_the_file_the_key_and_the_class_have_one_name(cls):
    assert cls.__module__ == f"launcher.strategies.{cls.key}"
    assert cls.__name__ == cls.key.title().replace("_", "")
    assert all(field.description for field in cls.model_fields.values())


@each
def test_a_strategy_survives_json(cls):
    strategies = RecipeStrategies.model_validate({cls.key: cls.example})
    again = RecipeStrategies.model_validate_json(strategies.model_dump_json(exclude_none=True))
    assert again.get(cls.key) == strategies.get(cls.key) == cls.model_validate(cls.example)


@each
def test_conflicts_are_mutual_and_say_why(cls):
    by_key = {other.key: other for other in ALL}
    for other, reason in cls.conflicts.items():
        assert cls.key in by_key[other].conflicts
        assert reason


def fields_set_by(cls):
    """Settings that differ from the default after this strategy, whichever values its example holds."""
    settings = Recorder()
    cls.model_validate(cls.example).configure(settings)
    return settings.written


class Recorder(Settings):
    """Settings that know which of their fields were written."""

    def __init__(self):
        self.written = set()

    def __setattr__(self, name, value):
        if name != "written":
            self.written.add(name)
        object.__setattr__(self, name, value)


@pytest.mark.parametrize("pair", list(combinations(ALL, 2)), ids=lambda pair: f"{pair[0].key}+{pair[1].key}")
def test_two_strategies_that_set_the_same_field_exclude_each_other(pair):
    shared = fields_set_by(pair[0]) & fields_set_by(pair[1])
    assert not shared or pair[1].key in pair[0].conflicts, shared


def test_freezing_stands_before_checkpointing_which_looks_at_what_is_frozen():
    keys = [cls.key for cls in ALL]
    assert keys.index("freezing") < keys.index("gradient_checkpointing")
