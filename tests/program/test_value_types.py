from __future__ import annotations

import onnx_ir as ir
import pytest

from samba_onnx.program.value_types import type_text

FLOAT = ir.TensorType(ir.DataType.FLOAT)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (FLOAT, "tensor(float)"),
        (ir.SparseTensorType(ir.DataType.DOUBLE), "sparse_tensor(double)"),
        (ir.SequenceType(FLOAT), "seq(tensor(float))"),
        (ir.OptionalType(ir.SequenceType(FLOAT)), "optional(seq(tensor(float)))"),
        (ir.TensorType(ir.DataType.UNDEFINED), ""),
        (None, ""),
    ],
)
def test_types_are_written_as_onnx_writes_them(kind: ir.TypeProtocol | None, text: str) -> None:
    assert type_text(ir.Value(name="x", type=kind)) == text


def test_an_initializer_without_a_type_has_that_of_its_content() -> None:
    value = ir.Value(name="w", const_value=ir.tensor([1, 2], dtype=ir.DataType.INT4))
    value.type = None
    assert type_text(value) == "tensor(int4)"
