"""Runs parts of exported programs on the engine that stands for the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch import nn

from samba_onnx.comparing.eager.numbers import zeros
from samba_onnx.comparing.eager.refusals import refusal
from samba_onnx.errors import ExecutionError
from samba_onnx.export.programs.inference import Exported
from samba_onnx.program.program import Part
from samba_onnx.runtime.engine.evaluation import evaluate
from samba_onnx.tensor.arrays import compiled_array, to_array


def members_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return the parameters and buffers of a module by their paths, tied ones by each of theirs.

    Args:
        module: The module.
    """
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def feeds_of(module: nn.Module, flat: Sequence[Any], exported: Exported) -> dict[str, NDArray[Any]]:
    """Return the arrays that an exported graph reads, by name.

    Args:
        module: With values of all parameters.
        flat: Flat inputs.
        exported: What the module was exported to. Its argins, rates and seeds of dropouts, are 0.
    """
    members = members_of(module)
    feeds = {name: to_array(members[path]) for name, path in exported.members.items()}
    feeds |= {name: to_array(flat[index]) for name, index in exported.inputs.items()}
    argins = {argin.name for argin in exported.program.argins}
    read = [value for part in exported.program.parts for value in part.model.graph.inputs]
    for value in read:
        name = value.name or ""
        if name in exported.members and value.dtype is not None:
            feeds[name] = compiled_array(feeds[name], value.dtype.numpy())
    return feeds | {value.name or "": zeros(value) for value in read if value.name in argins}


def run_part(part: Part, feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Run one part of a program on the engine that stands for the device.

    Args:
        part: The part, of static sizes; bfloat16 is computed as the device computes it.
        feeds: Its inputs, and maybe others, by name.

    Returns:
        Its outputs by name.

    Raises:
        EngineRefusalError: The engine refuses an operator, or fails in it.
    """

    def run(model: ir.Model) -> None:
        evaluate(ir.to_proto(model), feeds)

    try:
        return evaluate(ir.to_proto(part.model), feeds)
    except ExecutionError as error:
        raise refusal(part, error, run) from error
