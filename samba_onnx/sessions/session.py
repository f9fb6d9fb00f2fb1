"""SambaSession: compiles models, and runs them.

The class is a table. Every call stands with its signature and documentation on the part that does the
work, and here by its name: what a part needs of the others is handed to it once, in ``__init__``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, Final

import torch

from samba_onnx.export.capture.precision import native_precision
from samba_onnx.runtime.selection import SectionIds
from samba_onnx.sessions import exits, module_transfers
from samba_onnx.sessions.calls import alone, call
from samba_onnx.sessions.compiler import Compiler
from samba_onnx.sessions.data_parallel import DataParallel
from samba_onnx.sessions.dynamic_dims import DynamicDims
from samba_onnx.sessions.graph_traces import GraphTraces
from samba_onnx.sessions.hyperparameters import NO_NUMBERS
from samba_onnx.sessions.loaded import LoadedProgram
from samba_onnx.sessions.onnx_writer import OnnxWriter
from samba_onnx.sessions.profiler import Profiler, profiling
from samba_onnx.sessions.program_names import ProgramNames
from samba_onnx.sessions.run_arguments import ALL_SECTIONS, RunArguments
from samba_onnx.sessions.runner import Runner
from samba_onnx.sessions.runtime_profile import RuntimeProfile
from samba_onnx.sessions.session_options import SessionOptions
from samba_onnx.sessions.tensor_access import TensorAccess
from samba_onnx.sessions.trace_mode import TraceMode
from samba_onnx.sessions.traced_state import TracedState
from samba_onnx.sessions.tracer import Tracer
from samba_onnx.sessions.transfers import Transfers, expecting
from samba_onnx.sessions.turns import in_turn
from samba_onnx.tensor import BUFFERS, SambaTensor


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
        self._options = SessionOptions()
        self._mode = TraceMode()
        self._traces = GraphTraces()
        self._dims = DynamicDims(self._options)
        self._program = LoadedProgram(self._profiler)
        self._names = ProgramNames(self._program)
        self._runtime_profile = RuntimeProfile(self._program.profile)
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
        self.dynamic_dims = self._dims.declared
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
        # While it is still known: __init__ makes a new one, and the old device holds memory.
        self._program.close()
        self._state.clear()
        SambaSession.__init__(self, pef_path)

    # What compiles, and by what.

    setup = call(SessionOptions.setup, "_options")
    set_command_line = call(SessionOptions.set_command_line, "_options")
    use_legacy_names = staticmethod(SessionOptions.use_legacy_names)
    use_pinned_memory = call(SessionOptions.use_pinned_memory, "_options")
    enable_pinned_memory = call(SessionOptions.enable_pinned_memory, "_options")
    disable_pinned_memory = call(SessionOptions.disable_pinned_memory, "_options")
    record_hint = call(SessionOptions.record_hint, "_options")
    switch_rounding = call(SessionOptions.switch_rounding, "_options")
    _add_directives = call(SessionOptions.directives, "_options")
    create_dynamic_dim = call(DynamicDims.create_dynamic_dim, "_dims")
    load_dynamic_dims_config = call(DynamicDims.load_dynamic_dims_config, "_dims")
    compile = call(Compiler.compile, "_compiler")
    add_graph = call(GraphTraces.add_graph, "_traces")
    compile_multigraph = call(Compiler.compile_multigraph, "_compiler")

    @property
    def _context_directives(self) -> Mapping[str, Any]:
        """The hints on what is traced now, by name."""
        return MappingProxyType(self._options.current_directives)

    def disable_graphamp(self) -> AbstractContextManager[None]:
        """Compute in the model's own types inside, in the ``forward`` of a module that is compiled in others."""
        return native_precision()

    # What traces, and what values are meanwhile.

    trace = call(Tracer.trace, "_tracer")
    trace_multigraph = call(Tracer.trace_multigraph, "_tracer")
    init_multigraph_runtime = call(Tracer.init_multigraph_runtime, "_tracer")
    set_output_grads = call(Tracer.set_output_grads, "_tracer")
    use_static_functional = call(TraceMode.use_static_functional, "_mode")
    enable_lazy_param = call(TraceMode.enable_lazy_param, "_mode")
    disable_lazy_param = staticmethod(TraceMode.disable_lazy_param)
    use_lazy_param = staticmethod(TraceMode.use_lazy_param)

    @property
    def tracing(self) -> bool:
        """Whether a graph is being traced; may be set."""
        return self._mode.tracing

    @tracing.setter
    def tracing(self, tracing: bool) -> None:
        self._mode.tracing = bool(tracing)

    # What runs, and what the PEF calls things.

    # No row of the table, which takes 0.4 µs: a run of a small model takes little longer.
    def run(
        self,
        input_tensors: Any = None,
        output_tensors: Any = (),
        hyperparam_dict: Any = NO_NUMBERS,
        data_parallel: Any = False,
        reduce_on_rdu: bool = False,
        section_ids: SectionIds = ALL_SECTIONS,
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
        # Before a record is made of the arguments, which takes as long as a small model: most runs were made before.
        if (
            not data_parallel
            and data_parallel_mode == "normal"
            and section_ids is ALL_SECTIONS
            and not detect_anomaly
            and grad_of_outputs is None
            and run_until_call_id is None
            and run_from_call_id is None
        ):
            results = self._runner.repeat(
                input_tensors, output_tensors, hyperparam_dict, section_types, train, graph_name
            )
            if results is not None:
                return results
        arguments = RunArguments(
            inputs=input_tensors,
            outputs=output_tensors,
            numbers=hyperparam_dict,
            data_parallel=data_parallel,
            reduce_on_rdu=reduce_on_rdu,
            data_parallel_mode=data_parallel_mode,
            section_ids=section_ids,
            section_types=section_types,
            from_call=run_from_call_id,
            until_call=run_until_call_id,
            train=train,
            graph_name=graph_name,
            output_grads=grad_of_outputs,
            detect_anomaly=detect_anomaly,
        )
        return self._runner.run(arguments)

    reset_random_generator = call(Runner.reset_random_generator, "_runner")
    get_weight_names = call(ProgramNames.get_weight_names, "_names")
    get_argin_names = call(ProgramNames.get_argin_names, "_names")
    get_dropout_rate_argin_names = call(ProgramNames.get_dropout_rate_argin_names, "_names")
    get_dropout_seed_argin_names = call(ProgramNames.get_dropout_seed_argin_names, "_names")
    get_section_types = call(ProgramNames.get_section_types, "_names")
    get_section_ids = call(ProgramNames.get_section_ids, "_names")

    # Tensors and whole modules, on the device and on the host.

    get_tensors = call(TensorAccess.get_tensors, "_access")
    get_tensors_by_name = call(TensorAccess.get_tensors_by_name, "_access")
    update_tensor = call(TensorAccess.update_tensor, "_access")
    to_device = call(TensorAccess.to_device, "_access")
    get_samba_tensor_by_name = call(TracedState.get_samba_tensor_by_name, "_state")
    add_aux_tensor = call(TracedState.add_aux_tensor, "_state")
    is_valid_aux_tensor_name = call(TracedState.is_valid_aux_tensor_name, "_state")
    _traced_tensors = call(TracedState.all_but_optimizer_states, "_state")
    to_cpu = classmethod(alone("cls", module_transfers.to_cpu))
    to_cpu_ = classmethod(alone("cls", module_transfers.to_cpu_))
    to_rdu = classmethod(alone("cls", module_transfers.to_rdu))
    sync_buffers_to_cpu = classmethod(alone("cls", module_transfers.sync_buffers_to_cpu))
    sync_buffers_to_rdu = classmethod(alone("cls", module_transfers.sync_buffers_to_rdu))
    to_onnx = call(OnnxWriter.to_onnx, "_writer")

    @property
    def buffer_dict(self) -> dict[str, SambaTensor]:
        """Buffers of all converted modules, by name; they share memory with the modules' own."""
        return BUFFERS

    @property
    def ctx(self) -> TensorAccess:
        """The device's tensors by name; programs write gradients there, with ``ctx.set_tensors``."""
        return self._access

    # What is copied, and how long it takes.

    start_runtime_profile = call(RuntimeProfile.start_runtime_profile, "_runtime_profile")
    end_runtime_profile = call(RuntimeProfile.end_runtime_profile, "_runtime_profile")

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

    # How a program ends.

    atexit_register = alone("self", exits.atexit_register)
    use_abexit = alone("self", exits.use_abexit)


SambaSession.SambaSession = SambaSession

SESSION: Final = SambaSession()
"""The session of this process."""
