"""Operators on types for which onnxruntime's CPU provider has no kernel, computed in another type.

ONNX defines more than onnxruntime computes: Where of truth values, Max of int16, sums of uint32. Operands
are cast to a type that holds all of their values, or of which the lower bits of sums are the same, and
the result is cast back. bfloat16 has a lowering of its own, which rounds; for float16, and on the host for
bfloat16, onnxruntime casts itself, except where it has a kernel that then refuses to run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import onnx

from samba_onnx.facts.domains import is_default
from samba_onnx.runtime.engine.lowerings.graph_view import element_types, subgraphs
from samba_onnx.runtime.engine.lowerings.nodes import Nodes, all_nodes

_T: Final = onnx.TensorProto


@dataclass(frozen=True)
class MissingKernel:
    """Types that an operator lacks."""

    types: Mapping[int, int]
    """For each the type to compute in; both as ONNX numbers them."""
    first: int = 0
    """The first operand that is of the operator's type; so are those behind it, unless they are of
    another type than it."""
    combining: bool = False
    """Whether only a scatter that combines with what was there lacks them."""


_NARROW: Final[Mapping[int, int]] = {_T.INT16: _T.INT32, _T.UINT16: _T.INT32}
_SUMS: Final[Mapping[int, int]] = {_T.UINT32: _T.INT64, _T.UINT64: _T.INT64}
# Not in int64, of whose numbers beyond 2**31 onnxruntime 1.31 finds the wrong one to be the largest.
_ORDERED: Final[Mapping[int, int]] = {_T.UINT32: _T.DOUBLE}
_TRUTH: Final[Mapping[int, int]] = dict.fromkeys(
    [_T.INT8, _T.INT16, _T.UINT16, _T.UINT32, _T.UINT64, _T.DOUBLE],
    _T.BOOL,
)

MISSING: Final[Mapping[str, MissingKernel]] = MappingProxyType(
    {
        "Where": MissingKernel({_T.BOOL: _T.UINT8, **_NARROW, _T.UINT64: _T.INT64}, first=1),
        **dict.fromkeys(("Clip", "Max", "Min", "Pad"), MissingKernel(_NARROW)),
        "Relu": MissingKernel({_T.INT16: _T.INT32}),
        "Trilu": MissingKernel(
            dict.fromkeys(
                [_T.INT8, _T.UINT8, _T.INT16, _T.UINT16, _T.INT32, _T.UINT32, _T.UINT64],
                _T.INT64,
            )
        ),
        **dict.fromkeys(("CumSum", "ReduceProd", "ReduceSum"), MissingKernel(_SUMS)),
        "ReduceMean": MissingKernel({_T.UINT32: _T.INT64}),
        **dict.fromkeys(("ReduceMax", "ReduceMin"), MissingKernel(_ORDERED)),
        **dict.fromkeys(("ArgMax", "ArgMin"), MissingKernel({**_NARROW, **_ORDERED})),
        "NonZero": MissingKernel(_TRUTH),
        **dict.fromkeys(
            ("ScatterElements", "ScatterND"),
            # onnxruntime has some of them in bfloat16, which round after each number that is added; a
            # device rounds once.
            MissingKernel({_T.FLOAT16: _T.FLOAT, _T.BFLOAT16: _T.FLOAT}, combining=True),
        ),
    }
)
"""All of onnxruntime 1.31 that exported graphs or their host parts may contain, by operator, and Trilu of
int32, which it has from 1.30 on. Of int64
and double nothing is here: no other type holds their values. Nor are the largest, smallest and mean of
uint64, which int64 does not hold."""


def compute_missing_kernels(model: onnx.ModelProto) -> dict[str, str]:
    """Compute in another type what onnxruntime has no kernel for.

    1. It is a node of the default domain in the table, in the main graph or in a subgraph.
    2. The type of its operand is declared, and one of those that its row names.

    Args:
        model: Is changed in place.

    Returns:
        Why nodes of the table's operators stay what they are though their type may be missing, by
        the name of their result.
    """
    reasons: dict[str, str] = {}
    if any(node.op_type in MISSING for node in all_nodes(model.graph)):
        _lower(model.graph, {}, reasons)
    return reasons


def _lower(graph: onnx.GraphProto, outer: Mapping[str, int], reasons: dict[str, str]) -> None:
    types = {**outer, **element_types(graph)}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for inner in subgraphs(node):
            _lower(inner, types, reasons)
        row = MISSING.get(node.op_type) if is_default(node.domain) else None
        if row is None or (row.combining and not _combines(node)):
            nodes.append(node)
            continue
        dtype = types.get(node.input[row.first], 0)
        if not dtype:
            reasons[node.output[0]] = "the type of its operand is not declared"
        if dtype in row.types:
            nodes += _cast(node, row.first, dtype, row.types[dtype], types)
        else:
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def _cast(
    node: onnx.NodeProto, first: int, dtype: int, wide: int, types: Mapping[str, int]
) -> Iterator[onnx.NodeProto]:
    """Yield a node between casts.

    Args:
        node: Is changed.
        first: Its first operand that is cast; others of the same type behind it are, too.
        dtype: Type of the operands.
        wide: Type to compute in.
        types: Types of all values, by name. A result whose type is not declared has that of the operands.
    """
    build = Nodes(node.output[0])
    for index, name in enumerate(node.input):
        if index >= first and types.get(name) == dtype:
            node.input[index] = build.make("Cast", [name], to=wide)
    yield from build.nodes
    yield node
    result = node.output[0]
    if types.get(result, dtype) == dtype and node.op_type not in _PLACES:
        node.output[0] = f"{result}.wide"
        yield onnx.helper.make_node(
            "Cast", [node.output[0]], [result], name=f"{result}.narrowed", to=dtype
        )


_PLACES = frozenset({"ArgMax", "ArgMin", "NonZero"})
"""Operators that return int64, whatever they are given."""


def _combines(node: onnx.NodeProto) -> bool:
    return any(item.name == "reduction" and item.s != b"none" for item in node.attribute)
