"""Tracing models: the step between compiling and running."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import onnx
import torch
from torch import nn
from torch.optim import Optimizer

from samba_onnx.errors import UsageError
from samba_onnx.sessions import SESSION
from samba_onnx.sessions.arguments import tell_idle
from samba_onnx.sessions.onnx_modules import Losses
from samba_onnx.sessions.session_options import flat_options
from samba_onnx.tensor import SambaTensor

_NO_GRADIENTS: Final[Mapping[str, torch.Tensor]] = MappingProxyType({})


def trace_graph(
    model: nn.Module | onnx.ModelProto | str | os.PathLike[str],
    inputs: Any,
    optim: Optimizer | Sequence[Optimizer] | None = None,
    init_output_grads: bool = True,
    loss_indices: Any = None,
    pef: str | os.PathLike[str] = "",
    mapping: str = "section",
    data_parallel_mode: str = "normal",
    transfer_device: bool = True,
    *,
    config_dict: Mapping[str, Any] | Namespace | None = None,
    distlearn_config: Any = None,
    dev_mode: bool = False,
    squeeze_bs_dim: bool = False,
    weights: Collection[str] | None = None,
    losses: Losses = None,
) -> tuple[SambaTensor, ...]:
    """Trace a model, and prepare the device to run it. Call it once before ``session.run``.

    The PEF is loaded, the model is exported again and compared with what was compiled, and
    parameters, buffers and inputs are copied to the device. Works in a process that compiled
    nothing.

    Args:
        model: The module or ONNX model that was compiled.
        inputs: Inputs in the form, and of the shapes and dtypes, that ``session.compile`` took; in
            spatial mapping also all mini-batches of a run, along the first dimension.
        optim: The optimizers that the model was compiled with; None to run without.
        init_output_grads: Whether to set the gradients of losses on the device to one.
        loss_indices: Positions of the outputs whose gradients are set; None sets those of all
            losses.
        pef: Path of the PEF; when empty, that of ``config_dict``, or the PEF that the session has.
        mapping: ``section`` or ``spatial``; ``spatial`` is refused for a PEF that was compiled for
            ``section``, and the other way round the PEF counts.
        data_parallel_mode: ``normal``, ``inorder`` or ``optimal``, for runs with ``data_parallel=True``
            that name none, or ``normal``.
        transfer_device: Whether to copy parameters, buffers and inputs to the device. If not,
            ``session.to_device``, ``session.to_rdu`` or ``rdu()`` of a tensor copies them later.
        config_dict: Settings, of which only ``pef`` counts.
        distlearn_config: Whether all processes of the group of ``torch.distributed`` begin with what
            process 0 transfers, as with ``--data-parallel`` on the command line. The settings in it
            are without effect, which is said once.
        dev_mode: Accepted, without effect.
        squeeze_bs_dim: Accepted, without effect.
        weights: Names of initializers of an ONNX model to train, as for ``session.compile``.
        losses: Losses of an ONNX model by name, as for ``session.compile``; None takes the losses
            that it was compiled with.

    Returns:
        The outputs, flat and without None; they have names and no values. They are
        ``model.output_tensors``, too.

    Raises:
        GraphMismatchError: The PEF was compiled from another model; the first difference is named.
        NotTracedError: There is no PEF.
        PefError: The PEF cannot be used.
        UsageError: An argument is of the wrong kind, or optimizers are given for a PEF that was
            compiled for inference.
        OutOfDeviceMemoryError: The model does not fit into the device's memory.
    """
    del dev_mode, squeeze_bs_dim
    if distlearn_config:
        tell_idle("distlearn_config")
    return SESSION.trace(
        model,
        inputs,
        optim,
        init_output_grads=init_output_grads,
        loss_indices=loss_indices,
        # The argument counts more than settings, which may be those of a whole program.
        pef=pef or str(flat_options(config_dict).get("pef", "")),
        mapping=mapping,
        data_parallel_mode=data_parallel_mode,
        transfer_device=transfer_device,
        weights=weights,
        losses=losses,
        distributed=bool(distlearn_config),
    )


def traced_outputs(model: nn.Module) -> tuple[SambaTensor, ...]:
    """Return the outputs of a module that was traced.

    Args:
        model: The module.

    Raises:
        UsageError: It was not traced.
    """
    outputs = getattr(model, "output_tensors", None)
    if outputs is None:
        raise UsageError(
            f"{type(model).__name__} was not traced: call samba.utils.trace_graph first"
        )
    return tuple(outputs)


def trace_multigraph(
    graph: nn.Module,
    inputs: Any,
    optimizers: Sequence[Optimizer] | None = None,
    init_output_grads: bool | None = None,
    mapping: str = "",
    trace_prefix: str | None = None,
) -> tuple[SambaTensor, ...]:
    """Trace one of several graphs that run from one PEF. Call it once for each.

    Tensors that get the same ``sn_region_name`` afterwards share memory on the device.

    Args:
        graph: The module whose ``forward`` is the graph.
        inputs: Arguments of ``forward``: a tensor, a tuple by position or a dict by keyword.
        optimizers: None; such programs do not train.
        init_output_grads: Accepted, without effect.
        mapping: ``section`` or ``spatial``.
        trace_prefix: Prefix of the names of the outputs; None for none.

    Returns:
        The outputs, flat and without None; they have names and no values.

    Raises:
        UsageError: An argument is of the wrong kind.
        ModelError: The module cannot be traced.
    """
    del init_output_grads
    return SESSION.trace_multigraph(
        graph, inputs, optimizers, mapping=mapping, trace_prefix=trace_prefix
    )


def init_output_grads(
    output_tensors: Sequence[str | SambaTensor],
    unspecified_tensor_grad: Sequence[str] = (),
    customized_tensors_dict: Mapping[str, torch.Tensor] | None = _NO_GRADIENTS,
    is_variable_batch_size: bool = False,
) -> None:
    """Set gradients of outputs on the device, from which the backward sections start.

    Args:
        output_tensors: A traced output or its name, or several.
        unspecified_tensor_grad: The name of an output whose gradient is one, or several.
        customized_tensors_dict: Gradients by the name of the output, each of the output's shape and
            dtype. The gradient of an output without an entry is one.
        is_variable_batch_size: Accepted, without effect.

    Raises:
        InputError: An output was not traced, or a gradient has another shape or dtype.
    """
    del is_variable_batch_size
    SESSION.set_output_grads(
        [
            SESSION.get_samba_tensor_by_name(output) if isinstance(output, str) else output
            for output in (
                [output_tensors]
                if isinstance(output_tensors, str | SambaTensor)
                else output_tensors
            )
        ],
        unspecified_tensor_grad,
        customized_tensors_dict or {},
    )
