"""The names that outputs of a program have."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import onnx_ir as ir
from torch import nn

from samba_onnx.export.programs.training_parts import GRADIENT
from samba_onnx.importing import OnnxModule
from samba_onnx.program.program import Program


def with_own_names(program: Program, model: nn.Module) -> Program:
    """Give the outputs of a program the names that an ONNX model has for them.

    Args:
        program: Of the module; its graphs are changed in place.
        model: Programs of modules that were not made of an ONNX model stay as they are.

    Returns:
        The program. An output whose name is taken keeps the one that it has.
    """
    if not isinstance(model, OnnxModule) or len(program.outputs) != len(model.output_names):
        return program
    taken = {*program.inputs, *program.residents, *(argin.name for argin in program.argins)}
    wanted = dict(zip(program.outputs, model.output_names, strict=True))
    renamed: dict[str, str] = {}
    for old, new in wanted.items():
        clashes = {new, f"{new}{GRADIENT}"} & taken or new in program.outputs
        if old != new and not clashes:
            renamed |= {old: new, f"{old}{GRADIENT}": f"{new}{GRADIENT}"}
    return renamed_program(program, renamed)


def renamed_program(program: Program, renamed: Mapping[str, str]) -> Program:
    """Rename inputs, outputs and residents of a program.

    Args:
        program: Its graphs are changed in place.
        renamed: New names, which no other of these has, by the old ones.
    """
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
    inner = [value for node in graph.all_nodes() for value in node.outputs]
    used = new | {value.name or "" for value in (*graph.inputs, *inner)}
    for value in inner:
        if value.name in new and id(value) not in ends:
            number = 1
            while (free := f"{value.name}_{number}") in used:
                number += 1
            used.add(free)
            value.name = free
    for value in (*graph.inputs, *graph.outputs):
        value.name = renamed.get(value.name or "", value.name)
