"""A stand-in for a processor without VNNI: onnxruntime whose products of uint8 and int8 saturate in 16 bits.

It is put in the place of ``onnxruntime.InferenceSession``, below everything of ours, and rewrites only what such
processors compute wrongly: two factors of uint8 are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from samba_onnx.runtime.engine.onnxruntime.saturation import products_saturate

_SESSION = ort.InferenceSession


class _Written:
    """Nodes that compute one product as ``vpmaddubsw`` does: pairs are added in 16 bits, which saturate."""

    def __init__(self, node: onnx.NodeProto) -> None:
        self._name = node.output[0]
        self.nodes: list[onnx.NodeProto] = []

    def op(self, op_type: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        name = output or f"{self._name}.saturated.{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], **attributes))
        return name

    def number(self, value: Any, dtype: Any) -> str:
        return self.op("Constant", value=numpy_helper.from_array(np.array(value, dtype)))

    def wide(self, name: str) -> str:
        return self.op("Cast", name, to=TensorProto.INT32)

    def product(self, left: str, right: str, zeros: tuple[str, str], result: str) -> None:
        """Write a product of matrices; the right one has an even number of rows."""
        left, right = self.wide(left), self.wide(right)
        axis = self.number([0], np.int64)
        first, second = self.op("Shape", right, end=1), self.op("Shape", right, start=1)
        pairs = self.op("Div", first, self.number([2], np.int64))
        two = self.number([2], np.int64)
        rows = self.op("Shape", left, end=-1)
        lefts = self.op("Reshape", left, self.op("Concat", rows, pairs, two, self.number([1], np.int64), axis=0))  # fmt: skip
        rights = self.op("Reshape", right, self.op("Concat", pairs, two, second, axis=0))
        terms = self.op("Mul", lefts, rights)
        sums = self.op("ReduceSum", terms, self.number([-2], np.int64), keepdims=0)
        low, high = self.number(-32768, np.int32), self.number(32767, np.int32)
        total = self.op("ReduceSum", self.op("Clip", sums, low, high), self.number([-2], np.int64), keepdims=0)  # fmt: skip
        # Zero points are taken off afterwards, by sums of rows and columns, which do not saturate.
        columns = self.op("ReduceSum", right, axis, keepdims=0)
        across = self.op("ReduceSum", left, self.number([-1], np.int64))
        zero, other = (self.wide(name) if name else self.number(0, np.int32) for name in zeros)
        total = self.op("Sub", total, self.op("Mul", zero, columns))
        total = self.op("Sub", total, self.op("Mul", across, other))
        count = self.op("Cast", self.op("Squeeze", first), to=TensorProto.INT32)
        both = self.op("Mul", self.op("Mul", zero, other), count)
        self.op("Add", total, both, output=result)


def saturated(model: onnx.ModelProto) -> tuple[onnx.ModelProto, int]:
    """Return a model whose MatMulInteger of uint8 and int8 saturate, and how many there are."""
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except Exception:
        graph = model.graph
    types = {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.value_info)}
    types |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    copy, nodes, count = onnx.ModelProto(), [], 0
    copy.CopyFrom(model)
    for node in model.graph.node:
        kinds = [types.get(name, 0) for name in node.input[:2]]
        if node.op_type == "MatMulInteger" and kinds == [TensorProto.UINT8, TensorProto.INT8]:
            written, places = _Written(node), [*node.input, "", ""]
            written.product(places[0], places[1], (places[2], places[3]), node.output[0])
            nodes += written.nodes
            count += 1
        else:
            nodes.append(node)
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy, count


@contextmanager
def without_vnni(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Let every session of onnxruntime in this process saturate; yields how many products did, by session."""
    counts: list[int] = []

    def session(source: bytes | str, *args: Any, **options: Any) -> ort.InferenceSession:
        content = source if isinstance(source, bytes) else Path(source).read_bytes()
        model, count = saturated(onnx.load_from_string(content))
        counts.append(count)
        return _SESSION(model.SerializeToString() if count else source, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(ort, "InferenceSession", session)
        products_saturate.cache_clear()
        try:
            yield counts
        finally:
            products_saturate.cache_clear()
