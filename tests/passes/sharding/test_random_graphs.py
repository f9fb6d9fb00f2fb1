"""Random graphs, cut: every rule beside every other one, held against onnxruntime on the whole graph.

Each graph is a chain of operators that mixes cut and whole values; linear layers are where cuts begin.
In float64, sums in another order differ by about 1e-15; chains of normalisations make more of it, a wrong
element makes as much as the values are: about 1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.passes.sharding.executed import cut_model
from tests.passes.sharding.models import Writer

Step = Callable[[Writer, str, tuple[int, ...]], tuple[str, tuple[int, ...]]]


def _linear(writer: Writer, value: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    width = int(writer.random.choice([8, 16, 24, 12]))
    done = writer.linear(value, shape[-1], width, bias=bool(writer.random.integers(2)))
    return done, (*shape[:-1], width)


def _unary(writer: Writer, value: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    return writer.node(str(writer.random.choice(["Tanh", "Sigmoid", "Neg", "Abs"])), value), shape


def _scaled(writer: Writer, value: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    return writer.node("Mul", value, writer.weight(shape[-1])), shape


def _squared(writer: Writer, value: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    return writer.node("Tanh", writer.node("Mul", value, value)), shape


def _softmax(writer: Writer, value: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    return writer.node("Softmax", value, axis=int(writer.random.integers(len(shape)))), shape


def _mean(writer: Writer, value: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    axis = int(writer.random.integers(len(shape)))
    kind = str(writer.random.choice(["ReduceMean", "ReduceMax", "ReduceSum", "ReduceL2"]))
    mean = writer.node(kind, value, writer.integers(axis))
    return writer.node("Sub", value, writer.node("Tanh", mean)), shape


def _transposed(writer: Writer, value: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    order = [int(axis) for axis in writer.random.permutation(len(shape))]
    return writer.node("Transpose", value, perm=order), tuple(shape[axis] for axis in order)


def _halves(writer: Writer, value: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    axis = len(shape) - 1
    half = shape[axis] // 2
    first = writer.node("Split", value, writer.integers(half, half), axis=axis, outputs=2)
    return writer.node("Mul", first, writer.node("Tanh", f"{first}_1")), (*shape[:-1], half)


def _turned(writer: Writer, value: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    half, axes = shape[-1] // 2, writer.integers(-1)
    left = writer.node("Slice", value, writer.integers(0), writer.integers(half), axes)
    right = writer.node("Slice", value, writer.integers(half), writer.integers(2 * half), axes)
    size = 2 * half
    return writer.node("Concat", writer.node("Neg", right), left, axis=-1), (*shape[:-1], size)


def _reshaped(writer: Writer, value: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    if len(shape) > 3:
        after: tuple[int, ...] = (shape[0], shape[1], shape[2] * shape[3])
    elif shape[-1] % 4 == 0:
        after = (*shape[:2], 4, shape[-1] // 4)
    else:
        after = (shape[0] * shape[1], 1, shape[-1])
    return writer.node("Reshape", value, writer.integers(*after)), after


def _normed(writer: Writer, value: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    operands = (writer.weight(shape[-1]), writer.weight(shape[-1]))
    return writer.node("LayerNormalization", value, *operands, axis=-1), shape


def _chosen(writer: Writer, value: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    axis = int(writer.random.integers(len(shape)))
    places = [int(place) for place in writer.random.integers(0, shape[axis], 4)]
    after = (*shape[:axis], 4, *shape[axis + 1 :])
    return writer.node("Gather", value, writer.integers(*places), axis=axis), after


def _padded(writer: Writer, value: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    amounts = [0] * (2 * len(shape))
    amounts[1] = 1
    after = (shape[0], shape[1] + 1, *shape[2:])
    return writer.node("Pad", value, writer.integers(*amounts)), after


def _summed(writer: Writer, value: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    axes = list(range(len(shape)))
    axes[-1], axes[-2] = axes[-2], axes[-1]
    scores = writer.node("MatMul", value, writer.node("Transpose", value, perm=axes))
    return writer.node("MatMul", writer.node("Tanh", scores), value), shape


STEPS: tuple[Step, ...] = (
    _linear, _linear, _linear, _unary, _scaled, _squared, _softmax, _mean, _transposed, _halves, _turned,
    _reshaped, _reshaped, _normed, _chosen, _padded, _summed,
)  # fmt: skip


def random_model(seed: int) -> onnx.ModelProto:
    """Return a chain with side branches, of an input ``x`` of shape (4, 6, 8)."""
    writer = Writer(seed, np.float64)
    value, shape = "x", (4, 6, 8)
    kept: list[tuple[str, tuple[int, ...]]] = []
    for _ in range(12):
        step = STEPS[writer.random.integers(len(STEPS))]
        if shape[-1] % 2 or np.prod(shape) > 4000:
            step = _linear
        value, shape = step(writer, value, shape)
        same = [other for other, size in kept if size == shape]
        if same and writer.random.integers(2):
            value = writer.node("Add", value, same[-1])
        value = writer.node("Tanh", value)
        kept.append((value, shape))
    outputs = dict(kept[-1:]) | dict(kept[5:6])
    return writer.model(outputs, {"x": (onnx.TensorProto.DOUBLE, (4, 6, 8))})


@pytest.mark.parametrize("seed", range(16))
def test_cut_graph_computes_what_the_whole_one_does(seed: int) -> None:
    proto = random_model(seed)
    inputs = {"x": np.random.default_rng(seed).standard_normal((4, 6, 8))}
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(),
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["MatmulTransposeFusion"],  # before 1.26 it has no kernel for doubles
    )
    expected = session.run(None, inputs)
    for rdus, mode in ((2, "weight"), (4, "weight"), (2, "batch"), (4, "batch")):
        given = cut_model(proto, rdus, mode).run(inputs)
        for value, wanted in zip(given.values(), expected, strict=True):
            np.testing.assert_allclose(
                value, wanted, rtol=1e-9, atol=1e-9, err_msg=f"{rdus} {mode}"
            )
