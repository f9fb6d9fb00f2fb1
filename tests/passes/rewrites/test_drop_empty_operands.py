from __future__ import annotations

import numpy as np
import pytest

from samba_onnx.passes.rewrites.drop_empty_operands import OLDEST, DropEmptyOperandsPass
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.rewriting import static_shape
from tests.passes.rewrites.applying import add_weights, check, numbers, parse

IMAGE = numbers(1, 2, 3, 3)
WEIGHTS = {
    "none": np.zeros(0, np.float32),
    "scales": np.array([1, 1, 2, 2], np.float32),
    "sizes": np.array([1, 2, 6, 6]),
}


def resized(operands: str, *, opset: int = 21, modified: bool = True) -> tuple[list[bool], object]:
    """Return which operands of the Resize are there after the pass, and the shape of its result."""
    model = parse(
        f"""g (float[1,2,3,3] x, float[0] none, float[4] scales, int64[4] sizes) => (float[a,b,c,d] y)
{{ r = Resize<mode = "linear">({operands})
   y = Abs(r) }}""",
        opset=opset,
    )
    add_weights(model, WEIGHTS)
    check(model, DropEmptyOperandsPass(), inputs=[IMAGE], modified=modified)
    InferShapesPass()(model)
    node = next(iter(model.graph))
    return [value is not None for value in node.inputs], static_shape(node.outputs[0])


def test_empty_scales_beside_sizes_go_and_the_shape_is_known() -> None:
    operands, shape = resized("x, none, none, sizes")
    assert operands == [True, False, False, True]
    assert shape == (1, 2, 6, 6)


def test_an_empty_region_goes() -> None:
    operands, shape = resized("x, none, scales")
    assert operands == [True, False, True]
    assert shape == (1, 2, 6, 6)


@pytest.mark.parametrize("operands", ["x,, scales", 'x, "", "", sizes'])
def test_a_resize_without_empty_operands_stays(operands: str) -> None:
    assert resized(operands, modified=False)[1] == (1, 2, 6, 6)


def test_an_old_one_keeps_what_its_version_asks_for() -> None:
    assert resized("x, none, none, sizes", opset=11, modified=False)[0] == [True] * 4


def test_the_oldest_version_that_may_leave_them_out_does() -> None:
    operands, _ = resized("x, none, none, sizes", opset=OLDEST)
    assert operands == [True, False, False, True]
