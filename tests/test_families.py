"""Promise 1 for encoders and decoders of many families: absolute, relative and rotary positions, shared layers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.families import FAMILIES, make_family
from tests.gradients import big_batch_gradient, relative_error, update_gradient

WHOLE_UPDATE = np.arange(24)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_the_update_is_exact(build, model_type, tmp_path):
    strategies = {"uniform_dynamic_padding": True, "gradient_accumulation": {"tokens": 96}}
    model = {"source": str(make_family(model_type, tmp_path / "model")), "config": {}}
    session = build(model=model, strategies=strategies)
    assert len(session.cutter.cut(WHOLE_UPDATE).micro_batches) > 3
    expected = big_batch_gradient(session, WHOLE_UPDATE)
    assert relative_error(update_gradient(session, WHOLE_UPDATE), expected) < 1e-5
