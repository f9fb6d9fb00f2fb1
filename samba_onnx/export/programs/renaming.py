"""The names that outputs of a program have."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import onnx_ir as ir

from samba_onnx.facts.names import FreeNames, gradient_name, joined
from samba_onnx.program.dataflow import each_node
from samba_onnx.program.program import Program


def with_output_names(program: Program, names: Sequence[str] | None) -> Program:
    """Give the outputs of a program names of the user's choice.

    Args:
        program: Its graphs are changed in place.
        names: One per output of the program; if there are more or fewer, or None, the program
            stays as it is.

    Returns:
        The program. An output whose name is taken keeps the one that it has.
    """
    if names is None or len(program.outputs) != len(names):
        return program
    taken = {*program.inputs, *program.residents, *(argin.name for argin in program.argins)}
    renamed: dict[str, str] = {}
    for old, new in zip(program.outputs, names, strict=True):
        # A wish that another value's name stands against is not granted; the old name is unique.
        clashes = {new, gradient_name(new)} & taken or new in program.outputs
        if old != new and not clashes:
            # A gradient that is handed in is called after the output.
            renamed |= {old: new, gradient_name(old): gradient_name(new)}
    return renamed_program(program, renamed)


def with_free_outputs(program: Program, taken: Collection[str], prefix: str = "") -> Program:
    """Give a program's outputs names that no other program has.

    Args:
        program: Its graphs are changed in place where names clash.
        taken: Names of the other programs' outputs.
        prefix: Goes in front of all of them; none when empty.

    Returns:
        The program with its new names.
    """
    names = FreeNames(taken)
    return renamed_program(
        program, {name: names.take(joined(prefix, name)) for name in program.outputs}
    )


def renamed_program(program: Program, renamed: Mapping[str, str]) -> Program:
    """Rename inputs, outputs and residents of a program.

    Args:
        program: Its graphs are changed in place.
        renamed: New names, which no other of these has, by the old ones.
    """
    if all(old == new for old, new in renamed.items()):
        return program
    for part in program.parts:
        _rename(part.model.graph, renamed)
    return dataclasses.replace(
        program,
        outputs=tuple(renamed.get(name, name) for name in program.outputs),
        residents={renamed.get(name, name): kind for name, kind in program.residents.items()},
        regions={
            renamed.get(name, name): renamed.get(place, place)
            for name, place in program.regions.items()
        },
    )


def _rename(graph: ir.Graph, renamed: Mapping[str, str]) -> None:
    ends = {id(value) for value in (*graph.inputs, *graph.outputs)}
    new = set(renamed.values())
    # Subgraphs included, since names are of the whole model.
    inner = [value for node in each_node(graph) for value in node.outputs]
    names = FreeNames(new)
    names.reserve(value.name or "" for value in (*graph.inputs, *inner))
    # Inner values make room: nobody outside knows their names.
    for value in inner:
        if value.name in new and id(value) not in ends:
            value.name = names.take(value.name)
    for value in (*graph.inputs, *graph.outputs):
        value.name = renamed.get(value.name or "", value.name)
