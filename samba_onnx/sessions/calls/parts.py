"""What a session is put together of."""

from __future__ import annotations

from samba_onnx.sessions.compiler import Compiler
from samba_onnx.sessions.data_parallel import DataParallel
from samba_onnx.sessions.dynamic_dims import DimInfo
from samba_onnx.sessions.graph_traces import GraphTraces
from samba_onnx.sessions.loaded import LoadedProgram
from samba_onnx.sessions.onnx_writer import OnnxWriter
from samba_onnx.sessions.options import SessionOptions
from samba_onnx.sessions.profiler import Profiler
from samba_onnx.sessions.runner import Runner
from samba_onnx.sessions.runtime_profile import RuntimeProfile
from samba_onnx.sessions.tensor_access import TensorAccess
from samba_onnx.sessions.trace_mode import TraceMode
from samba_onnx.sessions.traced_state import TracedState
from samba_onnx.sessions.tracer import Tracer
from samba_onnx.sessions.transfers import Transfers
from samba_onnx.tensor import SambaTensor

__all__ = ["SessionParts"]


class SessionParts:
    """A part for each kind of work; what a part needs of the others is handed to it here."""

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
