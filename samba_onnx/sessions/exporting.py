"""The tensors of a program that was traced, and the names of its outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

import onnx_ir as ir
import torch
from torch import nn

from samba_onnx.errors import UsageError
from samba_onnx.facts.names import FreeNames, joined
from samba_onnx.program.fingerprint import fingerprint
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.program.program import Program
from samba_onnx.sessions.arrays import torch_dtype
from samba_onnx.sessions.inputs import tensors_of
from samba_onnx.sessions.traced import TracedGraph, host_buffers, host_parameters
from samba_onnx.tensor import SambaTensor


def traced_graph(
    program: Program, model: nn.Module, inputs: Any, prefix: str | None = None
) -> TracedGraph:
    """Return a program's tensors.

    Args:
        program: The program of the module with these inputs.
        model: The module.
        inputs: Named tensors.
        prefix: What leads the names of its parameters.
    """
    outputs = {v.name or "": v for part in program.parts for v in part.model.graph.outputs}
    hosts = {**host_parameters(model, prefix), **host_buffers(model, prefix)}
    residents = {name: hosts[name] for name in program.residents if name in hosts}
    kept = (SymbolKind.WEIGHT, SymbolKind.BUFFER)
    given = {v.name for part in program.parts for v in part.model.graph.inputs}
    for name, kind in program.residents.items():
        if kind in kept and name in given and name not in residents:
            raise UsageError(
                f"parameter {name!r} of the traced program is not in the model, which has "
                f"{', '.join(list(hosts)[:8])}, ...: convert the model once, with "
                "samba.from_torch_model_(model)"
            )
    return TracedGraph(
        name=program.name,
        model=model,
        inputs=tuple(dict.fromkeys(tensors_of(inputs))),
        outputs=tuple(_empty_output(name, outputs[name]) for name in program.outputs),
        fingerprint=fingerprint(program),
        residents=residents,
        program=program,
    )


def with_free_outputs(program: Program, taken: Collection[str], prefix: str = "") -> Program:
    """Give a program's outputs names that no other program has.

    Args:
        program: Changed in place where names clash.
        taken: Names that are in use.
        prefix: Goes in front of all of them.

    Returns:
        The program with its new names.
    """
    names = FreeNames(taken)
    renamed = {name: names.take(joined(prefix, name)) for name in program.outputs}
    if all(old == new for old, new in renamed.items()):
        return program
    for part in program.parts:
        for value in (*part.model.graph.inputs, *part.model.graph.outputs):
            value.name = renamed.get(value.name or "", value.name)
    return dataclasses.replace(
        program,
        outputs=tuple(renamed[name] for name in program.outputs),
        residents={renamed.get(name, name): kind for name, kind in program.residents.items()},
        regions={renamed.get(name, name): place for name, place in program.regions.items()},
    )


def _empty_output(name: str, value: ir.Value) -> SambaTensor:
    shape = () if value.shape is None else value.shape.numpy()
    dtype = torch.float32 if value.dtype is None else torch_dtype(value.dtype.numpy())
    return SambaTensor(shape=shape, dtype=dtype, name=name)
