"""What a run left on the device, for the modules that compare it with something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from samba_onnx.sessions import SESSION
from samba_onnx.tensor import SambaTensor, to_torch
from samba_onnx.tensor.device import DEVICE
from samba_onnx.utils.tracing import traced_outputs


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the gradients that the device has of a module's parameters, in the order of these.

    Args:
        model: The module that was traced.

    Returns:
        New tensors by the names of the parameters' paths in the module; parameters without a
        gradient on the device are left out.
    """
    return {
        path: to_torch(parameter.sn_grad)
        for path, parameter in model.named_parameters()
        if isinstance(parameter, SambaTensor) and DEVICE.has(parameter.sn_grad_name)
    }


def run_results(
    model: nn.Module, inputs: Any, section_types: Sequence[str] = ()
) -> dict[str, torch.Tensor]:
    """Run a traced module once.

    Args:
        model: The module.
        inputs: Named tensors; None for the values that the device has.
        section_types: The types of the sections to run; empty for the whole graph.

    Returns:
        What the device computed, by name: outputs by ``sn_name``, gradients of parameters by path
        with ``.grad`` behind it, and the parameters, by path, as they are after the run.
    """
    outputs = traced_outputs(model)
    values = SESSION.run(inputs, outputs, section_types=section_types)
    results = {one.sn_name: to_torch(value) for one, value in zip(outputs, values, strict=True)}
    results |= {f"{path}.grad": values for path, values in gradients(model).items()}
    results |= {
        path: to_torch(parameter.sn_data)
        for path, parameter in model.named_parameters()
        if isinstance(parameter, SambaTensor) and DEVICE.has(parameter.sn_region_name)
    }
    return results
