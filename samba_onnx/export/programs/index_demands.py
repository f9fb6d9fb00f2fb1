"""Which inputs of a captured module are indices, and of which range.

Torch raises for a label, class or index that is out of range. Where such numbers come from an input as
they are, through views and slices only, the range is known when the module is compiled, and a run
checks it where the input enters. What is computed of an input is not followed: it costs a look at
values on the device.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, fx

from samba_onnx.export.capture.captured_modules import Captured, PlaceholderKind
from samba_onnx.export.naming import operator_name
from samba_onnx.program.index_demands import IndexDemand

__all__ = ["index_demands"]

_CONVERSIONS: Final = frozenset({"to", "to_copy"})
_MOVES: Final = frozenset(
    {
        *(
            "alias",
            "chunk",
            "clone",
            "constant_pad_nd",
            "contiguous",
            "detach",
            "expand",
            "flatten",
        ),
        *("flip", "movedim", "narrow", "numpy_T", "pad", "permute", "repeat", "reshape", "roll"),
        *("select", "slice", "split", "split_with_sizes", "squeeze", "t", "tensor_split"),
        *("transpose", "unbind", "unflatten", "unsafe_view", "unsqueeze", "view"),
    }
)
"""Operators whose results have numbers of their first operand, and no others but padding."""
_MOST: Final = 1 << 24
"""Numbers of an input whose way is followed; one with more is no batch of labels."""
_WIDE: Final = frozenset({torch.int32, torch.int64})
"""Types to which integers are converted without another number becoming of one that fits."""


def index_demands(captured: Captured, inputs: Container[str]) -> tuple[IndexDemand, ...]:
    """Return what operators demand of the integers that a module is given.

    Args:
        captured: A captured module; graphs within its graph, of which a run takes one, are left out.
        inputs: Names of the inputs that the program has.

    Returns:
        Each demand once, in the order of the inputs.
    """
    nodes = {node.name: node for node in captured.graph_module.graph.find_nodes(op="placeholder")}
    found: dict[IndexDemand, None] = {}
    for placeholder in captured.placeholders:
        node = nodes.get(placeholder.name)
        if placeholder.kind is not PlaceholderKind.INPUT or node is None:
            continue
        if placeholder.qualified not in inputs:
            continue
        value = node.meta.get("val")
        if _is_integer(value):
            shape = tuple(map(int, value.shape))
            if not 0 < math.prod(shape) <= _MOST:
                continue
            # Every number is replaced by its own place, which can be followed through any operator
            # that moves.
            places = torch.arange(math.prod(shape)).reshape(shape)
            for demand in _Way(placeholder.qualified, shape).demands(node, places):
                # A dictionary keeps one of equal demands, in the order of the graph.
                found.setdefault(demand)
    return tuple(found)


@dataclass(frozen=True)
class _Way:
    """Follows the numbers of an input through a graph.

    What moves them is called with their places in the input instead, so that torch itself says which
    of them get where.
    """

    input: str
    shape: tuple[int, ...]

    def demands(self, node: fx.Node, places: Any) -> Iterator[IndexDemand]:
        """Yield the demands of what reads a value, and of what reads numbers of it.

        Args:
            node: The value.
            places: Places in the input of its numbers, -1 for padding; a list if the value is one.
        """
        for user in node.users:
            # What returns several parts, as split, is called with the places as well.
            if user.target is operator.getitem and isinstance(user.args[1], int):
                yield from self.demands(user, places[user.args[1]])
            if not isinstance(user.target, torch._ops.OpOverload):
                continue
            part = self._part(places) if isinstance(places, Tensor) else None
            bounds = None if part is None else _bounds(user, node)
            if part is not None and bounds is not None:
                name = operator_name(user)
                yield IndexDemand(self.input, _SPELLINGS.get(name, name), *bounds, part)
            moved = _moved(user, node, places)
            if moved is not None:
                yield from self.demands(user, moved)

    def _part(self, places: Tensor) -> tuple[tuple[int, int], ...] | None:
        """Return the part of the input that has places; None if it is none that axes can tell."""
        # Padding is -1, which is no place of the input.
        own = torch.unique(places[places >= 0])
        if not len(own):
            return None  # there is no number of the input to check
        coordinates = torch.unravel_index(own, self.shape)
        part = tuple((int(each.min()), int(each.max()) + 1) for each in coordinates)
        # A run checks boxes along axes: other sets of places have no such form.
        if len(own) != math.prod(last - first for first, last in part):
            return None
        # The whole input needs no box.
        return () if len(own) == math.prod(self.shape) else part


def _moved(user: fx.Node, node: fx.Node, places: Any) -> Any:
    """Return the places of what an operator makes of a value; None where it computes something."""
    name, value = operator_name(user), user.meta.get("val")
    # With a second tensor, the result has numbers of that, too.
    if user.all_input_nodes != [node] or user.args[0] is not node:
        return None
    if name in _CONVERSIONS:
        # To a narrower type, a number out of range could become one that fits.
        kept = isinstance(value, Tensor) and value.dtype in (*_WIDE, node.meta["val"].dtype)
        return places if kept else None
    if name not in _MOVES:
        return None
    if name in ("pad", "constant_pad_nd"):
        if _argument(user, "mode") not in (None, "constant"):
            return None
        return torch.nn.functional.pad(places, list(_argument(user, "pad")), value=-1)
    # A view of what torch had in another order in memory.
    target = torch.ops.aten.reshape.default if name in ("unsafe_view", "view") else user.target
    return target(places, *user.args[1:], **user.kwargs)  # type: ignore[operator]


_Bounds: TypeAlias = tuple[int, int, tuple[int, ...]]
"""The least, the greatest, and further numbers that are taken."""


@dataclass(frozen=True)
class _Use:
    """How an operator uses an argument as indices."""

    argument: str
    table: str = "self"
    """The argument that is indexed."""
    axis: int | str | None = None
    """The axis that is counted along, or the argument that has it; None for all numbers."""
    from_end: bool = False
    """Whether torch counts from the end for negative numbers."""
    ignores: bool = False
    """Whether an argument ``ignore_index`` is taken as well."""
    least: int = 0

    def bounds(self, node: fx.Node) -> _Bounds | None:
        """Return what a node takes; None where that is not known."""
        size = self._size(node)
        # Unknown, or a table without rows, of which no index is valid.
        if not size:
            return None
        exempt = (int(_argument(node, "ignore_index")),) if self.ignores else ()
        return (-size if self.from_end else self.least), size - 1, exempt

    def _size(self, node: fx.Node) -> int | None:
        table = _argument(node, self.table)
        if isinstance(table, int):
            return table  # the number of classes itself
        shape = tuple(map(int, table.meta["val"].shape)) if isinstance(table, fx.Node) else ()
        if self.axis is None:
            return int(torch.Size(shape).numel())
        axis = _argument(node, self.axis) if isinstance(self.axis, str) else self.axis
        # Of a single sample, the only axis is that of the classes.
        return shape[axis % len(shape) if axis < len(shape) else -1] if shape else None


_ALONG: Final = _Use("index", axis="dim")
_LABELS: Final = _Use("target", axis=1, ignores=True)
_USES: Final[Mapping[str, _Use]] = MappingProxyType(
    {
        "cross_entropy_loss": _LABELS,
        "embedding": _Use("indices", "weight", 0),
        "embedding_bag": _Use("indices", "weight", 0),
        "gather": _ALONG,
        "index_add": _ALONG,
        "index_copy": _ALONG,
        "index_fill": _Use("index", axis="dim", from_end=True),
        "index_reduce": _ALONG,
        "index_select": _ALONG,
        "multi_margin_loss": _Use("target", axis=1),
        # -1 ends the list of a sample's classes.
        "multilabel_margin_loss": _Use("target", axis=1, least=-1),
        "nll_loss": _LABELS,
        "nll_loss2d": _LABELS,
        "nll_loss_nd": _LABELS,
        "one_hot": _Use("self", "num_classes"),
        "scatter": _ALONG,
        "scatter_add": _ALONG,
        "scatter_reduce": _ALONG,
        "take": _Use("index", from_end=True),
    }
)
"""By operator: what it takes. Found by calling torch with numbers that are out of range."""


_SPELLINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cross_entropy_loss": "cross_entropy",
        "index": "x[...]",
        "index_put": "x[...] = y",
        "nll_loss2d": "nll_loss",
        "nll_loss_nd": "nll_loss",
    }
)
"""What people write, where the operator has another name."""


def _bounds(user: fx.Node, node: fx.Node) -> _Bounds | None:
    """Return what an operator takes of a value; None where it does not use it as indices."""
    name = operator_name(user)
    if name in ("index", "index_put"):
        return _subscripts(user, node)
    use = _USES.get(name)
    # An operand that is read in another place, as values beside indices, is no index.
    return None if use is None or _argument(user, use.argument) is not node else use.bounds(user)


def _subscripts(user: fx.Node, node: fx.Node) -> _Bounds | None:
    """Return what stands between brackets takes; masks cover axes of their own, and are not followed."""
    table, indices = _argument(user, "self"), _argument(user, "indices")
    values = [index.meta["val"] for index in indices if isinstance(index, fx.Node)]
    # uint8 is torch's old type of masks.
    if not all(map(_is_integer, values)) or any(v.dtype is torch.uint8 for v in values):
        return None
    # One tensor may stand for several axes, of which the shortest decides.
    sizes = [table.meta["val"].shape[axis] for axis, one in enumerate(indices) if one is node]
    if not sizes or not min(sizes):
        return None
    return -int(min(sizes)), int(min(sizes)) - 1, ()


def _argument(node: fx.Node, name: str) -> Any:
    """Return an argument of an operator by its name in the schema; its default where it is not given."""
    assert isinstance(node.target, torch._ops.OpOverload)
    for place, argument in enumerate(node.target._schema.arguments):
        if argument.name == name:
            given = node.args[place] if place < len(node.args) else None
            # A given None differs from an argument that is left out.
            if place < len(node.args):
                return given
            return node.kwargs.get(name, argument.default_value)
    return None


def _is_integer(value: Any) -> bool:
    if not isinstance(value, Tensor) or value.dtype is torch.bool:
        return False
    return not (value.is_floating_point() or value.is_complex())
