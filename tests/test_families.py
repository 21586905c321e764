"""Promise 1 for many families of encoders, decoders and both: all kinds of positions, shared layers, experts."""

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
    assert relative_error(update_gradient(session, WHOLE_UPDATE), expected) < 2e-5  # float32; the most is XLM's 1.1e-5


def test_a_table_that_the_family_keeps_fixed_is_not_trained(build, tmp_path):
    model = {"source": str(make_family("roformer", tmp_path / "model")), "config": {}}
    fixed = [name for name, p in build(model=model).model.named_parameters() if not p.requires_grad]
    assert fixed == ["roformer.encoder.embed_positions.weight"]
