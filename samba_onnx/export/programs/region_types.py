"""Types of values that share a region: an output takes the type of what lies there."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterator, Sequence
from typing import Final

import onnx_ir as ir

from samba_onnx.errors import UsageError
from samba_onnx.facts.names import FreeNames
from samba_onnx.program.program import Program

LOGGER: Final = logging.getLogger(__name__)


def match_region_types(programs: Sequence[Program]) -> None:
    """Give outputs the type of the region that they are to lie in, where both are integers.

    A region has the type of the value that it is named after, or else of the first input, resident
    or output in it. So the index that one step computes in int64 may be the token that the next one
    reads in int32: as ``copy_`` does in torch, the numbers are cast. Other types are not mixed: what
    is written as one would be read as the other.

    Args:
        programs: The graphs of one PEF; those whose outputs change their type are changed in place.

    Raises:
        UsageError: Values of other types are to share a region.
    """
    chosen = frozenset(region for program in programs for region in program.regions.values())
    owners: dict[str, ir.Value] = {}
    # The value that a region is named after decides, wherever it comes; without one, the first
    # does.
    for by_name in (True, False):
        for program in programs:
            for value, region in _placed(program, chosen):
                if not by_name or value.name == region:
                    owners.setdefault(region, value)
    for program in programs:
        # A list, because outputs are replaced meanwhile.
        for value, region in list(_placed(program, chosen)):
            owner = owners[region]
            if value.dtype != owner.dtype and None not in (value.dtype, owner.dtype):
                _match(program, value, region, owner)


def _placed(program: Program, chosen: Container[str]) -> Iterator[tuple[ir.Value, str]]:
    """Yield the values of a program that lie in a region that somebody chose, and the region."""
    for part in program.parts:
        for value in (*part.model.graph.inputs, *part.model.graph.outputs):
            region = program.regions.get(value.name or "", value.name or "")
            if region in chosen:
                yield value, region


def _match(program: Program, value: ir.Value, region: str, owner: ir.Value) -> None:
    assert value.dtype is not None
    assert owner.dtype is not None
    is_output = value.name in program.outputs
    if not is_output or not (value.dtype.is_integer() and owner.dtype.is_integer()):
        raise UsageError(
            f"tensor {value.name!r} of {value.dtype.name.lower()} is to share region {region!r} "
            f"with {owner.name!r} of {owner.dtype.name.lower()}: give it a region of its own, or "
            "convert it in the model"
        )
    LOGGER.warning(
        "output %r is %s, its region %r is %s: it is converted",
        value.name,
        value.dtype.name.lower(),
        region,
        owner.dtype.name.lower(),
    )
    graph = next(part.model.graph for part in program.parts if value in part.model.graph.outputs)
    names = FreeNames(v.name or "" for node in graph for v in node.outputs)
    names.reserve(v.name or "" for v in (*graph.inputs, *graph.outputs))
    result = ir.Value(name=value.name, type=ir.TensorType(owner.dtype), shape=value.shape)
    # The output keeps its name, and the value before the conversion takes another.
    value.name = names.take(f"{value.name}__wide")
    attributes = [ir.AttrInt64("to", int(owner.dtype))]
    graph.append(ir.Node("", "Cast", [value], attributes, outputs=[result]))
    # In its place: the order of outputs is what callers go by.
    graph.outputs[:] = [result if output is value else output for output in graph.outputs]
