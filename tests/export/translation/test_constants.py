"""Constants of a graph: which are one initializer, and what they are called."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from samba_onnx.export.translation.constants import ConstantPool
from samba_onnx.facts.names import FreeNames


def pool() -> tuple[ConstantPool, ir.Graph, FreeNames]:
    graph, names = ir.Graph([], [], nodes=[], name="net"), FreeNames()
    return ConstantPool(graph, names), graph, names


def test_equal_constants_are_one_initializer() -> None:
    constants, graph, _ = pool()
    one = constants.value([1.0, 2.0], ir.DataType.FLOAT)
    assert constants.value(np.array([1, 2]), ir.DataType.FLOAT) is one
    assert list(graph.initializers.values()) == [one]
    assert one.const_value is not None
    np.testing.assert_array_equal(one.const_value.numpy(), np.array([1, 2], np.float32))


def test_type_shape_and_the_sign_of_zero_tell_constants_apart() -> None:
    constants, graph, _ = pool()
    kinds = [
        constants.value(0.0, ir.DataType.FLOAT),
        constants.value(-0.0, ir.DataType.FLOAT),
        constants.value(0.0, ir.DataType.DOUBLE),
        constants.value([0.0], ir.DataType.FLOAT),
    ]
    assert len({id(value) for value in kinds}) == len(graph.initializers) == 4
    assert [value.shape for value in kinds[2:]] == [ir.Shape([]), ir.Shape([1])]


def test_names_are_taken_from_the_graphs_own() -> None:
    constants, _, names = pool()
    first = constants.value(1, ir.DataType.INT64)
    assert first.name in names
    assert constants.value(2, ir.DataType.INT64).name != first.name
