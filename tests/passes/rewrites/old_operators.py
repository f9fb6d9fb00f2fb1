"""Operators of old operator sets, as links of chains: each reads what the one before it computed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from samba_onnx.passes.rewrites.opset_adapters import ADAPTERS

INPUT_SHAPE = (2, 3, 4, 6)


@dataclass
class Chain:
    """A model that grows by one operator at a time."""

    opset: int
    random: np.random.Generator
    shape: tuple[int, ...] = INPUT_SHAPE
    """Shape of what the last operator computed."""
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    is_exact: bool = True
    """Whether no operator has rounded so far, so that a largest number is the largest however it is computed."""

    @property
    def last(self) -> str:
        """Name of what the last operator computed."""
        return str(self.nodes[-1].output[0]) if self.nodes else "x"

    def weight(self, array: np.ndarray) -> str:
        """Add an initializer and return its name."""
        self.weights.append(numpy_helper.from_array(array, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def add(
        self,
        op_type: str,
        *operands: str,
        shape: Sequence[int],
        rounds: bool = False,
        first: str | None = None,
        **attributes: Any,
    ) -> None:
        """Add a node that reads what the last one computed, and the operands behind it."""
        name = f"v{len(self.nodes)}"
        outputs = [name] if first is None else [first, name]
        node = helper.make_node(op_type, [self.last, *operands], outputs, **attributes)
        if first is not None:  # what is read on is the second output
            copy = helper.make_node("Identity", [name], [f"{name}_read"])
            self.nodes += [node, copy]
        else:
            self.nodes.append(node)
        self.shape, self.is_exact = tuple(shape), self.is_exact and not rounds

    def model(self) -> onnx.ModelProto:
        """Return the chain as a model of one input and one output."""
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes,
            "chain",
            [value("x", TensorProto.FLOAT, INPUT_SHAPE)],
            [value(self.last, TensorProto.FLOAT, [None] * len(self.shape))],
            self.weights,
        )
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _clip(chain: Chain) -> None:
    chain.add("Clip", shape=chain.shape, min=-0.5, max=0.75)


def _pad(chain: Chain) -> None:
    rank = len(chain.shape)
    pads = [int(n) for n in chain.random.integers(0, 2, 2 * rank)]
    shape = [size + pads[i] + pads[i + rank] for i, size in enumerate(chain.shape)]
    chain.add("Pad", shape=shape, pads=pads, value=0.25)


def _slice(chain: Chain) -> None:
    axis = _longest(chain)
    size = chain.shape[axis]
    chain.add("Slice", shape=_with(chain, axis, size - 1), axes=[axis], starts=[1], ends=[size + 3])


def _split(chain: Chain) -> None:
    axis = _longest(chain)
    if chain.opset >= 13 and chain.shape[axis] % 2:  # sizes are an operand there already
        shape = _with(chain, axis, 2)
        chain.add("Gather", chain.weight(np.arange(2)), shape=shape, axis=axis)
    size = chain.shape[axis]
    left = f"left{len(chain.nodes)}"
    if chain.opset >= 13 or (size % 2 == 0 and chain.random.integers(2)):
        chain.add("Split", first=left, shape=_with(chain, axis, size // 2), axis=axis)
    else:
        parts = [1, size - 1]
        chain.add("Split", first=left, shape=_with(chain, axis, size - 1), axis=axis, split=parts)


def _dropout(chain: Chain) -> None:
    chain.add("Dropout", shape=chain.shape, ratio=0.4)


def _flattened(op_type: str) -> Callable[[Chain], None]:
    def link(chain: Chain) -> None:
        axis = int(chain.random.integers(0, len(chain.shape)))
        rounds = op_type != "Hardmax"
        chain.add(op_type, shape=chain.shape, rounds=rounds, axis=axis)

    return link


def _reduced(op_type: str) -> Callable[[Chain], None]:
    def link(chain: Chain) -> None:
        axis, keep = _longest(chain), int(chain.random.integers(2))
        shape = _with(chain, axis, 1)
        shape = shape if keep else shape[:axis] + shape[axis + 1 :]
        chain.add(op_type, shape=shape, rounds=True, axes=[axis], keepdims=keep)

    return link


def _unsqueeze(chain: Chain) -> None:
    axis = int(chain.random.integers(0, len(chain.shape) + 1))
    chain.add("Unsqueeze", shape=(*chain.shape[:axis], 1, *chain.shape[axis:]), axes=[axis])


def _squeeze(chain: Chain) -> None:
    _unsqueeze(chain)
    axis = chain.nodes[-1].attribute[0].ints[0]
    chain.add("Squeeze", shape=chain.shape[:axis] + chain.shape[axis + 1 :], axes=[axis])


def _top_k(chain: Chain) -> None:
    axis = _longest(chain)
    name = f"v{len(chain.nodes)}"
    chain.nodes.append(
        helper.make_node("TopK", [chain.last], [name, f"{name}_places"], k=2, axis=axis)
    )
    chain.shape = _with(chain, axis, 2)


def _images(chain: Chain) -> None:
    """Give what follows four axes."""
    while len(chain.shape) < 4:
        _unsqueeze_last(chain)
    if len(chain.shape) > 4:
        head = int(np.prod(chain.shape[:-3]))
        shape = (head, *chain.shape[-3:])
        chain.add("Reshape", chain.weight(np.array(shape, np.int64)), shape=shape)


def _unsqueeze_last(chain: Chain) -> None:
    shape = (*chain.shape, 1)
    chain.add("Reshape", chain.weight(np.array(shape, np.int64)), shape=shape)


def _upsample(chain: Chain) -> None:
    _images(chain)
    scales = [1.0, 1.0, 2.0, float(chain.random.choice([1.0, 1.5, 2.0]))]
    mode = str(chain.random.choice(["nearest", "linear"]))
    if chain.opset < 9:
        chain.add("Upsample", shape=_scaled(chain, scales), rounds=True, mode=mode, scales=scales)
    else:
        operand = _scales(chain, scales)
        chain.add("Upsample", operand, shape=_scaled(chain, scales), rounds=True, mode=mode)


def _resize(chain: Chain) -> None:
    _images(chain)
    scales = [1.0, 1.0, *(float(n) for n in chain.random.choice([0.5, 1.0, 2.0], 2))]
    mode = str(chain.random.choice(["nearest", "linear"]))
    scales = [1.0, 1.0, *(max(f, 1.0) if s < 2 else f for f, s in zip(scales[2:], chain.shape[2:], strict=True))]  # fmt: skip
    operands = [_scales(chain, scales)]
    if chain.opset > 10:
        operands.insert(0, chain.weight(np.zeros(0, np.float32)))
    chain.add("Resize", *operands, shape=_scaled(chain, scales), rounds=True, mode=mode)


def _scales(chain: Chain, scales: Sequence[float]) -> str:
    """Return a constant, or what a node computes of one, which the conversion does not know."""
    name = chain.weight(np.array(scales, np.float32))
    if chain.random.integers(2):
        return name
    # A node of its own, ahead of all: what the chain computes stays the last.
    chain.nodes.insert(0, helper.make_node("Neg", [name], [f"{name}_negative"]))
    chain.nodes.insert(1, helper.make_node("Neg", [f"{name}_negative"], [f"{name}_computed"]))
    if len(chain.nodes) == 2:
        chain.nodes.append(helper.make_node("Identity", ["x"], ["begin"]))
    return f"{name}_computed"


def _scatter(chain: Chain) -> None:
    shape = (1,) * len(chain.shape)
    places = chain.weight(np.zeros(shape, np.int64))
    chain.add("Scatter", places, chain.weight(np.full(shape, 0.5, np.float32)), shape=chain.shape)


def _batch_normalization(chain: Chain) -> None:
    if len(chain.shape) < 2:
        _unsqueeze(chain)
    each = chain.opset < 9 and bool(chain.random.integers(2))
    shape = chain.shape[1:] if each else chain.shape[1:2]
    parts = [np.abs(chain.random.standard_normal(shape)).astype(np.float32) + 1 for _ in range(4)]
    attributes = {"spatial": 0} if each else {}
    names = [chain.weight(part) for part in parts]
    chain.add("BatchNormalization", *names, shape=chain.shape, rounds=True, **attributes)


def _roi_align(chain: Chain) -> None:
    _images(chain)
    rois = chain.weight(np.array([[0, 0, 2, 2]], np.float32))
    batch = chain.weight(np.zeros(1, np.int64))
    shape = (1, chain.shape[1], 2, 2)
    sizes = {"output_height": 2, "output_width": 2}
    chain.add("RoiAlign", rois, batch, shape=shape, rounds=True, **sizes)


def _grid_sample(chain: Chain) -> None:
    _images(chain)
    grid = np.tanh(chain.random.standard_normal((chain.shape[0], 2, 3, 2))).astype(np.float32)
    mode = str(chain.random.choice(["bilinear", "bicubic"]))
    shape = (*chain.shape[:2], 2, 3)
    chain.add("GridSample", chain.weight(grid), shape=shape, rounds=True, mode=mode)


def _dft(chain: Chain) -> None:
    while len(chain.shape) < 2:
        _unsqueeze_last(chain)
    if chain.shape[-1] != 1:
        _unsqueeze_last(chain)
    chain.add("DFT", shape=(*chain.shape[:-1], 2), rounds=True, axis=len(chain.shape) - 2)


def _group_normalization(chain: Chain) -> None:
    while len(chain.shape) < 3:
        _unsqueeze_last(chain)
    groups = next(n for n in (3, 2, 1) if chain.shape[1] % n == 0)
    parts = [chain.random.standard_normal(groups).astype(np.float32) for _ in range(2)]
    names = [chain.weight(part) for part in parts]
    chain.add("GroupNormalization", *names, shape=chain.shape, rounds=True, num_groups=groups)


def _longest(chain: Chain) -> int:
    if not chain.shape or max(chain.shape) < 2:
        shape = (2, *chain.shape)
        chain.add("Expand", chain.weight(np.array(shape, np.int64)), shape=shape)
    return int(np.argmax(chain.shape))


def _with(chain: Chain, axis: int, size: int) -> tuple[int, ...]:
    return (*chain.shape[:axis], size, *chain.shape[axis + 1 :])


def _scaled(chain: Chain, scales: Sequence[float]) -> tuple[int, ...]:
    return tuple(int(size * scale) for size, scale in zip(chain.shape, scales, strict=True))


REDUCTIONS = tuple(name for name in ADAPTERS if name.startswith("Reduce"))

LINKS: dict[str, tuple[int, Callable[[Chain], None]]] = {
    "BatchNormalization": (7, _batch_normalization),
    "Clip": (7, _clip),
    "DFT": (17, _dft),
    "Dropout": (7, _dropout),
    "GridSample": (16, _grid_sample),
    "GroupNormalization": (18, _group_normalization),
    **{name: (7, _flattened(name)) for name in ("Hardmax", "LogSoftmax", "Softmax")},
    "Pad": (7, _pad),
    **{name: (7, _reduced(name)) for name in REDUCTIONS},
    "Resize": (10, _resize),
    "RoiAlign": (10, _roi_align),
    "Scatter": (9, _scatter),
    "Slice": (7, _slice),
    "Split": (7, _split),
    "Squeeze": (7, _squeeze),
    "TopK": (7, _top_k),
    "Unsqueeze": (7, _unsqueeze),
    "Upsample": (7, _upsample),
}
"""By operator the first version that this table writes, and what adds it. Scan, whose adapter only refuses,
is no link."""


def links_at(opset: int) -> list[str]:
    """Return the operators that an adapter rewrites from a version of the operator set."""
    return [name for name, (first, _) in LINKS.items() if first <= opset < ADAPTERS[name].until]


def chain_of(names: Sequence[str], opset: int, seed: int) -> Chain | None:
    """Return a chain of operators.

    Args:
        names: The operators in their order.
        opset: The operator set of the model.
        seed: Of attributes and weights.

    Returns:
        The chain; None where a Hardmax, which jumps, would read rounded numbers, or where logarithms would
        read negative ones.
    """
    chain = Chain(opset, np.random.default_rng(seed))
    for name in names:
        if name == "Hardmax" and not chain.is_exact:
            return None
        LINKS[name][1](chain)
    return chain


def pairs(opset: int) -> Iterator[tuple[str, str]]:
    """Yield all ordered pairs of operators that an adapter rewrites."""
    yield from itertools.product(links_at(opset), repeat=2)
