"""What an update reports, and what saving in between must leave alone."""

from __future__ import annotations

import pytest
import torch
from accelerate.optimizer import AcceleratedOptimizer

from launcher.export import save_model
from launcher.train import train_update


def overflowing_update(session):
    """One update under a gradient scaler whose scale is too large, as that of fp16's first updates often is."""
    accelerator = session.accelerator
    accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=3e38)
    accelerator.native_amp, accelerator.state._mixed_precision = True, "fp16"  # which it refuses on a CPU
    session.form.optimizer = AcceleratedOptimizer(session.optimizer.optimizer, scaler=accelerator.scaler)
    accelerator._optimizers = [session.optimizer]
    return train_update(session, session.cutter.cut(next(session.sampler.updates(0, 1))))


@pytest.mark.parametrize("optimizer", ["fused", "not fused"])
def test_an_update_that_the_scaler_leaves_out_is_called_skipped_and_the_schedule_waits(build, optimizer):
    session = build(strategies={} if optimizer == "fused" else {"adafactor": True})
    before = [parameter.detach().clone() for parameter in session.model.parameters()]
    rate = session.optimizer.param_groups[0]["lr"]
    result = overflowing_update(session)
    assert result.skipped
    assert session.optimizer.param_groups[0]["lr"] == rate
    assert all(torch.equal(new, old) for new, old in zip(session.model.parameters(), before, strict=True))


def test_saving_in_the_middle_of_a_run_leaves_mixed_precision_on(build, tmp_path):
    session = build(strategies={"mixed_precision": {"precision": "bf16"}})
    seen: list[torch.dtype] = []
    layer = session.accelerator.unwrap_model(session.model).classifier
    layer.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    update = session.cutter.cut(next(session.sampler.updates(0, 1)))
    train_update(session, update)
    save_model(session, tmp_path / "model", None, 1)
    train_update(session, update)
    assert set(seen) == {torch.bfloat16}


def test_an_optimizer_that_finds_its_own_rate_reports_none(build):
    session = build(strategies={"adafactor": {"preset": "own_rate"}})
    assert train_update(session, session.cutter.cut(next(session.sampler.updates(0, 1)))).learning_rate is None
