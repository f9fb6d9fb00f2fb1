"""Networks with random weights, in float16 and quantised by the tools that people quantise with."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH, HEADS, TOKENS, WORDS = 32, 4, 8, 50


class Net:
    """An ONNX graph while it is written, with weights of a seed."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []

    def weight(self, *shape: int, scale: float | None = None, name: str = "") -> str:
        deviation = shape[0] ** -0.5 if scale is None else scale
        return self.keep(self.generator.standard_normal(shape) * deviation, name)

    def keep(self, array: Any, name: str = "") -> str:
        name = name or f"c{len(self.tensors)}"
        array = np.asarray(array)
        if array.dtype.kind == "f":
            array = array.astype(np.float32)
        self.tensors.append(numpy_helper.from_array(array, name))
        return name

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], name=name, **attributes))
        return name

    def linear(self, value: str, into: int, out: int, *, bias: bool = True) -> str:
        number = len(self.tensors)
        product = self.op("MatMul", value, self.weight(into, out, name=f"layer{number}.weight"))
        if not bias:
            return product
        return self.op("Add", product, self.weight(out, scale=0.3, name=f"layer{number}.bias"))

    def heads(self, value: str) -> str:
        split = self.op("Reshape", value, self.keep(np.array([0, -1, HEADS, WIDTH // HEADS])))
        return self.op("Transpose", split, perm=[0, 2, 1, 3])

    def attention(self, query: str, key: str, value: str, mask: str) -> str:
        turned = self.op("Transpose", key, perm=[0, 1, 3, 2])
        scores = self.op("MatMul", query, turned)
        scores = self.op("Mul", scores, self.keep((WIDTH // HEADS) ** -0.5))
        weights = self.op("Softmax", self.op("Add", scores, mask), axis=-1)
        joined = self.op("Transpose", self.op("MatMul", weights, value), perm=[0, 2, 1, 3])
        return self.op("Reshape", joined, self.keep(np.array([0, -1, WIDTH])))

    def model(self, inputs: Mapping[str, tuple[int, list[int]]], output: str) -> onnx.ModelProto:
        graph = helper.make_graph(
            [*self.nodes, helper.make_node("Identity", [output], ["out"], name="last")],
            "net",
            [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()],
            [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
            self.tensors,
        )
        opsets = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        return onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)


def mlp(seed: int = 0) -> onnx.ModelProto:
    """Three linear layers."""
    net = Net(seed)
    hidden = net.op("Relu", net.linear("x", 24, 48))
    hidden = net.op("Tanh", net.linear(hidden, 48, 48))
    return net.model({"x": (TensorProto.FLOAT, [4, 24])}, net.linear(hidden, 48, 10))


def cnn(seed: int = 0) -> onnx.ModelProto:
    """Convolutions with a residual, pooling, and a classifier."""
    net = Net(seed)

    def conv(value: str, into: int, out: int, size: int) -> str:
        weight = net.weight(out, into, size, size, scale=(into * size * size) ** -0.5)
        pads = [size // 2] * 4
        return net.op("Conv", value, weight, net.weight(out, scale=0.2), pads=pads)

    first = net.op("Relu", conv("x", 3, 8, 3))
    pooled = net.op("MaxPool", first, kernel_shape=[2, 2], strides=[2, 2])
    added = net.op("Add", net.op("Relu", conv(pooled, 8, 8, 3)), conv(pooled, 8, 8, 1))
    mean = net.op("Flatten", net.op("GlobalAveragePool", net.op("Relu", added)), axis=1)
    return net.model({"x": (TensorProto.FLOAT, [2, 3, 12, 12])}, net.linear(mean, 8, 5))


def bert(seed: int = 0, layers: int = 2) -> onnx.ModelProto:
    """An encoder with a padding mask of the lowest float16, as exporters write it."""
    net = Net(seed)
    padding = net.op("Equal", "mask", net.keep(np.array(0)))
    mask = net.op("Where", padding, net.keep(-65504.0), net.keep(0.0))
    mask = net.op("Unsqueeze", mask, net.keep(np.array([1, 2])))
    hidden = net.op("Gather", net.weight(WORDS, WIDTH, scale=1.0), "ids")
    hidden = net.op("Add", hidden, net.weight(TOKENS, WIDTH, scale=0.5))
    for _ in range(layers):
        query, key, value = (net.heads(net.linear(hidden, WIDTH, WIDTH)) for _ in range(3))
        joined = net.linear(net.attention(query, key, value, mask), WIDTH, WIDTH)
        hidden = _normalised(net, net.op("Add", hidden, joined))
        inner = net.linear(hidden, WIDTH, 2 * WIDTH)
        erf = net.op("Erf", net.op("Div", inner, net.keep(2**0.5)))
        gelu = net.op("Mul", net.op("Mul", inner, net.op("Add", erf, net.keep(1.0))), net.keep(0.5))
        hidden = _normalised(net, net.op("Add", hidden, net.linear(gelu, 2 * WIDTH, WIDTH)))
    integers = (TensorProto.INT64, [2, TOKENS])
    return net.model({"ids": integers, "mask": integers}, hidden)


def _normalised(net: Net, value: str) -> str:
    scale = net.keep(1 + 0.1 * net.generator.standard_normal(WIDTH))
    return net.op("LayerNormalization", value, scale, net.weight(WIDTH, scale=0.1))


def llama(seed: int = 0, layers: int = 2) -> onnx.ModelProto:
    """A causal decoder: RMS normalisation and rotation written out, a gate, logits over words."""
    net = Net(seed)
    hidden = net.op("Gather", net.weight(WORDS, WIDTH, scale=1.0, name="embedding"), "ids")
    causal = net.keep(np.triu(np.full((1, 1, TOKENS, TOKENS), -np.inf), 1))
    size = WIDTH // HEADS
    angles = np.outer(np.arange(TOKENS), 100.0 ** -(np.arange(0, size, 2) / size))
    angles = np.concatenate([angles, angles], -1)
    cosines, sines = net.keep(np.cos(angles)), net.keep(np.sin(angles))

    def norm(value: str) -> str:
        square = net.op("Pow", value, net.keep(2.0))
        mean = net.op("ReduceMean", square, axes=[-1], keepdims=1)
        root = net.op("Sqrt", net.op("Add", mean, net.keep(1e-5)))
        scale = net.keep(1 + 0.1 * net.generator.standard_normal(WIDTH))
        return net.op("Mul", net.op("Div", value, root), scale)

    def rotated(value: str) -> str:
        ends = [net.keep(np.array([at])) for at in (0, size // 2, size)]
        left = net.op("Slice", value, ends[0], ends[1], net.keep(np.array([3])))
        right = net.op("Slice", value, ends[1], ends[2], net.keep(np.array([3])))
        turned = net.op("Concat", net.op("Neg", right), left, axis=-1)
        return net.op("Add", net.op("Mul", value, cosines), net.op("Mul", turned, sines))

    for _ in range(layers):
        entry = norm(hidden)
        query, key, value = (
            net.heads(net.linear(entry, WIDTH, WIDTH, bias=False)) for _ in range(3)
        )
        joined = net.attention(rotated(query), rotated(key), value, causal)
        hidden = net.op("Add", hidden, net.linear(joined, WIDTH, WIDTH, bias=False))
        entry = norm(hidden)
        gate = net.linear(entry, WIDTH, 2 * WIDTH, bias=False)
        gate = net.op("Mul", gate, net.op("Sigmoid", gate))
        inner = net.op("Mul", gate, net.linear(entry, WIDTH, 2 * WIDTH, bias=False))
        hidden = net.op("Add", hidden, net.linear(inner, 2 * WIDTH, WIDTH, bias=False))
    logits = net.op("MatMul", norm(hidden), net.op("Transpose", "embedding", perm=[1, 0]))
    return net.model({"ids": (TensorProto.INT64, [2, TOKENS])}, logits)


def in_float16(model: onnx.ModelProto, *, keep_io_types: bool = False) -> onnx.ModelProto:
    """Return a model in float16, by the tool that onnxruntime recommends."""
    from onnxconverter_common.float16 import convert_float_to_float16

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numbers beyond float16 become its own, which is asked for
        half: onnx.ModelProto = convert_float_to_float16(model, keep_io_types=keep_io_types)
    return half


def in_qdq(
    make: Callable[[int], onnx.ModelProto],
    seed: int = 0,
    *,
    per_channel: bool = True,
    operators: bool = False,
) -> onnx.ModelProto:
    """Return a model quantised statically, by onnxruntime's tool.

    Args:
        make: Makes it in float32.
        seed: Seed of its weights.
        per_channel: Whether weights have a scale per channel.
        operators: Whether it has operators on integers, as QLinearConv, in place of pairs.
    """
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]  # has no types
        def __init__(self) -> None:
            self.runs: Iterator[dict[str, Any]] = iter(
                [inputs_of(model, 100 + i) for i in range(4)]
            )

        def get_next(self) -> dict[str, Any] | None:
            return next(self.runs, None)

    model = make(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        onnx.save(model, path)
        form = QuantFormat.QOperator if operators else QuantFormat.QDQ
        target = Path(folder, "q.onnx")
        quantize_static(path, target, Reader(), quant_format=form, per_channel=per_channel)
        return onnx.load(Path(folder, "q.onnx"))


def in_dynamic(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose products are quantised by the ranges of their operands, when it runs."""
    from onnxruntime.quantization import quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        onnx.save(model, path)
        quantize_dynamic(path, Path(folder, "q.onnx"))
        return onnx.load(Path(folder, "q.onnx"))


def inputs_of(model: onnx.ModelProto, seed: int) -> dict[str, Any]:
    """Return inputs of a model that it takes."""
    generator = np.random.default_rng(seed)
    inputs: dict[str, Any] = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [dim.dim_value for dim in kind.shape.dim]
        if kind.elem_type == TensorProto.INT64:
            highest = 2 if value.name == "mask" else WORDS
            inputs[value.name] = generator.integers(0, highest, shape)
            if value.name == "mask":
                inputs[value.name][:, 0] = 1
        else:
            dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
            inputs[value.name] = generator.standard_normal(shape).astype(dtype)
    return inputs
