"""Models as older exporters wrote them, which nobody has installed any more.

What they share: operators of old sets, weights that are inputs as well, shapes computed in the
graph, layouts transposed to and fro, subgraphs with sequences.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.wild.subject import Subjects

WRITTEN = Subjects("old exporters")

Node = onnx.NodeProto
_FLOAT = TensorProto.FLOAT


class _Graph:
    """Nodes and weights of a graph while it is written."""

    def __init__(self, seed: int = 0) -> None:
        self.nodes: list[Node] = []
        self.weights: list[onnx.TensorProto] = []
        self._generator = np.random.default_rng(seed)

    def weight(self, name: str, *shape: int, scale: float = 0.4) -> str:
        """Enter normal numbers."""
        values = (self._generator.normal(size=shape) * scale).astype(np.float32)
        return self.constant(name, values)

    def positive(self, name: str, *shape: int) -> str:
        """Enter numbers around one, as variances are."""
        return self.constant(name, self._generator.uniform(0.5, 1.5, shape).astype(np.float32))

    def constant(self, name: str, values: np.ndarray | Sequence[int]) -> str:
        """Enter values; integers as int64."""
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def node(self, kind: str, inputs: Sequence[str], output: str, **attributes: object) -> str:
        """Enter a node with one output."""
        self.nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def model(
        self,
        inputs: Sequence[onnx.ValueInfoProto],
        outputs: Sequence[onnx.ValueInfoProto],
        *,
        opset: int,
        producer: str,
        ir: int = 8,
    ) -> onnx.ModelProto:
        """Return the model; weights are inputs, too, before IR version 4."""
        given = list(inputs)
        if ir < 4:
            given += [
                helper.make_tensor_value_info(one.name, one.data_type, list(one.dims))
                for one in self.weights
            ]
        graph = helper.make_graph(self.nodes, "graph", given, list(outputs), self.weights)
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", opset)],
            producer_name=producer,
            ir_version=ir,
        )


def _value(name: str, shape: Sequence[int | str] | None, kind: int = _FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _caffe2() -> onnx.ModelProto:
    """A classifier of operator set 7: norms with momentum, Dropout, a Reshape to a flat batch."""
    graph = _Graph()
    maps = "data"
    for layer, (before, after) in enumerate([(3, 8), (8, 16)]):
        name = f"conv{layer}"
        weight = graph.weight(f"{name}_w", after, before, 3, 3)
        maps = graph.node(
            "Conv", [maps, weight], name, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1]
        )
        norm = [
            graph.positive(f"{name}_s", after),
            graph.weight(f"{name}_b", after),
            graph.weight(f"{name}_m", after),
            graph.positive(f"{name}_v", after),
        ]
        maps = graph.node(
            "BatchNormalization", [maps, *norm], f"{name}_bn", epsilon=1e-5, momentum=0.9
        )
        maps = graph.node("Relu", [maps], f"{name}_relu")
        maps = graph.node(
            "MaxPool", [maps], f"{name}_pool", kernel_shape=[2, 2], strides=[2, 2], pads=[0] * 4
        )
    maps = graph.node("LRN", [maps], "lrn", size=5, alpha=1e-4, beta=0.75, bias=1.0)
    flat = graph.node("Reshape", [maps, graph.constant("shape", [-1, 16 * 16])], "flat")
    flat = graph.node("Dropout", [flat], "drop", ratio=0.5)
    head = [flat, graph.weight("fc_w", 10, 256, scale=0.1), graph.weight("fc_b", 10)]
    graph.node("Softmax", [graph.node("Gemm", head, "fc", transB=1)], "prob", axis=1)
    return graph.model(
        [_value("data", [1, 3, 16, 16])],
        [_value("prob", [1, 10])],
        opset=7,
        producer="onnx-caffe2",
        ir=3,
    )


def _keras() -> onnx.ModelProto:
    """A convolutional net of keras2onnx: channels last outside, transposed around every layer."""
    graph = _Graph(1)
    value = "input"
    for layer, (before, after) in enumerate([(3, 8), (8, 12)]):
        first = graph.node("Transpose", [value], f"to{layer}", perm=[0, 3, 1, 2])
        weights = [graph.weight(f"w{layer}", after, before, 3, 3), graph.weight(f"b{layer}", after)]
        maps = graph.node(
            "Conv", [first, *weights], f"conv{layer}", auto_pad="SAME_UPPER", strides=[2, 2]
        )
        last = graph.node("Transpose", [maps], f"from{layer}", perm=[0, 2, 3, 1])
        value = graph.node("Relu", [last], f"relu{layer}")
    pooled = graph.node("ReduceMean", [value], "pooled", axes=[1, 2], keepdims=0)
    product = graph.node("MatMul", [pooled, graph.weight("dense", 12, 5)], "product")
    total = graph.node("Add", [product, graph.weight("bias", 5)], "sum")
    graph.node("Softmax", [total], "output", axis=-1)
    return graph.model(
        [_value("input", ["N", 17, 17, 3])],
        [_value("output", ["N", 5])],
        opset=11,
        producer="keras2onnx",
        ir=6,
    )


def _tensorflow() -> onnx.ModelProto:
    """A block of tf2onnx: depthwise convolutions, Relu6 as Clip, a squeeze of shapes, padding."""
    graph = _Graph(2)
    maps = graph.node("Transpose", ["image:0"], "nchw", perm=[0, 3, 1, 2])
    pads = graph.constant("pads", np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64))
    maps = graph.node("Pad", [maps, pads], "padded")
    maps = graph.node("Conv", [maps, graph.weight("w0", 8, 3, 3, 3)], "c0", strides=[2, 2])
    low = graph.constant("low", np.array(0, np.float32))
    high = graph.constant("high", np.array(6, np.float32))
    maps = graph.node("Clip", [maps, low, high], "r0")
    maps = graph.node("Conv", [maps, graph.weight("w1", 8, 1, 3, 3)], "c1", group=8, pads=[1] * 4)
    maps = graph.node("Clip", [maps, low, high], "r1")
    pooled = graph.node("GlobalAveragePool", [maps], "pool")
    flat = graph.node("Squeeze", [pooled, graph.constant("axes", [2, 3])], "squeezed")
    shape = graph.node(
        "Cast", [graph.node("Shape", [flat], "shape64")], "shape", to=TensorProto.INT32
    )
    bounds = [graph.constant("zero", [0]), graph.constant("one", [1]), graph.constant("first", [0])]
    batch = graph.node("Slice", [shape, *bounds], "batch")
    rest = graph.constant("rest", np.array([2, 4], np.int32))
    target = graph.node("Concat", [batch, rest], "target32", axis=0)
    target = graph.node("Cast", [target], "target", to=TensorProto.INT64)
    heads = graph.node("Reshape", [flat, target], "heads")
    graph.node("LogSoftmax", [heads], "scores", axis=-1)
    return graph.model(
        [_value("image:0", ["unk__1", 16, 16, 3])],
        [_value("scores", ["unk__1", 2, 4])],
        opset=13,
        producer="tf2onnx",
        ir=7,
    )


def _old_torch() -> onnx.ModelProto:
    """Attention as torch 1.4 wrote it: every view through Shape, Gather, Unsqueeze and Concat."""
    graph = _Graph(3)

    def view(value: str, name: str, *tail: int) -> str:
        shape = graph.node("Shape", [value], f"{name}_shape")
        sizes = []
        for axis in range(2):
            index = graph.constant(f"{name}_{axis}", np.array(axis, np.int64))
            size = graph.node("Gather", [shape, index], f"{name}_size{axis}", axis=0)
            sizes.append(graph.node("Unsqueeze", [size], f"{name}_dim{axis}", axes=[0]))
        sizes += [graph.constant(f"{name}_tail{n}", [size]) for n, size in enumerate(tail)]
        target = graph.node("Concat", sizes, f"{name}_target", axis=0)
        return graph.node("Reshape", [value, target], name)

    parts = []
    for part in ("q", "k", "v"):
        product = graph.node("MatMul", ["states", graph.weight(f"{part}_w", 16, 16)], f"{part}_p")
        biased = graph.node("Add", [product, graph.weight(f"{part}_b", 16)], f"{part}_s")
        order = [0, 2, 3, 1] if part == "k" else [0, 2, 1, 3]
        parts.append(
            graph.node("Transpose", [view(biased, f"{part}_view", 4, 4)], part, perm=order)
        )
    scale = graph.constant("scale", np.array(2, np.float32))
    scores = graph.node("Div", [graph.node("MatMul", parts[:2], "scores"), scale], "scaled")
    weights = graph.node("Softmax", [scores], "attention", axis=3)
    context = graph.node("MatMul", [weights, parts[2]], "context")
    context = graph.node("Transpose", [context], "back", perm=[0, 2, 1, 3])
    merged = view(context, "merged", 16)
    mean = graph.node("ReduceMean", [merged], "mean", axes=[-1])
    centred = graph.node("Sub", [merged, mean], "centred")
    square = graph.node("Pow", [centred, graph.constant("two", np.array(2, np.float32))], "square")
    variance = graph.node("ReduceMean", [square], "variance", axes=[-1])
    small = graph.constant("small", np.array(1e-5, np.float32))
    deviation = graph.node("Sqrt", [graph.node("Add", [variance, small], "stable")], "deviation")
    graph.node("Div", [centred, deviation], "output")
    return graph.model(
        [_value("states", ["batch", "tokens", 16])],
        [_value("output", ["batch", "tokens", 16])],
        opset=9,
        producer="pytorch",
        ir=4,
    )


def _upsampled() -> onnx.ModelProto:
    """A pyramid as mxnet and torch 1.0 wrote it: Upsample by a constant, PRelu, Concat, Crop."""
    graph = _Graph(4)
    first = graph.node(
        "Conv", ["x", graph.weight("w", 6, 3, 3, 3)], "c", pads=[1] * 4, strides=[2, 2]
    )
    slope = graph.positive("slope", 6, 1, 1)
    first = graph.node("PRelu", [first, slope], "p")
    scales = graph.constant("scales", np.array([1, 1, 2, 2], np.float32))
    grown = graph.node("Upsample", [first, scales], "up", mode="nearest")
    both = graph.node("Concat", [grown, "x"], "both", axis=1)
    part = graph.node(
        "Slice", [both], "crop", axes=[2, 3], starts=[1, 1], ends=[-1, 9223372036854775807]
    )
    graph.node("Sigmoid", [part], "y")
    return graph.model(
        [_value("x", [1, 3, 12, 12])],
        [_value("y", [1, 9, 10, 11])],
        opset=9,
        producer="mxnet",
        ir=3,
    )


def _sequences() -> onnx.ModelProto:
    """Chunks of an input in a sequence, each through one layer, and together again."""
    graph = _Graph(5)
    chunks = graph.node(
        "SplitToSequence", ["x", graph.constant("size", np.array(2))], "chunks", axis=1
    )
    weight = graph.weight("w", 2, 4)
    results = []
    for place in range(3):
        index = graph.constant(f"i{place}", np.array(place))
        part = graph.node("SequenceAt", [chunks, index], f"part{place}")
        results.append(
            graph.node("Tanh", [graph.node("MatMul", [part, weight], f"m{place}")], f"t{place}")
        )
    joined = graph.node("SequenceConstruct", results, "results")
    graph.node("ConcatFromSequence", [joined], "y", axis=1, new_axis=0)
    return graph.model(
        [_value("x", ["batch", 6])],
        [_value("y", ["batch", 12])],
        opset=13,
        producer="pytorch",
        ir=7,
    )


def _loop() -> onnx.ModelProto:
    """A recurrent cell in a Loop whose states go into a sequence, as scripted modules come out."""
    graph = _Graph(6)
    weight = graph.weight("w", 4, 4)
    body = _Graph()
    row = body.node("Gather", ["x", "step"], "row", axis=1)
    product = body.node("MatMul", ["state", weight], "product")
    state = body.node("Tanh", [body.node("Add", [product, row], "sum")], "next")
    body.node("SequenceInsert", ["before", state], "after")
    body.node("Identity", ["go"], "go_on")
    inner = helper.make_graph(
        body.nodes,
        "body",
        [
            _value("step", [], TensorProto.INT64),
            _value("go", [], TensorProto.BOOL),
            _value("state", None),
            helper.make_tensor_sequence_value_info("before", _FLOAT, None),
        ],
        [
            _value("go_on", [], TensorProto.BOOL),
            _value("next", None),
            helper.make_tensor_sequence_value_info("after", _FLOAT, None),
        ],
    )
    graph.node("SequenceEmpty", [], "none")
    first = graph.node("ReduceMean", ["x"], "first", axes=[1], keepdims=0)
    times = graph.constant("times", np.array(5, np.int64))
    truth = graph.constant("true", np.array(True))
    graph.nodes.append(
        helper.make_node("Loop", [times, truth, first, "none"], ["last", "states"], body=inner)
    )
    graph.node("ConcatFromSequence", ["states"], "y", axis=1, new_axis=1)
    return graph.model(
        [_value("x", [2, 5, 4])],
        [_value("last", [2, 4]), _value("y", [2, 5, 4])],
        opset=13,
        producer="pytorch",
        ir=7,
    )


def _detector() -> onnx.ModelProto:
    """The end of a detector: scores and boxes, the best of them, and no box twice."""
    graph = _Graph(7)
    scores = graph.node("Conv", ["features", graph.weight("score", 2, 8, 1, 1)], "raw")
    scores = graph.node("Reshape", [scores, graph.constant("per", [1, 2, -1])], "flat")
    scores = graph.node("Sigmoid", [scores], "scores")
    boxes = graph.node("Conv", ["features", graph.weight("box", 4, 8, 1, 1)], "offsets")
    boxes = graph.node("Reshape", [boxes, graph.constant("four", [1, 4, -1])], "rows")
    boxes = graph.node("Transpose", [boxes], "corners", perm=[0, 2, 1])
    boxes = graph.node("Add", [boxes, graph.weight("anchors", 1, 16, 4, scale=2)], "boxes")
    limits = [
        graph.constant("most", np.array([5])),
        graph.constant("overlap", np.array([0.5], np.float32)),
        graph.constant("least", np.array([0.1], np.float32)),
    ]
    graph.node("NonMaxSuppression", [boxes, scores, *limits], "selected")
    return graph.model(
        [_value("features", [1, 8, 4, 4])],
        [_value("boxes", [1, 16, 4]), _value("selected", ["count", 3], TensorProto.INT64)],
        opset=11,
        producer="tf2onnx",
        ir=6,
    )


def _recurrent(kind: str) -> onnx.ModelProto:
    """A recurrent layer as CNTK wrote it: sequences of unknown length first, states in the graph."""
    graph = _Graph(8)
    gates = {"LSTM": 4, "RNN": 1}[kind]
    weights = [
        graph.weight("w", 1, gates * 5, 6),
        graph.weight("r", 1, gates * 5, 5),
        graph.weight("b", 1, 2 * gates * 5),
    ]
    states = graph.node(kind, ["x", *weights], "states", hidden_size=5)
    flat = graph.node("Squeeze", [states], "flat", axes=[1])
    product = graph.node("MatMul", [flat, graph.weight("head", 5, 3)], "product")
    graph.node("Add", [product, graph.weight("bias", 3)], "y")
    return graph.model(
        [_value("x", ["sequence", "batch", 6])],
        [_value("y", ["sequence", "batch", 3])],
        opset=9,
        producer="CNTK",
        ir=4,
    )


WRITTEN.add("caffe2-classifier-opset7", _caffe2)
WRITTEN.add("keras2onnx-channels last-opset11", _keras, dims={"N": 2})
WRITTEN.add("tf2onnx-depthwise-opset13", _tensorflow)
WRITTEN.add("torch 1.4-attention-opset9", _old_torch, dims={"batch": 2, "tokens": 5})
WRITTEN.add("mxnet-pyramid-opset9", _upsampled)
WRITTEN.add("torch 1.7-sequences-opset13", _sequences, dims={"batch": 3})
WRITTEN.add("torch 1.7-loop with a sequence-opset13", _loop)
WRITTEN.add("tf2onnx-detector-opset11", _detector)
WRITTEN.add(
    "cntk-lstm-opset9", functools.partial(_recurrent, "LSTM"), dims={"sequence": 4, "batch": 2}
)
WRITTEN.add(
    "cntk-rnn-opset9", functools.partial(_recurrent, "RNN"), dims={"sequence": 4, "batch": 2}
)
