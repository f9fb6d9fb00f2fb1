"""Types that onnx defines and nothing computes with are refused by their values."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from samba_onnx.errors import InvalidModelError
from samba_onnx.passes.rewrites.refuse_types import KNOWN, RefuseTypesPass
from tests.passes.rewrites.applying import parse

UNKNOWN = [dtype for dtype in ir.DataType if int(dtype) not in KNOWN]


@pytest.mark.skipif(not UNKNOWN, reason="the installed onnx-ir has no such type")
@pytest.mark.parametrize("place", ["input", "inner", "branch"])
def test_values_of_other_types_are_refused(place: str) -> None:
    model = parse("""g (bool c, float[2] x) => (float[2] y) {
 z = Neg(x)
 y = If (c) <then_branch = t () => (float[2] a) { a = Abs(z) },
             else_branch = e () => (float[2] b) { b = Neg(z) }> }""")
    RefuseTypesPass()(model)
    values = {
        "input": model.graph.inputs[1],
        "inner": model.graph[0].outputs[0],
        "branch": next(iter(model.graph.subgraphs()))[0].outputs[0],
    }
    values[place].type = ir.TensorType(UNKNOWN[0])
    with pytest.raises(InvalidModelError, match=f"is of type {UNKNOWN[0].name}, which no engine"):
        RefuseTypesPass()(model)


def test_known_types_are_those_of_pefs_and_texts() -> None:
    model = parse("g (string[2] s, float4e2m1[2] f) => (string[2] t) { t = Identity(s) }")
    assert not RefuseTypesPass()(model).modified
