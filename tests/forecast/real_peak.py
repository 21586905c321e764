"""The real peak of the same updates by torch's profiler: its memory events come from the allocator, not from us."""

from __future__ import annotations

from typing import Any

from torch.profiler import ProfilerActivity, profile


def real_peak(session: Any) -> int:
    """Bytes of tensors at the fullest moment of two worst updates and the largest evaluation micro-batches."""
    from launcher.evaluate import logits_of
    from launcher.train import train_update, worst_update

    model = session.accelerator.unwrap_model(session.model)
    tensors = [*model.parameters(), *model.buffers()]
    before = sum({t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in tensors}.values())
    session.set_train_mode()
    with profile(profile_memory=True, activities=[ProfilerActivity.CPU]) as recorded:
        for _ in range(2):
            train_update(session, worst_update(session))
        if session.validation is not None:
            examples, cutter = session.validation
            session.model.eval()
            for micro_batch in cutter.largest(len(examples)):
                logits_of(session, examples, cutter, micro_batch.examples)
    events = [event for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return before + peak


def forecast_peak(path: Any) -> int:
    from accelerate.state import AcceleratorState

    from launcher.check import check
    from launcher.devices import CPU
    from launcher.forecast.trace import trace

    AcceleratorState._reset_state(reset_partial_state=True)
    return trace(check(path), CPU).peak.size
