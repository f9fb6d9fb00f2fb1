"""``sambaflow.samba.utils.tensorboard_debug``: where device and host differ, for TensorBoard."""

from __future__ import annotations

import importlib
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from samba_onnx.errors import UsageError
from samba_onnx.sambaflow.device_results import gradients
from samba_onnx.sessions import SESSION
from samba_onnx.tensor import SambaTensor, to_torch
from samba_onnx.tensor.device import DEVICE

__all__ = ["dump_accuracy_debug_info"]


def dump_accuracy_debug_info(
    args: Namespace, model: nn.Module, inputs: Any, traced_outputs: Sequence[SambaTensor]
) -> None:
    """Run a traced module on the device and on the host, and write what differs to ``./runs``.

    SambaNova's logistic regression starter calls it after ``trace_graph``, to look at the result with
    ``tensorboard --logdir ./runs/``. For every output, and for every parameter with a gradient, there
    are histograms of both sides and of their difference, and as scalars its largest and its mean
    absolute value. The whole graph is run, the step of the optimizers included.

    Args:
        args: Not looked at.
        model: The module, whose weights on the host are those that the device began with.
        inputs: Named tensors, as ``trace_graph`` took them: a tuple or a dict.
        traced_outputs: What ``trace_graph`` returned.

    Raises:
        UsageError: TensorBoard is not installed.
        SambaError: The graph cannot be run; see ``samba.session.run``.
    """
    del args
    writer = _writer()
    # Read before the run, which may set them anew.
    seeds = {
        output.sn_name: to_torch(output.sn_grad)
        for output in traced_outputs
        if DEVICE.has(output.sn_grad_name)
    }
    host, host_gradients = _computed_on_host(model, inputs, traced_outputs, seeds)
    device = SESSION.run(inputs, traced_outputs)
    device_gradients = gradients(model)
    for one, value in zip(traced_outputs, device, strict=True):
        _write(writer, f"outputs/{one.sn_name}", host[one.sn_name], to_torch(value))
    for path, gradient in device_gradients.items():
        if path in host_gradients:
            _write(writer, f"gradients/{path}", host_gradients[path], gradient)
    writer.close()


def _writer() -> Any:
    try:
        return importlib.import_module("torch.utils.tensorboard").SummaryWriter()
    except ImportError as error:
        raise UsageError(
            f"dump_accuracy_debug_info needs TensorBoard, and {error}: pip install tensorboard"
        ) from None


def _computed_on_host(
    model: nn.Module,
    inputs: Any,
    traced_outputs: Sequence[SambaTensor],
    seeds: Mapping[str, torch.Tensor],
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return outputs by name and gradients of parameters by path, as eager torch computes them."""
    parameters = {path: one for path, one in model.named_parameters() if one.requires_grad}
    results = model(**inputs) if isinstance(inputs, Mapping) else model(*inputs)
    outputs = dict(zip((output.sn_name for output in traced_outputs), _flat(results), strict=True))
    # Autograd refuses an output that no parameter has part in.
    seeded = {name: seed for name, seed in seeds.items() if outputs[name].requires_grad}
    found = (
        torch.autograd.grad(
            [to_torch(outputs[name]) for name in seeded],
            list(parameters.values()),
            list(seeded.values()),
            allow_unused=True,
        )
        if seeded and parameters
        else ()
    )
    # Where nothing was to differentiate, there is nothing to pair.
    pairs = zip(parameters, found, strict=bool(found))
    return (
        {name: to_torch(output).detach() for name, output in outputs.items()},
        {path: to_torch(gradient) for path, gradient in pairs if gradient is not None},
    )


def _flat(results: Any) -> list[torch.Tensor]:
    """Return the tensors of a module's result in the order in which ``trace_graph`` returns them."""
    if isinstance(results, torch.Tensor):
        return [results]
    if isinstance(results, Mapping):
        results = results.values()
    return [] if results is None else [tensor for part in results for tensor in _flat(part)]


def _write(writer: Any, name: str, host: torch.Tensor, device: torch.Tensor) -> None:
    """Write one pair of tensors."""
    host, device = host.detach().double(), device.detach().double()
    difference = device - host
    for key, values in (("host", host), ("device", device), ("difference", difference)):
        writer.add_histogram(f"{name}/{key}", values)
    writer.add_scalar(f"{name}/largest_difference", difference.abs().max().item())
    writer.add_scalar(f"{name}/mean_difference", difference.abs().mean().item())
