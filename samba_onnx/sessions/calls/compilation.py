"""What a session does from models to PEFs."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from torch.optim import Optimizer

from samba_onnx.graph import SambaGraph
from samba_onnx.sessions.calls.parts import SessionParts
from samba_onnx.sessions.onnx_modules import Losses
from samba_onnx.sessions.options import Destination, Model

__all__ = ["CompilationCalls"]

Settings = Mapping[str, Any] | Namespace | None


class CompilationCalls(SessionParts):
    """Calls that compile."""

    def compile(
        self,
        model: Model,
        inputs: Any,
        optimizers: Optimizer | Sequence[Optimizer] | None = None,
        name: str = "",
        loss_indices: Any = None,
        io_host_memory: bool | None = None,
        *,
        app_dir: str | None = None,
        config_dict: Settings = None,
        pef_metadata: Any = None,
        squeeze_bs_dim: bool = False,
        init_output_grads: bool = True,
        inference: bool = False,
        metadata: Mapping[str, Any] | None = None,
        is_split_batch: bool = False,
        graph_transform_hook: Callable[..., Any] | None = None,
        graph_names: Sequence[str] | None = None,
        output: str | os.PathLike[str] | None = None,
        target: str | os.PathLike[str] | None = None,
        level: str | None = None,
        precision: str | None = None,
        kernel_looping: bool | None = None,
        stochastic_rounding: str | Collection[str] | None = None,
        check: bool = True,
        gradient_accumulation: bool = False,
        weights: Collection[str] | None = None,
        losses: Losses = None,
    ) -> str:
        """Trace a model with its optimizers, and compile it into a PEF.

        The values of a torch model's parameters are no part of the PEF; those of an ONNX model
        are, unless it has optimizers or losses: it is then the torch module that
        ``samba.from_onnx`` makes of it, and the optimizers are of that module's parameters. The PEF is written to ``<output_folder>/<pef_name>/<pef_name>.pef``, of the settings
        in ``config_dict``, else of those given to ``setup``, else of the command line that
        ``set_command_line`` was told; ``output_folder`` is ``out`` and ``pef_name`` the lower-case
        name of the model's class unless they say otherwise. With ``mapping`` "spatial" a run makes
        ``num_spatial_batches`` steps. The PEF lists settings that are only hints, without effect.

        Args:
            model: A torch module, an ONNX model, or the path to one.
            inputs: What ``forward`` takes: a tuple by position or a dict by keyword, with tuples,
                dicts and None inside. Shapes and dtypes count, values do not.
            optimizers: One, several, or None for inference.
            name: What reports call the model.
            loss_indices: Which outputs are losses; when None, those that a loss function made, or
                else all.
            io_host_memory: A hint, which the PEF lists.
            app_dir: Accepted, without effect.
            config_dict: Settings, which override those of ``setup``.
            pef_metadata: What to keep in the PEF, by key.
            squeeze_bs_dim: A hint, which the PEF lists.
            init_output_grads: Accepted, without effect.
            inference: Leave out the backward half, optimizers or not; so does a setting
                ``inference``.
            metadata: What to keep in the PEF besides, by key.
            is_split_batch: A hint, which the PEF lists.
            graph_transform_hook: Not supported.
            graph_names: A hint, which the PEF lists.
            output: Path of the PEF, which overrides the settings.
            target: The device: a name or the path to a profile, with conditions, as ``sn30:4tiles``, or
                without, which overrides the settings.
            level: ``o0`` or ``o3``, which overrides the settings.
            precision: ``fp32`` for the model's own types, ``mixed`` for bfloat16 in matrix products and
                convolutions, ``bf16`` for bfloat16 in all that the model does not convert to float32
                itself, ``bf16-throughout`` for all. Overrides the settings, of which
                ``graphamp_preset`` counts. Inputs, outputs, and what is trained stay float32.
            kernel_looping: Let the device loop over equal sections that follow each other, which are launched
                once, as a target ``sn40l:kernel-looping`` says; overrides the settings.
            stochastic_rounding: What a program that trains rounds to bfloat16 at random, so that the mean
                is right, and not to nearest: ``steps`` for what optimizers store, ``gradients`` for the
                sums that make gradients of weights, or of them ``convolution-gradients`` and
                ``bias-gradients``; several names, or one text with commas. Overrides the settings, of
                which ``enable_stochastic_rounding`` and ``weight_grad_reduce`` count.
            check: Compute the outputs by what was exported and by the model itself, and refuse to
                compile if they differ; so with gradients, and with steps of the optimizers by
                torch.optim. Dropouts are compared with their rates at 0. Where there is nothing to
                compare with, a note in the PEF says why.
            gradient_accumulation: Let backward sections add to gradients; ZEROGRAD sections set
                them to zero.
            weights: For an ONNX model, names of the initializers that are trained, as of
                ``samba.from_onnx``.
            losses: For an ONNX model, losses to build on its outputs, as of ``samba.from_onnx``;
                those of the optimizers' module when None.

        Returns:
            Path of the PEF.

        Raises:
            UsageError: Arguments are of the wrong kind or contradict each other.
            ModelError: The model cannot be compiled.
            ExportMismatchError: What was exported computes something else; the message names the
                first operator that does. Nothing is written.
            EngineRefusalError: What was exported cannot be run; the message names the operator.
                Nothing is written.
            OutOfDeviceMemoryError: The model does not fit into the device's memory.
            OutputError: The PEF cannot be written.
        """
        del app_dir, init_output_grads
        self._options.record_hints(
            io_host_memory=io_host_memory,
            squeeze_bs_dim=squeeze_bs_dim,
            is_split_batch=is_split_batch,
            graph_names=graph_names,
        )
        return self._compiler.compile(
            model,
            inputs,
            optimizers,
            Destination(
                config_dict,
                (pef_metadata, metadata),
                output,
                {
                    "target": target,
                    "level": level,
                    "precision": precision,
                    "kernel_looping": kernel_looping,
                    "stochastic_rounding": stochastic_rounding,
                },
            ),
            name=name,
            loss_indices=loss_indices,
            inference=inference,
            graph_transform_hook=graph_transform_hook,
            check=check,
            gradient_accumulation=gradient_accumulation,
            weights=weights,
            losses=losses,
        )

    def add_graph(self, graph: SambaGraph, overwrite: bool = False) -> None:
        """Add a graph to those that ``compile_multigraph`` compiles.

        Args:
            graph: A graph of outputs that ``trace_multigraph`` returned.
            overwrite: Take the place of a graph of that name; the new one is the last.

        Raises:
            UsageError: There is a graph of that name already, or it was not traced.
        """
        self._traces.add(graph, overwrite)

    def compile_multigraph(
        self,
        name: str = "",
        samba_only: bool = False,
        *,
        config_dict: Settings = None,
        pef_metadata: Any = None,
        metadata: Mapping[str, Any] | None = None,
        output: str | os.PathLike[str] | None = None,
        target: str | os.PathLike[str] | None = None,
        level: str | None = None,
        **hints: Any,
    ) -> str | None:
        """Compile the graphs that were added, in their order, into one PEF.

        Tensors of different graphs with one ``sn_region_name`` are one place in device memory.

        Args:
            name: What reports call the model.
            samba_only: Stop before anything is compiled.
            config_dict: Settings, which override those of ``setup``; see ``compile``.
            pef_metadata: What to keep in the PEF, by key.
            metadata: What to keep in the PEF besides, by key.
            output: Path of the PEF, which overrides the settings.
            target: The device, which overrides the settings.
            level: ``o0`` or ``o3``, which overrides the settings.
            **hints: Hints such as ``enable_hypersection``, which the PEF lists.

        Returns:
            Path of the PEF; None with ``samba_only``.

        Raises:
            UsageError: No graph was added, or graphs contradict each other.
            EngineRefusalError: An operator cannot be run; the message names it.
            OutOfDeviceMemoryError: The graphs do not fit into the device's memory.
            OutputError: The PEF cannot be written.
        """
        self._options.record_hints(**hints)
        destination = Destination(
            config_dict, (pef_metadata, metadata), output, {"target": target, "level": level}
        )
        return self._compiler.compile_graphs(destination, name=name, samba_only=samba_only)
