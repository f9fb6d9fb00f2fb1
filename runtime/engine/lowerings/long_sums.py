"""Sums of many numbers in two stages.

onnxruntime adds a long row number by number: 200,000 equal numbers are off by 1.1e-4 of their sum, a million
random ones by 2e-5, where torch, which adds blocks first, is off by 1e-7. Short blocks are added in the type of
the numbers, and the sums of the blocks in float64, of which there are few. It is faster, too: 0.6 to 0.9 times
as long for rows of 64 thousand to 4 million numbers, 0.2 to 0.6 for columns, which onnxruntime walks through
side by side (AMD EPYC, 2 cores); what is added for a row of a thousand takes 1 microsecond.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import onnx

from samba_onnx.runtime.engine.lowerings.graph_view import GraphView, rewrite_nodes
from samba_onnx.runtime.engine.lowerings.nodes import Nodes, Shape, default_version

_T: Final = onnx.TensorProto
_FLOATS: Final = frozenset({_T.FLOAT, _T.FLOAT16})
"""float64 needs no second stage, and whole numbers are added without an error."""

# onnxruntime adds a row with eight sums side by side, columns with one: a block of 256 or 64 numbers that are
# equal is off by two units of the last place at most.
_LONG_ROW: Final = 512
_ROW_BLOCKS: Final = (16, 256)
_SHORT_ROW: Final = 1024
_LONG_COLUMN: Final = 128
_COLUMN_BLOCKS: Final = (16, 64)
_NARROW: Final = 16
"""Columns side by side that are fewer than this are added as one wide row after the other."""
_SMALLER: Final = 16
"""The last stage is in float64 once numbers are this many times fewer than at first ..."""
_FEW_BLOCKS: Final = 64
"""... unless no more than this many are added there, which saves two casts."""


@dataclass(frozen=True)
class StagedSum:
    """How an operator that adds is written in stages."""

    stage: str
    """Operator of each stage."""
    first: str = ""
    """What is computed of each number."""
    last: str = ""
    """What is computed of the whole sum."""


REDUCTIONS: Final[Mapping[str, StagedSum]] = MappingProxyType(
    {
        "ReduceSum": StagedSum("ReduceSum"),
        # The mean of means of blocks that are equally long.
        "ReduceMean": StagedSum("ReduceMean"),
        "GlobalAveragePool": StagedSum("ReduceMean"),
        # Written out, as onnxruntime has a fast kernel for sums of blocks and none for these: of a million
        # numbers 0.8 times as long as blocks of their squares, and 2.2 times as long as one long sum.
        "ReduceL1": StagedSum("ReduceSum", first="Abs"),
        "ReduceL2": StagedSum("ReduceSum", first="Mul", last="Sqrt"),
        "ReduceSumSquare": StagedSum("ReduceSum", first="Mul"),
        "ReduceLogSum": StagedSum("ReduceSum", last="Log"),
        "ReduceLogSumExp": StagedSum("ReduceLogSumExp"),
    }
)
RUNNING: Final = "CumSum"
"""The operator whose every partial sum is a result: it is computed in float64, as torch does."""
_AXES_AS_INPUT: Final = 18
"""First operator set in which all of them take axes as an operand; ReduceSum does from 13 on."""
_SUM_AXES_AS_INPUT: Final = 13


def add_in_stages(model: onnx.ModelProto) -> dict[str, str]:
    """Write long sums in stages.

    1. It is a node of the default domain in the table, or a CumSum, in the main graph or in a subgraph, on
       numbers of float32 or float16.
    2. Shape and type of its operand are declared, and the axes are constants.
    3. Many numbers are added for one result.

    Args:
        model: Is changed in place.

    Returns:
        Why nodes of the table's operators stay what they are, by the name of their result.
    """
    version = default_version(model)
    return rewrite_nodes(
        model.graph, {*REDUCTIONS, RUNNING}, lambda node, view: _staged(node, view, version)
    )


def _staged(node: onnx.NodeProto, view: GraphView, version: int) -> Nodes | str:
    """Return the nodes that take the place of one; a reason if it shall stay."""
    shape, dtype = view.shapes.get(node.input[0]), view.types.get(node.input[0], 0)
    # Case 2.
    if shape is None or not dtype:
        return "shape or type of its operand are not declared"
    # Case 1.
    if dtype not in _FLOATS:
        return "its numbers are neither float32 nor float16"
    if node.op_type == RUNNING:
        return _running(node, shape, dtype)
    axes = _axes(node, view, len(shape), version)
    if axes is None:
        return "its axes are computed"
    # Case 3.
    groups = _groups(shape, axes)
    if not math.prod(shape) or not _is_long(groups):
        return "it adds few numbers"
    kept = [
        1 if axis in axes else size
        for axis, size in enumerate(shape)
        if axis not in axes or _keeps(node)
    ]
    return _Stages(node, version, groups, dtype).nodes(tuple(kept))


def _running(node: onnx.NodeProto, shape: Shape, dtype: int) -> Nodes | str:
    """Return a running sum in float64; a reason if no axis is long."""
    if max(shape, default=0) <= _LONG_COLUMN:
        return "it adds few numbers"
    build = Nodes(node.output[0])
    wide = build.make("Cast", [node.input[0]], to=_T.DOUBLE)
    attributes = {item.name: item.i for item in node.attribute}
    total = build.make(RUNNING, [wide, node.input[1]], **attributes)
    build.make("Cast", [total], result=node.output[0], to=dtype)
    return build


def _attribute(node: onnx.NodeProto, name: str) -> onnx.AttributeProto | None:
    return next((item for item in node.attribute if item.name == name), None)


def _keeps(node: onnx.NodeProto) -> bool:
    """Return whether axes that were added up stay, with one element."""
    keeps = _attribute(node, "keepdims")
    return keeps is None or bool(keeps.i)


def _axes(node: onnx.NodeProto, view: GraphView, rank: int, version: int) -> frozenset[int] | None:
    """Return the axes along which a node adds; None where they are computed."""
    if node.op_type == "GlobalAveragePool":
        return frozenset(range(2, rank))
    stated = _attribute(node, "axes")
    numbers: Sequence[int] = () if stated is None else stated.ints
    if len(node.input) > 1 and node.input[1]:
        constant = view.integers(node.input[1])
        if constant is None:
            return None
        numbers = constant
    nothing = _attribute(node, "noop_with_empty_axes")
    if not numbers and nothing is not None and nothing.i:
        return frozenset()
    return frozenset(axis % rank for axis in numbers) or frozenset(range(rank))


@dataclass(frozen=True)
class _Group:
    """Neighbouring axes that are all added up, or all kept."""

    size: int
    added: bool


def _groups(shape: Shape, axes: frozenset[int]) -> list[_Group]:
    """Return a shape as groups of which no two neighbours are alike; axes of one element are in none."""
    return _merged([_Group(size, axis in axes) for axis, size in enumerate(shape) if size != 1])


def _merged(groups: Sequence[_Group]) -> list[_Group]:
    merged: list[_Group] = []
    for group in groups:
        if merged and merged[-1].added == group.added:
            merged[-1] = _Group(merged[-1].size * group.size, group.added)
        else:
            merged.append(group)
    return merged


def _is_long(groups: Sequence[_Group]) -> bool:
    """Return whether more numbers are added for a result than onnxruntime does well."""
    if not groups:
        return False
    count = math.prod(group.size for group in groups if group.added)
    return count > (_LONG_ROW if groups[-1].added else _LONG_COLUMN)


@dataclass(frozen=True)
class _Step:
    """One stage: the blocks of one group are added."""

    before: int
    """Elements of the groups in front of it."""
    size: int
    """How many numbers the group has."""
    behind: int
    """Elements of the groups behind it."""
    block: int
    """How many numbers are added at once."""
    after: tuple[_Group, ...]
    """All groups, once that is done."""

    @property
    def rest(self) -> int:
        """How many numbers the last block has, if that is shorter than the others."""
        return self.size % self.block

    @property
    def count(self) -> int:
        """How many blocks there are."""
        return -(-self.size // self.block)


def _steps(groups: Sequence[_Group]) -> list[_Step]:
    """Return the stages before the last, from the innermost group outwards: until few numbers are left."""
    before = math.prod(group.size for group in groups)
    left, steps = list(groups), []
    while _is_long(left) and math.prod(group.size for group in left) * _SMALLER > before:
        at = max(index for index, group in enumerate(left) if group.added)
        size = left[at].size
        block = _block(size, row=at == len(left) - 1)
        count = -(-size // block)
        after = _merged(
            [*left[:at], *([_Group(count, True)] if count > 1 else []), *left[at + 1 :]]
        )
        outer, inner = (math.prod(g.size for g in part) for part in (left[:at], left[at + 1 :]))
        steps.append(_Step(outer, size, inner, block, tuple(after)))
        left = after
    return steps


def _leaves_remainders(groups: Sequence[_Group]) -> bool:
    return any(step.rest for step in _steps(groups))


def _block(size: int, *, row: bool) -> int:
    """Return how many numbers of a group are added at once: all, a divisor, or else as many as may be."""
    least, most = _ROW_BLOCKS if row else _COLUMN_BLOCKS
    if size <= most:
        return size
    good = next((n for n in range(most, most // 4, -1) if size % n == 0), 0)
    # Short blocks take longer than a row that is not very long, which is off by seven units at most.
    if good or size <= (_SHORT_ROW if row else _LONG_COLUMN):
        return good or size
    return next((n for n in range(most, least - 1, -1) if size % n == 0), most)


class _Stages:
    """Writes one long sum."""

    def __init__(
        self, node: onnx.NodeProto, version: int, groups: Sequence[_Group], dtype: int
    ) -> None:
        self._node = node
        self._build = Nodes(node.output[0])
        self._version = version
        self._dtype = dtype
        self._groups = list(groups)
        self._value = node.input[0]
        self._shape: Shape = (-1,)
        """The shape of the value, once it was reshaped here."""
        count = math.prod(group.size for group in groups if group.added)
        self._reduction, self._divisor = REDUCTIONS[node.op_type], 1
        if self._reduction.stage == "ReduceMean" and _leaves_remainders(groups):
            # Blocks of different length have no mean of their means.
            self._reduction, self._divisor = REDUCTIONS["ReduceSum"], count

    def nodes(self, shape: Shape) -> Nodes:
        """Return all nodes.

        Args:
            shape: Sizes of the result.
        """
        if self._dtype != _T.FLOAT:
            self._cast(_T.FLOAT)
        if self._reduction.first:
            operands = [self._value] * (2 if self._reduction.first == "Mul" else 1)
            self._value = self._build.make(self._reduction.first, operands)
        for step in _steps(self._groups):
            self._add_blocks(step)
        self._finish()
        if self._dtype != _T.FLOAT:
            self._cast(self._dtype)
        self._reshape(shape)
        last = self._build.nodes[-1]
        last.output[0] = last.name = self._node.output[0]
        return self._build

    def _add_blocks(self, step: _Step) -> None:
        """Add the blocks of one group; afterwards that group has a number per block."""
        whole = step.size - step.rest
        if not step.rest:
            self._add((step.before, whole // step.block, step.block, step.behind))
        else:
            plane = (step.before, step.size, step.behind)
            self._reshape(plane)
            parts = self._build.split(self._value, [whole, step.rest], 1)
            sums = []
            for part, size, block in zip(
                parts, (whole, step.rest), (step.block, step.rest), strict=True
            ):
                self._value, self._shape = part, (step.before, size, step.behind)
                self._add((step.before, size // block, block, step.behind))
                self._reshape((step.before, size // block, step.behind))
                sums.append(self._value)
            self._value = self._build.make("Concat", sums, axis=1)
            self._shape = (step.before, step.count, step.behind)
        self._groups = list(step.after)

    def _add(self, shape: Shape) -> None:
        """Add along the third of four axes: what is before, blocks, numbers of a block, what is behind."""
        before, count, block, behind = shape
        if before == 1 and 1 < behind < _NARROW:
            # As wide rows: the numbers of a block lie as far apart as there are blocks.
            self._reshape((block, count * behind))
            self._reduce((0,))
            return
        # onnxruntime is slow where an axis has one element.
        sizes = ((before * count, False), (block, True), (behind, False))
        rows = [(size, added) for size, added in sizes if size > 1 or added]
        self._reshape(tuple(size for size, _ in rows))
        self._reduce(tuple(axis for axis, (_, added) in enumerate(rows) if added))

    def _finish(self) -> None:
        """Add what is left, in float64 if that is much, and compute what is wanted of the sum."""
        axes = tuple(axis for axis, group in enumerate(self._groups) if group.added)
        is_short = math.prod(self._groups[axis].size for axis in axes) <= _FEW_BLOCKS
        if not is_short:
            self._cast(_T.DOUBLE)
        self._reshape(tuple(group.size for group in self._groups))
        if axes:
            self._reduce(axes)
        if self._divisor > 1:
            number = np.array(self._divisor, np.float32 if is_short else np.float64)
            self._value = self._build.make("Div", [self._value, self._build.constant(number)])
        if self._reduction.last:
            self._value = self._build.make(self._reduction.last, [self._value])
        if not is_short:
            self._cast(_T.FLOAT)

    def _cast(self, dtype: int) -> None:
        self._value = self._build.make("Cast", [self._value], to=dtype)

    def _reshape(self, shape: Shape) -> None:
        if shape != self._shape:
            self._value = self._build.make("Reshape", [self._value, self._build.integers(*shape)])
            self._shape = shape

    def _reduce(self, axes: Shape) -> None:
        operator = self._reduction.stage
        since = _SUM_AXES_AS_INPUT if operator == "ReduceSum" else _AXES_AS_INPUT
        if self._version >= since:
            inputs = [self._value, self._build.integers(*axes)]
            self._value = self._build.make(operator, inputs, keepdims=0)
        else:
            self._value = self._build.make(operator, [self._value], axes=list(axes), keepdims=0)
        self._shape = tuple(size for axis, size in enumerate(self._shape) if axis not in axes)
