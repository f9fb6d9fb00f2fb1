"""SambaSession: compiles models, and runs them.

The class is what users see: every method with its whole signature and documentation, which is why
this file is long, and nothing behind it but a call of the part that does the work. What a part
needs is handed to it where the session is put together.
"""

from __future__ import annotations

import logging
import os
from argparse import Namespace
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, Final

import onnx
import torch
from pydantic import BaseModel
from torch import nn
from torch.optim import Optimizer

from samba_onnx.export.capture.precision import native_precision
from samba_onnx.facts.names import RATE, SEED
from samba_onnx.facts.roundings import roundings_of
from samba_onnx.graph import SambaGraph
from samba_onnx.runtime.selection import SectionIds
from samba_onnx.sessions.arguments import tell_idle
from samba_onnx.sessions.compiler import Compiler
from samba_onnx.sessions.data_parallel import DataParallel
from samba_onnx.sessions.dynamic_dims import DimInfo, declare, declare_file
from samba_onnx.sessions.exits import register, run_and_exit
from samba_onnx.sessions.graph_traces import GraphTraces
from samba_onnx.sessions.hyperparameters import NO_NUMBERS
from samba_onnx.sessions.loaded import LoadedProgram
from samba_onnx.sessions.module_transfers import (
    fetch_buffers,
    fetch_module,
    send_buffers,
    send_module,
)
from samba_onnx.sessions.onnx_modules import Losses
from samba_onnx.sessions.onnx_writer import OnnxWriter
from samba_onnx.sessions.options import Destination, Model, SessionOptions, flat_options
from samba_onnx.sessions.ordered_set import OrderedSet
from samba_onnx.sessions.profiler import Profiler, profiling
from samba_onnx.sessions.program_names import (
    argin_names,
    argin_names_ending,
    section_ids,
    section_types,
    weight_names,
)
from samba_onnx.sessions.runner import Runner
from samba_onnx.sessions.runtime_profile import RuntimeProfile
from samba_onnx.sessions.tensor_access import TensorAccess
from samba_onnx.sessions.trace_mode import TraceMode
from samba_onnx.sessions.traced_state import TracedState
from samba_onnx.sessions.tracer import Tracer
from samba_onnx.sessions.transfers import Transfers, expecting
from samba_onnx.sessions.turns import in_turn
from samba_onnx.tensor import BUFFERS, SambaTensor
from samba_onnx.tensor.lazy_parameters import LAZY
from samba_onnx.tensor.random_values import DrawingOptions

LOGGER: Final = logging.getLogger(__name__)

Settings = Mapping[str, Any] | Namespace | None


