"""What autograd does in place on real tensors is told apart from what it makes anew."""

from __future__ import annotations

from collections import Counter

import pytest
from accelerate.state import AcceleratorState
from torch.profiler import ProfilerActivity, profile

from launcher.check import check
from launcher.devices import CPU
from launcher.forecast.trace import trace
from launcher.forecast.tracker import SUM, SUM_IN_PLACE, Tracker
from launcher.train import train_update, worst_update
from tests.families import make_family


@pytest.mark.parametrize("model_type", ["bart", "deberta"])
def test_gradients_are_summed_in_place_exactly_where_they_are_for_real(
    build, recipe, model_type, tmp_path, monkeypatch
):
    """As many sums of either kind: by the profiler's operators, and by the tracker's."""
    sections = {"model": {"source": str(make_family(model_type, tmp_path / "model")), "config": {}}}
    real = real_sums(build(**sections))
    assert set(real) == {SUM, SUM_IN_PLACE}
    assert tracked_sums(recipe(**sections), monkeypatch) == real


def real_sums(session):
    session.set_train_mode()
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        for _ in range(2):
            train_update(session, worst_update(session))
    sums = Counter()
    collect_sums(recorded.profiler.kineto_results.experimental_event_tree(), "", sums)
    return sums


def collect_sums(events, parent, sums):
    """Sums that the engine calls by itself; those of a backward function stand one level deeper."""
    kinds = {"aten::add": SUM, "aten::add_": SUM_IN_PLACE}
    for event in events:
        if event.name in kinds and parent.startswith("autograd::engine"):
            sums[kinds[event.name]] += 1
        collect_sums(event.children, event.name, sums)


def tracked_sums(path, monkeypatch):
    trackers = []

    def remember(buffers_of):
        trackers.append(Tracker(buffers_of))
        return trackers[0]

    AcceleratorState._reset_state(reset_partial_state=True)
    monkeypatch.setattr("launcher.forecast.fake_run.Tracker", remember)
    trace(check(path), CPU)
    operators = [storage.operator for storage in trackers[0].storages]
    return Counter(operator for operator in operators if operator in (SUM, SUM_IN_PLACE))
