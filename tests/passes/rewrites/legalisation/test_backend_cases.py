"""Rules are held to ONNX's own cases, with every operand but the first as a constant, and some without."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.convert_opset import ConvertOpsetPass
from samba_onnx.passes.rewrites.fix_names import FixNamesPass
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.legalisation.legalise import LegalisePass
from samba_onnx.passes.rewrites.lift_constants import LiftConstantsPass
from samba_onnx.passes.targets import Target
from tests.backend_cases import BackendCase, node_cases
from tests.passes.rewrites.applying import run
from tests.passes.rewrites.legalisation.legalising import TARGET, UNROLLING, Everything

# In these two the size of the result is no whole number: ONNX's own implementation aligns the corners of a fraction
# of an element, onnxruntime and the rule those of whole ones.
FRACTIONS = {
    "test_resize_downsample_scales_linear_align_corners",
    "test_resize_downsample_scales_cubic_align_corners",
}

WRITTEN = {
    "cumsum": 1,
    "gridsample": 12,
    "gru": 3,
    "lstm": 3,
    "pad": 3,
    "resize": 36,
    "rnn": 3,
    "scan": 1,
    "scatterelements": 2,
    "scatternd": 2,
    "topk": 4,
}
"""How many cases of a module a rule writes at least."""


def written(case: BackendCase, target: Target, *, computed: bool = False) -> bool:
    """Return whether rules write a case; its results must then be those that it states.

    Args:
        case: One of ONNX's.
        target: Whether it repeats bodies decides about recurrent layers.
        computed: Whether all operands are inputs, not only the first.
    """
    inputs, expected = case.data_sets()[0]
    model = onnx.ModelProto()
    model.CopyFrom(case.runnable())
    fed: list[Any] = inputs[:1]
    for value, array in list(zip(model.graph.input, inputs, strict=False))[1:]:
        if isinstance(array, np.ndarray) and not computed:
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
            model.graph.input.remove(value)
        else:
            fed.append(array)
    copy = ir.from_proto(model)
    passes = (LiftConstantsPass(), InferShapesPass(), ConvertOpsetPass(), InferShapesPass())
    for rewrite in passes:
        rewrite(copy)
    if not LegalisePass(Everything(target))(copy).modified:
        return False
    FixNamesPass()(copy)
    for old, new in zip(expected, run(copy, fed), strict=True):
        assert (old.dtype, old.shape) == (new.dtype, new.shape)
        np.testing.assert_allclose(new, old, rtol=case.rtol, atol=case.atol, err_msg=case.name)
    return True


@pytest.mark.parametrize("module", sorted(WRITTEN))
def test_cases_of_onnx(module: str) -> None:
    cases = [case for case in node_cases([module]) if case.name not in FRACTIONS]
    assert sum(written(case, UNROLLING) for case in cases) >= WRITTEN[module]


@pytest.mark.parametrize("module", ["gru", "lstm", "rnn"])
def test_recurrent_cases_of_onnx_with_repeated_bodies(module: str) -> None:
    assert sum(written(case, TARGET) for case in node_cases([module])) >= WRITTEN[module]


def test_cases_of_onnx_with_computed_grids() -> None:
    cases = node_cases(["gridsample"])
    assert sum(written(case, TARGET, computed=True) for case in cases) >= WRITTEN["gridsample"]