class SambaSession:
    """Compiles models into PEFs and runs them on the emulated device.

    Compile once, with ``compile``. To run, possibly in another process, call
    ``samba.utils.trace_graph`` once, which loads the PEF, checks that it was compiled from this
    model, and sends parameters and inputs to the device; then ``run`` as often as wanted.

    Most programs use the one session that there is, ``samba.session``. All sessions of a process
    share one device.
    """

    SambaSession: type[SambaSession]
    """This class, for programs that take ``samba.session`` for its module."""

    def __init__(self, pef_path: str = "") -> None:
        """Begin without a program, or with the PEF of one.

        Args:
            pef_path: Path of a PEF; empty for none. The device is prepared by ``trace_graph``.

        Raises:
            PefError: The PEF cannot be used.
        """
        self._profiler = Profiler()
        self._runtime_profile = RuntimeProfile()
        self._options = SessionOptions()
        self._mode = TraceMode()
        self._traces = GraphTraces()
        self._program = LoadedProgram(self._profiler)
        self._state = TracedState()
        self._compiler = Compiler(self._options, self._mode, self._traces)
        self._parallel = DataParallel(self._program)
        self._tracer = Tracer(
            self._program, self._state, self._mode, self._traces, self._profiler, self._parallel
        )
        self._runner = Runner(self._program, self._state, self._profiler, self._parallel)
        self._access = TensorAccess(self._program, self._state)
        self._writer = OnnxWriter(self._state)
        self.optim_dict: dict[str, SambaTensor] = self._state.optimizer_states
        """State of the optimizers on the device, by name."""
        self.tensor_dict: dict[str, dict[str, SambaTensor]] = self._state.tensors
        """Traced tensors by group and name."""
        self.dynamic_dims: dict[str, DimInfo] = {}
        """Dimensions whose size may vary, by name; see ``create_dynamic_dim``."""
        self.transfers = Transfers(lambda: self._program.ledger)
        """Every copy between host and device, and between devices of replicas."""
        if pef_path:
            self._tracer.load(pef_path)

    @staticmethod
    def reset(pef_path: str = "") -> None:
        """Let ``samba.session`` begin anew: without program, traced tensors and settings.

        What ``set_command_line`` was told stays, for it is about the process.

        Args:
            pef_path: PEF to load; empty for none.

        Raises:
            PefError: The PEF cannot be used.
        """
        SESSION._restart(pef_path)

    @in_turn
    def _restart(self, pef_path: str) -> None:
        """Become a new session, in place: programs hold on to ``samba.session``."""
        self._program.close()
        self._state.clear()
        SambaSession.__init__(self, pef_path)

    def _traced_tensors(self) -> tuple[SambaTensor, ...]:
        """Return every traced tensor but the states of optimizers, which are in ``optim_dict``.

        Programs send those that have data themselves, after tracing with ``transfer_device=False``.
        """
        return tuple(t for group in self.tensor_dict.values() for t in group.values())

    @property
    def buffer_dict(self) -> dict[str, SambaTensor]:
        """Buffers of all converted modules, by name; they share memory with the modules' own."""
        return BUFFERS

    @property
    def ctx(self) -> TensorAccess:
        """The device's tensors by name; programs write gradients there, with ``ctx.set_tensors``."""
        return self._access

    @property
    def tracing(self) -> bool:
        """Whether a graph is being traced; may be set."""
        return self._mode.tracing

    @tracing.setter
    def tracing(self, tracing: bool) -> None:
        self._mode.tracing = bool(tracing)

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
                target,
                level,
                precision,
                kernel_looping,
                stochastic_rounding,
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
        destination = Destination(config_dict, (pef_metadata, metadata), output, target, level)
        return self._compiler.compile_graphs(destination, name=name, samba_only=samba_only)

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

    def run(
        self,
        input_tensors: Any = None,
        output_tensors: Any = (),
        hyperparam_dict: Any = NO_NUMBERS,
        data_parallel: Any = False,
        reduce_on_rdu: bool = False,
        section_ids: SectionIds = (),
        section_types: Sequence[str] = (),
        run_until_call_id: int | None = None,
        run_from_call_id: int | None = None,
        data_parallel_mode: str = "normal",
        train: bool = True,
        *,
        graph_name: str | None = None,
        grad_of_outputs: Sequence[torch.Tensor] | None = None,
        detect_anomaly: bool = False,
    ) -> tuple[SambaTensor, ...]:
        """Copy inputs to the device, execute sections, and copy outputs back.

        ``run(model, inputs, outputs)`` works, too: the model is ignored.

        Args:
            input_tensors: Tensors of the compiled shapes and dtypes, told apart by ``sn_name``: a
                list, a tuple, or a dict, which names those without a name. None, for an input or
                for all, stands for the value that the device has.
            output_tensors: Traced tensors or names whose values are wanted: outputs of the graph,
                in any number and order, or other tensors on the device. One tensor may be given
                as it is.
            hyperparam_dict: Numbers by name, as ``lr`` or ``p`` (the rate of all dropouts), or by
                the name of an argin. They persist. Names that the program does not have are
                ignored; of those that are nobody's, a warning is logged once.
            data_parallel: Take part in a run of all processes of the group of
                ``torch.distributed``: each is a replica with a batch of its own, and GRADNORM and OPT
                see the means of their gradients. Masks of dropouts differ. See
                ``docs/data_parallel.md``.
            reduce_on_rdu: Let devices combine gradients among themselves; otherwise each gradient is
                copied to the host, and its mean back.
            section_ids: Execute these sections only, in this order.
            section_types: Execute sections of these types only, in this order; any case. REDUCE
                combines gradients of replicas, and is nothing to do for one device.
            run_until_call_id: Stop before this call of the schedule.
            run_from_call_id: Begin with this call of the schedule.
            data_parallel_mode: When replicas combine gradients: ``normal``, after the backward, or
                as ``trace_graph`` was told; ``inorder``, while the rest of the backward runs;
                ``optimal``, where besides no optimizer waits for gradients that it does not read.
                Results are the same.
            train: Whether dropouts drop values. Without, their rates are 0 in this run.
            graph_name: The graph to run; may be left out if there is one only.
            grad_of_outputs: Gradients of the graph's outputs, in their order, for the backward
                sections of this and later runs; None leaves one as it is.
            detect_anomaly: Look for NaN and infinite numbers in what each section writes, which is
                slower, and stop at the first: before sections that would use it.

        Returns:
            The values asked for, in that order, in memory of their own.

        Raises:
            NotTracedError: No graph was traced.
            InputError: An input has no name, another shape or dtype, does not exist, or was never
                given. The device is unchanged.
            UsageError: An output or graph does not exist, or arguments contradict each other; or
                there is no group of processes, or gradients of ``data_parallel`` runs are left
                unreduced. The device is unchanged.
            ScheduleError: A section, type or call does not exist, or would read what nothing has
                computed. The device is unchanged.
            AnomalyError: ``detect_anomaly`` found something; names the first section and value.
            ExecutionError: An operator failed.
        """
        return self._runner.run(
            input_tensors,
            output_tensors,
            hyperparam_dict,
            data_parallel,
            reduce_on_rdu,
            section_ids,
            section_types,
            run_until_call_id,
            run_from_call_id,
            data_parallel_mode,
            train,
            graph_name,
            grad_of_outputs,
            detect_anomaly,
        )

    def get_tensors(self, samba_tensors: Sequence[SambaTensor]) -> tuple[SambaTensor, ...]:
        """Copy the values that tensors have on the device.

        Args:
            samba_tensors: Tensors that were traced; they stay as they are.

        Returns:
            New tensors with these names, in memory of their own.

        Raises:
            NotTracedError: No graph was traced.
            InputError: The device has no such tensor.
            ScheduleError: It has no value now.
        """
        return self._access.get_tensors(samba_tensors)

    def get_tensors_by_name(self, names: Sequence[str]) -> tuple[SambaTensor, ...]:
        """Copy values from the device.

        Args:
            names: Names of tensors or regions.

        Returns:
            New tensors with these names, in memory of their own.

        Raises:
            NotTracedError: No graph was traced.
            InputError: The device has no such tensor.
            ScheduleError: It has no value now.
        """
        return self._access.get_tensors_by_name(names)

    def get_samba_tensor_by_name(self, name: str) -> SambaTensor:
        """Return a traced tensor; nothing is copied.

        Args:
            name: Its name.

        Raises:
            InputError: No such tensor was traced.
        """
        return self._state.tensor(name)

    def update_tensor(self, name: str, tensor: SambaTensor | None) -> None:
        """Replace the host side of a traced tensor, or forget it; ``to_device`` sends it.

        Args:
            name: Its name.
            tensor: The new values; None forgets the tensor.

        Raises:
            InputError: No such tensor was traced, or shape or dtype differ.
        """
        self._access.update_tensor(name, tensor)

    def to_device(self) -> None:
        """Send every traced tensor that has values on the host to the device.

        Values that were not made yet are made, one by one, and dropped again.

        Raises:
            NotTracedError: No graph was traced.
        """
        self._access.to_device()

    def get_weight_names(self) -> list[str]:
        """Return the names of all weights of the PEF.

        Raises:
            NotTracedError: The session has no PEF.
        """
        return weight_names(self._program.manifest)

    def get_argin_names(self) -> OrderedSet[str]:
        """Return the names of the scalars that a run may be given: keys of ``hyperparam_dict``.

        Raises:
            NotTracedError: The session has no PEF.
        """
        return argin_names(self._program.manifest)

    def get_dropout_rate_argin_names(self) -> list[str]:
        """Return the names of the rates of the dropouts.

        Raises:
            NotTracedError: The session has no PEF.
        """
        return argin_names_ending(self._program.manifest, RATE)

    def get_dropout_seed_argin_names(self) -> list[str]:
        """Return the names of the seeds of the dropouts.

        Raises:
            NotTracedError: The session has no PEF.
        """
        return argin_names_ending(self._program.manifest, SEED)

    def get_section_types(self) -> set[str]:
        """Return the types of the sections of the PEF.

        Raises:
            NotTracedError: The session has no PEF.
        """
        return section_types(self._program.manifest)

    def get_section_ids(self) -> list[int]:
        """Return the ids of the sections and fallbacks of the PEF, in the order of the schedule.

        Raises:
            NotTracedError: The session has no PEF.
        """
        return section_ids(self._program.manifest)

    @classmethod
    def to_cpu(
        cls, model: nn.Module, optims: Sequence[Optimizer] | None = None, inplace: bool = False
    ) -> None:
        """Copy parameters, buffers and optimizer state from the device to the host.

        Args:
            model: The module that was traced; tensors that the device does not have are left out.
            optims: Its optimizers.
            inplace: Write into the memory that the host's tensors have. Otherwise they get new.

        Raises:
            NoDeviceError: No program is loaded.
        """
        fetch_module(model, optims, inplace)

    @classmethod
    def to_cpu_(cls, model: nn.Module, optims: Sequence[Optimizer] | None = None) -> None:
        """``to_cpu`` into the memory that the host's tensors have.

        Args:
            model: The module that was traced.
            optims: Its optimizers.

        Raises:
            NoDeviceError: No program is loaded.
        """
        fetch_module(model, optims, inplace=True)

    @classmethod
    def to_rdu(cls, model: nn.Module, optims: Sequence[Optimizer] | None = None) -> None:
        """Copy parameters, buffers and optimizer state from the host to the device.

        Args:
            model: The module that was traced; tensors that the device does not have are left out.
            optims: Its optimizers.

        Raises:
            NoDeviceError: No program is loaded.
        """
        send_module(model, optims)

    @classmethod
    def sync_buffers_to_cpu(cls, model: nn.Module, inplace: bool = False) -> None:
        """Copy buffers from the device to the host.

        Args:
            model: The module that was traced.
            inplace: Write into the memory that the host's buffers have.

        Raises:
            NoDeviceError: No program is loaded.
        """
        fetch_buffers(model, inplace)

    @classmethod
    def sync_buffers_to_rdu(cls, model: nn.Module) -> None:
        """Copy buffers from the host to the device.

        Args:
            model: The module that was traced.

        Raises:
            NoDeviceError: No program is loaded.
        """
        send_buffers(model)

    def to_onnx(self, model: Any, path: str | os.PathLike[str] | None = None) -> onnx.ModelProto:
        """Return an ONNX model with the weights that it has by now.

        Weights and buffers of a model that was traced are fetched from the device first, into the
        host's memory. Everything but their content is as it was in the model: names, interface,
        nodes, metadata; losses that were built on it are no part of it.

        Args:
            model: What ``samba.from_onnx`` returned, or the ONNX model that was traced with its
                optimizers, or the path to it.
            path: Where to write the model, in whole or not at all. Weights go into a file beside
                it, named with ``.data`` appended, when they did so in the original or take more
                than 2 GB.

        Returns:
            The model; with data beside the file it refers to that data, else it holds its weights.

        Raises:
            UsageError: The module was not made of an ONNX model, or the ONNX model was not traced
                for training.
            OutputError: The file cannot be written.
            ModelError: A weight has another shape than in the model.
        """
        return self._writer.to_onnx(model, path)

    def setup(self, args: BaseModel) -> None:
        """Set the session up for ``compile``.

        Args:
            args: Settings, such as ``output_folder``, ``pef_name``, ``arch`` and ``o0``; what the
                session does not know is kept.

        Raises:
            UsageError: It is no pydantic model.
        """
        self._options.set_up(args)

    def set_command_line(self, settings: Mapping[str, Any] | Namespace) -> None:
        """Take what the program was started with; SambaFlow's ``parse_app_args`` calls it.

        Programs parse a PEF's name and folder, and do not always hand them on: ``compile`` takes
        them from here when neither ``config_dict`` nor ``setup`` has them. So does ``trace_graph``
        with the path of the PEF, and with ``inference``, which leaves optimizers out where the PEF
        was compiled for inference.

        Args:
            settings: In the place of those before; empty to forget them.

        Raises:
            UsageError: They are no settings.
        """
        SessionOptions.command_line = flat_options(settings)

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

    def enable_pinned_memory(self) -> None:
        """Turn pinned memory on; a hint for SambaLoaders."""
        self._options.pinned_memory = True

    def disable_pinned_memory(self) -> None:
        """Turn pinned memory off."""
        self._options.pinned_memory = False

    def use_pinned_memory(self) -> bool:
        """Whether pinned memory is on."""
        return self._options.pinned_memory

    @staticmethod
    def use_legacy_names(use: bool) -> None:
        """Ask for other names: they are always those of the module tree, which is said if need be.

        Args:
            use: Whether operators are to be named as in old releases.
        """
        if use:
            tell_idle("use_legacy_names")

    def disable_graphamp(self) -> AbstractContextManager[None]:
        """Compute in the model's own types inside, in the ``forward`` of a module that is compiled in others."""
        return native_precision()

    def _add_directives(self, directives: Mapping[str, Any] | None) -> AbstractContextManager[None]:
        """Hints for the compiler on what is traced inside, without effect; the PEF lists them."""
        return self._options.directives(directives)

    @property
    def _context_directives(self) -> Mapping[str, Any]:
        """The hints on what is traced now, by name."""
        return MappingProxyType(self._options.current_directives)

    def record_hint(self, name: str, value: Any = True) -> None:
        """Let the PEF that is compiled next list a hint to SambaFlow's compiler.

        Hints have no effect on what is computed; ``samba-port inspect`` shows them.

        Args:
            name: What the hint is about.
            value: What it says; what JSON does not have is kept as its text.
        """
        self._options.record_hint(name, value)

    def switch_rounding(self, rounding: str, on: bool = True) -> None:
        """Let the program that is compiled next round values to bfloat16 at random, or to nearest.

        Args:
            rounding: ``steps``, ``gradients``, ``convolution-gradients`` or ``bias-gradients``, as
                ``stochastic_rounding`` of ``compile`` takes them.
            on: Whether at random; False counts more than what settings and ``compile`` ask for.

        Raises:
            UsageError: The name is unknown.
        """
        (one,) = roundings_of((rounding,))
        self._options.switch_rounding(one, on)

    def create_dynamic_dim(self, name: str, min: int, max: int, factor: int = 1) -> str:
        """Declare a dimension whose size may vary between runs.

        A program is compiled for the sizes of its inputs, here: it takes inputs of those sizes, and
        ``run`` refuses others. Declare what programs read, compile for the largest size and pad, or
        compile a PEF or a graph for every size. The PEF that is compiled next lists the dimension.

        SambaNova has not published the arguments; they are those of which its programs compose the
        names in ``dynamic_dims``.

        Args:
            name: What the dimension is, as ``batch_size``.
            min: Least size, at least 1.
            max: Largest size.
            factor: What every size is a multiple of.

        Returns:
            The name by which ``dynamic_dims`` has it, as ``batch_size_min_1_max_16_factor_1``.

        Raises:
            UsageError: The sizes contradict each other.
        """
        key = declare(self.dynamic_dims, name, DimInfo(min, max, factor))
        self.record_hint("dynamic_dims", sorted(self.dynamic_dims))
        return key

    def load_dynamic_dims_config(self, path: str | os.PathLike[str]) -> None:
        """Declare the dimensions of a file, as ``create_dynamic_dim`` does.

        Args:
            path: YAML or JSON with lines such as ``batch_size: {min: 1, max: 16, factor: 1}``.

        Raises:
            UsageError: The file cannot be read, or declares no dimensions.
        """
        declare_file(self.dynamic_dims, path)
        self.record_hint("dynamic_dims", sorted(self.dynamic_dims))

    def add_aux_tensor(self, tensor: SambaTensor, name: str) -> None:
        """Keep a tensor by name, beside those that are traced.

        Args:
            tensor: Any.
            name: Its name.

        Raises:
            UsageError: The name is taken.
        """
        self._state.add(tensor, name)

    def is_valid_aux_tensor_name(self, name: str) -> bool:
        """Whether ``add_aux_tensor`` may be given a name.

        Args:
            name: Any text.
        """
        return self._state.is_free(name)

    @in_turn
    def reset_random_generator(self) -> None:
        """Let dropouts draw the masks again that they drew after ``trace_graph``."""
        self._program.hyperparameters.reset_random()

    def expect_transfers(
        self, max_bytes: int | None = None, max_count: int | None = None
    ) -> AbstractContextManager[Transfers]:
        """Allow what runs in a ``with`` block only so many copies between host and device.

        Args:
            max_bytes: Most bytes that may be copied, both ways together; any when None.
            max_count: Most copies that may be made; any when None.

        Returns:
            A context manager, which raises TransferLimitError with a table of the copies.

        Raises:
            UsageError: No limit is given, or a negative one; when the block is entered.
        """
        return expecting(self.transfers, max_bytes, max_count)

    @property
    def profiler(self) -> Profiler:
        """What measures events on the host; see ``samba_profile``."""
        return self._profiler

    def samba_profile(self, filename: str | None = None) -> AbstractContextManager[Profiler]:
        """Measure how long the session's steps take in a ``with`` block.

        Events are SAMBA_SET_PEF, SAMBA_INIT_RUNTIME, SAMBA_SESSION_RUN (with the section types
        behind it), PyRT_RUN, PyRT_GET_TENSORS and PyRT_SET_TENSORS.

        Args:
            filename: A trace to write, which chrome://tracing and Perfetto show.

        Returns:
            A context manager with the profiler.

        Raises:
            OutputError: The trace cannot be written; when the block is left.
        """
        return profiling(self._profiler, filename)

    def start_samba_profile(self) -> None:
        """Begin to measure; see ``samba_profile``."""
        self._profiler.start_profile()

    def end_samba_profile(self, filename: str | None = None) -> None:
        """Stop measuring.

        Args:
            filename: A trace to write; see ``samba_profile``.

        Raises:
            OutputError: It cannot be written.
        """
        self._profiler.stop_profile()
        if filename is not None:
            self._profiler.save(filename)

    def start_runtime_profile(self, timer_enabled: bool = True) -> None:
        """Begin to profile Python and the device, if ``ENABLE_RUNTIME_PERF`` is set.

        Set it to SUMMARY, or to DETAILED before ``trace_graph`` for the time of every section.

        Args:
            timer_enabled: Measure the wall time, too.
        """
        self._runtime_profile.start(timer_enabled)

    def end_runtime_profile(self, log_file: str = "cprofile_tmp.log") -> None:
        """Stop profiling, and write what was measured; without a profile nothing happens.

        Args:
            log_file: The text to write.

        Raises:
            OutputError: It cannot be written.
        """
        self._runtime_profile.end(log_file, *self._program.profile())

    def atexit_register(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Register a function that is called when the program ends, with ``use_abexit`` or not.

        Args:
            func: What to call.
            *args: With what.
            **kwargs: With which keywords.
        """
        register(func, *args, **kwargs)

    def use_abexit(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Run a program, and end the process when it returns or raises, whatever else goes on.

        Exit handlers of ``atexit_register`` are called, those of Python's ``atexit`` are not.

        Args:
            func: The program.
            *args: With what.
            **kwargs: With which keywords.
        """
        run_and_exit(func, *args, **kwargs)


SambaSession.SambaSession = SambaSession

SESSION: Final = SambaSession()
"""The session of this process."""
