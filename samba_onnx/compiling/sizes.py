"""One model for several sizes: names of the graphs, and what they have in common."""

from __future__ import annotations

import hashlib
import itertools
import math
import os
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import onnx_ir as ir

from samba_onnx.compiling.model_options import Sizes
from samba_onnx.errors import UsageError
from samba_onnx.facts.names import FreeNames
from samba_onnx.passes.order import PipelineOptions
from samba_onnx.pef.sources import FileRegion
from samba_onnx.program.dataflow import each_node, name_of
from samba_onnx.program.program import DEFAULT_GRAPH, Program

MOST_GRAPHS: Final = 64
"""Graphs of one PEF for several sizes: each is compiled, and has its activations in device memory."""

_Key: TypeAlias = tuple[object, ...]


def each_size(dims: Sizes) -> list[dict[str, int]]:
    """Return the sizes of every graph: all combinations, those of the first dimension outermost.

    Args:
        dims: Sizes by name of dimension.

    Returns:
        One size per name for every graph; at least one entry.

    Raises:
        UsageError: A dimension has no size, one twice, or one that is no integer; or there are more
            than ``MOST_GRAPHS`` combinations.
    """
    choices = {
        name: (sizes,) if isinstance(sizes, int) else tuple(sizes) for name, sizes in dims.items()
    }
    for name, sizes in choices.items():
        if not sizes or not all(isinstance(size, int) for size in sizes):
            raise UsageError(f"dimension {name!r} has sizes {list(sizes)}: expected integers")
        if len(set(sizes)) < len(sizes):
            raise UsageError(f"dimension {name!r} has a size twice: {list(sizes)}")
    # Counted before they are listed: there may be too many to list.
    count = math.prod(map(len, choices.values()))
    if count > MOST_GRAPHS:
        raise UsageError(
            f"the sizes make {count} combinations, a PEF has at most {MOST_GRAPHS} graphs: give "
            "fewer sizes"
        )
    return [dict(zip(choices, each, strict=True)) for each in itertools.product(*choices.values())]


def size_name(options: PipelineOptions, all_options: Sequence[PipelineOptions]) -> str:
    """Return the name of the graph for some sizes: those that other graphs have otherwise.

    Args:
        options: The sizes of the graph.
        all_options: The sizes of all graphs.

    Returns:
        As ``batch=8,seq=128``.
    """
    differing = [
        f"{name}={size}"
        for name, size in options.dims.items()
        if any(other.dims[name] != size for other in all_options)
    ]
    return ",".join(differing) or DEFAULT_GRAPH


def with_own_names(program: Program, taken: Container[str]) -> tuple[Program, dict[str, str]]:
    """Give inputs and outputs names that no other graph of the PEF has.

    Args:
        program: A program of one part, whose model has unique names; they are changed in place.
        taken: Names of symbols of the other graphs.

    Returns:
        The program with its new names, and the old names by the new ones.
    """
    graph = program.parts[0].model.graph
    # Once, since an input may be an output as well.
    values = dict.fromkeys([*graph.inputs, *graph.outputs])
    present = {name_of(value) for node in each_node(graph) for value in node.outputs}
    names = FreeNames({*present, *graph.initializers, *map(name_of, values)}, first=2)
    new: dict[str, str] = {}
    for value in values:
        old = name_of(value)
        new[old] = names.take(f"{old}@{program.name}")
        # What is free in this model may be the name of another graph's symbol.
        while new[old] in taken:
            new[old] = names.take(f"{old}@{program.name}")
        # A value renames its tensor, too, which may lie in the user's own model.
        tensor, value.const_value = value.const_value, None
        value.name = new[old]
        value.const_value = tensor
    named = replace(
        program,
        inputs=tuple(new[name] for name in program.inputs),
        outputs=tuple(new[name] for name in program.outputs),
        index_demands=tuple(
            replace(demand, input=new[demand.input]) for demand in program.index_demands
        ),
    )
    return named, {name: old for old, name in new.items()}


class SharedWeights:
    """Initializers of the graphs that were planned, by their content.

    What still lies in the model's file is known by its place there; other content is read once per
    graph.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._names: dict[_Key, str] = {}

    def add(self, graph: ir.Graph) -> None:
        """Remember the initializers of a graph that was planned."""
        for value in _shareable(graph):
            self._names.setdefault(_key(value), name_of(value))

    def names(self, graph: ir.Graph) -> dict[ir.Value, str]:
        """Return the initializers of another graph that are there already, with their names."""
        found: dict[str, ir.Value] = {}
        # Keys may read content: without another graph there is nothing to find by them.
        for value in _shareable(graph) if self._names else ():
            name = self._names.get(_key(value))
            if name is not None:
                # Two initializers of this graph with one content stay two: a
                # name stands for one value.
                found.setdefault(name, value)
        return {value: name for name, value in found.items()}


def _shareable(graph: ir.Graph) -> list[ir.Value]:
    """Return initializers with numbers that are neither inputs nor outputs."""
    outputs = set(graph.outputs)
    return [
        value
        for value in graph.initializers.values()
        if not value.is_graph_input()
        and value not in outputs
        and value.const_value is not None
        and value.const_value.dtype != ir.DataType.STRING
    ]


def _key(value: ir.Value) -> _Key:
    tensor = value.const_value
    assert tensor is not None
    kind = (tensor.dtype, tuple(tensor.shape.numpy()))
    region = getattr(tensor, "region", None)
    if isinstance(region, FileRegion):
        # By the file itself, which links may give several paths.
        file = os.stat(region.file)
        return (*kind, file.st_dev, file.st_ino, region.offset, region.length)
    return (*kind, hashlib.blake2b(tensor.tobytes(), digest_size=32).digest())
