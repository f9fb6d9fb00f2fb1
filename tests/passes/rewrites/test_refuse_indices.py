from __future__ import annotations

import onnx
import pytest
from onnx import parser

import samba_onnx
from samba_onnx.errors import InvalidModelError
from samba_onnx.passes.rewrites.refuse_indices import RefuseIndicesPass
from tests.passes.rewrites.applying import parse

POSITIONS = """
    <ir_version: 10, opset_import: ["" : 21]>
    net (float[batch, seq, 4] x) => (float[batch, seq, 4] y) <float[16, 4] table, int64 zero = {0}, int64 one = {1}>
    {
      sizes = Shape <start = 1, end = 2> (x)
      length = Squeeze (sizes)
      places = Range (zero, length, one)
      rows = Gather (table, places)
      y = Add (x, rows)
    }
"""


def positions() -> onnx.ModelProto:
    model = parser.parse_model(POSITIONS)
    model.graph.initializer.append(onnx.helper.make_tensor("table", 1, (16, 4), [0.5] * 64))
    return model


def test_a_sequence_that_is_longer_than_the_table_of_positions_is_refused() -> None:
    assert samba_onnx.analyze(positions(), dims={"seq": 16}).sections
    with pytest.raises(InvalidModelError, match="index 16 is outside of an axis of 16") as caught:
        samba_onnx.analyze(positions(), dims={"seq": 17})
    assert "(Gather)" in str(caught.value)
    # 70,000 positions are no small constant.
    with pytest.raises(InvalidModelError, match="index 69999 is outside of an axis of 16"):
        samba_onnx.analyze(positions(), dims={"seq": 70_000})


@pytest.mark.parametrize(
    ("index", "axis", "refused"),
    [
        (2, 0, False),
        (3, 0, True),
        (-3, 0, False),
        (-4, 0, True),
        (1, 1, False),
        (2, -1, True),
        (3, -2, True),
    ],
)
def test_indices_count_from_either_end(index: int, axis: int, refused: bool) -> None:
    model = parse(
        f"g (float[3,2] x) => (y) <int64[1] i = {{{index}}}> {{ y = Gather<axis={axis}>(x, i) }}"
    )
    if not refused:
        assert not RefuseIndicesPass().call(model).modified
        return
    with pytest.raises(InvalidModelError, match=f"index {index} is outside of an axis") as caught:
        RefuseIndicesPass().call(model)
    assert "x tensor(float)[3, 2], i tensor(int64)[1]:" in str(caught.value)


def test_rows_are_looked_up_where_no_axis_is_stated_and_a_wrong_axis_is_left_to_others() -> None:
    text = "g (float[3,2] x) => (y) <int64[1] i = {2}> { y = Gather AXIS(x, i) }"
    for axis in ("", "<axis=2>", "<axis=-3>"):
        assert not RefuseIndicesPass().call(parse(text.replace("AXIS", axis))).modified
