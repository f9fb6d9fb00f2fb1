"""Architectures as ONNX, small: what sharding must recognise without looking at names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

WORDS, LENGTH = 48, 6


class Writer:
    """Writes a graph, node by node, with random weights."""

    def __init__(self, seed: int = 0, dtype: type[np.floating] = np.float32) -> None:
        self.dtype = dtype
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def weight(self, *shape: int) -> str:
        """Add a weight."""
        scale = 1 / np.sqrt(shape[0]) if shape else 1.0
        return self.constant((self.random.standard_normal(shape) * scale).astype(self.dtype))

    def constant(self, array: np.ndarray) -> str:
        """Add an initializer."""
        name = f"w{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def integers(self, *numbers: int) -> str:
        """Add a vector of int64."""
        return self.constant(np.array(numbers, np.int64))

    def node(self, op_type: str, *operands: str, outputs: int = 1, **attributes: object) -> str:
        """Add a node and return its first result; the others are called alike."""
        first = f"v{len(self.nodes)}"
        names = [first, *(f"{first}_{n}" for n in range(1, outputs))]
        self.nodes.append(helper.make_node(op_type, list(operands), names, **attributes))
        return first

    def linear(self, value: str, before: int, after: int, *, bias: bool = True) -> str:
        """Add a linear layer."""
        result = self.node("MatMul", value, self.weight(before, after))
        return self.node("Add", result, self.weight(after)) if bias else result

    def norm(self, value: str, width: int) -> str:
        """Add a normalisation by the root of the mean square."""
        square = self.node("Mul", value, value)
        mean = self.node("ReduceMean", square, self.integers(-1))
        root = self.node("Sqrt", self.node("Add", mean, self.constant(np.float32(1e-5))))
        return self.node("Mul", self.node("Div", value, root), self.weight(width))

    def heads(self, value: str, count: int, width: int) -> str:
        """Make heads of columns: (batch, heads, tokens, width)."""
        shaped = self.node("Reshape", value, self.integers(0, 0, count, width))
        return self.node("Transpose", shaped, perm=[0, 2, 1, 3])

    def attend(self, query: str, key: str, value: str, columns: int) -> str:
        """Add attention of heads."""
        turned = self.node("Transpose", key, perm=[0, 1, 3, 2])
        scores = self.node("MatMul", query, turned)
        mask = np.triu(np.full((1, 1, LENGTH, LENGTH), -1e4, np.float32), 1)
        masked = self.node("Add", scores, self.constant(mask))
        chances = self.node("Softmax", masked, axis=-1)
        mixed = self.node("MatMul", chances, value)
        rows = self.node("Transpose", mixed, perm=[0, 2, 1, 3])
        return self.node("Reshape", rows, self.integers(0, 0, columns))

    def repeat(self, value: str, batch: int, heads: int, times: int, width: int) -> str:
        """Repeat heads of keys or values for several heads of queries."""
        wide = self.node("Reshape", value, self.integers(batch, heads, 1, LENGTH, width))
        many = self.node("Expand", wide, self.integers(batch, heads, times, LENGTH, width))
        return self.node("Reshape", many, self.integers(batch, heads * times, LENGTH, width))

    def model(
        self, outputs: dict[str, Sequence[int]], inputs: dict[str, tuple[int, Sequence[int]]]
    ) -> onnx.ModelProto:
        """Return the model."""
        element = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        graph = helper.make_graph(
            self.nodes,
            "model",
            [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in inputs.items()],
            [helper.make_tensor_value_info(n, element, s) for n, s in outputs.items()],
            self.initializers,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def llama(batch: int, heads: int, kept: int, width: int = 4, layers: int = 2) -> onnx.ModelProto:
    """Return a decoder with grouped heads, a gate, and a language-model head of its own."""
    writer, columns = Writer(), heads * width
    value = writer.node("Gather", writer.weight(WORDS, columns), "x")
    for _ in range(layers):
        rows = writer.norm(value, columns)
        query = writer.heads(writer.linear(rows, columns, columns, bias=False), heads, width)
        pair = [
            writer.repeat(
                writer.heads(writer.linear(rows, columns, kept * width, bias=False), kept, width),
                batch, kept, heads // kept, width,
            )
            for _ in range(2)
        ]  # fmt: skip
        mixed = writer.attend(query, *pair, columns)
        value = writer.node("Add", value, writer.linear(mixed, columns, columns, bias=False))
        rows = writer.norm(value, columns)
        gate = writer.linear(rows, columns, 3 * columns, bias=False)
        up = writer.linear(rows, columns, 3 * columns, bias=False)
        gated = writer.node("Mul", writer.node("Sigmoid", gate), up)
        value = writer.node("Add", value, writer.linear(gated, 3 * columns, columns, bias=False))
    last = writer.linear(writer.norm(value, columns), columns, WORDS, bias=False)
    return writer.model(
        {last: (batch, LENGTH, WORDS)}, {"x": (onnx.TensorProto.INT64, (batch, LENGTH))}
    )


def gpt2(batch: int, heads: int, width: int = 4) -> onnx.ModelProto:
    """Return a decoder with one layer for queries, keys and values, biases, and tied embeddings."""
    writer, columns = Writer(1), heads * width
    table = writer.weight(WORDS, columns)
    words = writer.node("Gather", table, "x")
    places = writer.node("Gather", writer.weight(LENGTH, columns), writer.integers(*range(LENGTH)))
    value = writer.node("Add", words, places)
    rows = writer.node(
        "LayerNormalization", value, writer.weight(columns), writer.weight(columns), axis=-1
    )
    flat = writer.node("Reshape", rows, writer.integers(-1, columns))
    all_three = writer.node(
        "Gemm", flat, writer.weight(columns, 3 * columns), writer.weight(3 * columns)
    )
    wide = writer.node("Reshape", all_three, writer.integers(batch, LENGTH, 3 * columns))
    sizes = writer.integers(columns, columns, columns)
    first = writer.node("Split", wide, sizes, axis=2, outputs=3)
    pieces = (first, f"{first}_1", f"{first}_2")
    mixed = writer.attend(*(writer.heads(piece, heads, width) for piece in pieces), columns)
    flat = writer.node("Reshape", mixed, writer.integers(-1, columns))
    done = writer.node("Gemm", flat, writer.weight(columns, columns), writer.weight(columns))
    shaped = writer.node("Reshape", done, writer.integers(batch, LENGTH, columns))
    value = writer.node("Add", value, shaped)
    hidden = writer.node("Tanh", writer.linear(value, columns, 4 * columns))
    value = writer.node("Add", value, writer.linear(hidden, 4 * columns, columns))
    turned = writer.node("Transpose", table, perm=[1, 0])
    last = writer.node("MatMul", value, turned)
    return writer.model(
        {last: (batch, LENGTH, WORDS)}, {"x": (onnx.TensorProto.INT64, (batch, LENGTH))}
    )
