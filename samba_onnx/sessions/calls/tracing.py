"""What a session does from models and PEFs to what can be run."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from samba_onnx.sessions.calls.parts import SessionParts
from samba_onnx.sessions.onnx_modules import Losses
from samba_onnx.tensor import SambaTensor
from samba_onnx.tensor.lazy_parameters import LAZY
from samba_onnx.tensor.random_values import DrawingOptions

__all__ = ["TracingCalls"]


class TracingCalls(SessionParts):
    """Calls that prepare a model to run, and say how its parameters are made."""

    @property
    def tracing(self) -> bool:
        """Whether a graph is being traced; may be set."""
        return self._mode.tracing

    @tracing.setter
    def tracing(self, tracing: bool) -> None:
        self._mode.tracing = bool(tracing)

    def trace(
        self,
        model: Any,
        inputs: Any,
        optimizers: Optimizer | Sequence[Optimizer] | None = None,
        *,
        init_output_grads: bool = True,
        loss_indices: Any = None,
        pef: str | os.PathLike[str] = "",
        mapping: str = "section",
        data_parallel_mode: str = "normal",
        transfer_device: bool = True,
        weights: Collection[str] | None = None,
        losses: Losses = None,
        distributed: bool = False,
    ) -> tuple[SambaTensor, ...]:
        """Prepare a model to run; see ``samba.utils.trace_graph``.

        With ``distributed``, or for a program that was launched with ``--data-parallel``, all
        processes of the group begin with what process 0 transfers.
        """
        outputs = self._tracer.trace(
            model,
            inputs,
            optimizers,
            init_output_grads=init_output_grads,
            loss_indices=loss_indices,
            pef=pef
            or ("" if self._program.pef else str(self._options.command_line.get("pef") or "")),
            mapping=mapping,
            data_parallel_mode=data_parallel_mode,
            transfer_device=transfer_device,
            weights=weights,
            losses=losses,
            inference=bool(self._options.command_line.get("inference")),
        )
        if transfer_device and (distributed or self._options.command_line.get("data_parallel")):
            self._parallel.join_traced()
        return outputs

    def trace_multigraph(
        self,
        model: nn.Module,
        inputs: Any,
        optimizers: Optimizer | Sequence[Optimizer] | None = None,
        *,
        mapping: str = "",
        trace_prefix: str | None = None,
    ) -> tuple[SambaTensor, ...]:
        """Trace one of several graphs; see ``samba.utils.trace_multigraph``."""
        return self._tracer.trace_graph_of_several(
            model, inputs, optimizers, mapping=mapping, trace_prefix=trace_prefix
        )

    def init_multigraph_runtime(
        self, pef: str | os.PathLike[str], transfer_device: bool = True
    ) -> None:
        """Load the PEF of several graphs, which were traced before.

        Args:
            pef: Path of the PEF.
            transfer_device: Send parameters, buffers and inputs of the traced graphs to the device.

        Raises:
            GraphMismatchError: A graph of the PEF was not traced.
            PefError: The PEF cannot be used.
            OutOfDeviceMemoryError: Its tensors do not fit into the device's memory.
        """
        self._tracer.load_graphs(pef, transfer_device)

    def set_output_grads(
        self,
        outputs: Sequence[SambaTensor],
        ones: Sequence[str] = (),
        values: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        """Write the gradients of outputs on the device; see ``samba.utils.init_output_grads``."""
        self._tracer.set_output_grads(outputs, ones, values)

    def use_static_functional(self) -> bool:
        """Whether values do not count now: while tracing, and while parameters are lazy."""
        return self._mode.static

    def enable_lazy_param(
        self,
        seed: int | None = None,
        init_threads: int = 8,
        inverse_transform_sampling: bool = False,
        fp32_to_bf16_rounding: str = "nearest_even",
    ) -> None:
        """Let modules that are made from now on have parameters without memory.

        How a module initialises its parameters is written down, and carried out when their values
        are needed: one by one at ``trace_graph``, or all that a computation on the host touches.

        Args:
            seed: Seed of random values, which then depend on nothing else; None takes a seed from
                torch's generator.
            init_threads: Threads that draw random values; they do not change the values.
            inverse_transform_sampling: Make normal values of uniform ones by the inverse of the
                distribution function.
            fp32_to_bf16_rounding: ``nearest_even`` or ``truncation``.

        Raises:
            UsageError: There are no threads, or the rounding does not exist.
        """
        options = DrawingOptions(init_threads, inverse_transform_sampling, fp32_to_bf16_rounding)
        options.check()
        LAZY.enable(seed, options)

    @staticmethod
    def disable_lazy_param() -> None:
        """Let modules that are made from now on have parameters with memory."""
        LAZY.disable()

    @staticmethod
    def use_lazy_param() -> bool:
        """Whether modules that are made now have parameters without memory."""
        return LAZY.enabled
