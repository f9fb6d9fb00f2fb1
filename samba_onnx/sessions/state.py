"""What a session knows: the program that is loaded, what was traced, how it was set up."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from samba_onnx.errors import NotTracedError, UsageError
from samba_onnx.graph import SambaGraph
from samba_onnx.pef import Pef, load_pef
from samba_onnx.pef.manifest import Graph, Manifest, Symbol
from samba_onnx.runtime.device import Device
from samba_onnx.runtime.ledger import Ledger
from samba_onnx.sessions.hyperparameters import Hyperparameters
from samba_onnx.sessions.lazy_parameters import LAZY
from samba_onnx.sessions.optimizer_steps import OptimizerSteps
from samba_onnx.sessions.plans import RunPlan
from samba_onnx.sessions.profiler import INIT_RUNTIME, SET_PEF, Profiler
from samba_onnx.sessions.runtime_profile import RuntimeProfile, level
from samba_onnx.sessions.store import SessionStore
from samba_onnx.sessions.traced import TracedGraph
from samba_onnx.sessions.transfers import Transfers
from samba_onnx.tensor import BUFFERS, DEVICE, SambaTensor


class SessionState:
    """The state of a session, and how programs are loaded into it."""

    def __init__(self, pef_path: str = "") -> None:
        """Begin without a program, or with the PEF of one.

        Args:
            pef_path: Path of a PEF; empty for none. The device is prepared by ``trace_graph``.

        Raises:
            PefError: The PEF cannot be used.
        """
        self._pef: Pef | None = None
        self._device: Device | None = None
        self._traced: dict[str, TracedGraph] = {}
        self._pending: list[TracedGraph] = []
        self._graphs: dict[str, SambaGraph] = {}
        self._options: dict[str, Any] = {}
        self._hyperparameters = Hyperparameters()
        self._plans: dict[Any, RunPlan] = {}
        self._renamed = False
        self._only_graph = ""
        """Name of the PEF's graph, where there is one only."""
        self._specs: dict[str, dict[str, Symbol]] = {}
        """Inputs of every graph that was run."""
        self._held: dict[str, torch.Tensor] = {}
        """Traced inputs that only the host reads: the next run takes them along."""
        self._tracing = False
        self._pinned = False
        self._legacy_names = False
        self._context_directives: dict[str, Any] = {}
        self._aux_tensors: dict[str, SambaTensor] = {}
        self._profiler = Profiler()
        self._runtime_profile = RuntimeProfile()
        self.optim_dict: dict[str, SambaTensor] = {}
        """State of the optimizers on the device, by name."""
        self.tensor_dict: dict[str, dict[str, SambaTensor]] = {
            group: {} for group in ("inputs", "outputs", "weights", "buffers", "grads")
        }
        """Traced tensors by group and name."""
        self.dynamic_dims: dict[str, Any] = {}
        """Dimensions whose size may vary: none, for programs are static."""
        self.transfers = Transfers(self._ledger)
        """Every copy between host and device."""
        if pef_path:
            self._load_pef(pef_path)

    @property
    def buffer_dict(self) -> dict[str, SambaTensor]:
        """Buffers of all converted modules, by name; they share memory with the modules' own."""
        return BUFFERS

    @property
    def tracing(self) -> bool:
        """Whether a graph is being traced; may be set."""
        return self._tracing

    @tracing.setter
    def tracing(self, tracing: bool) -> None:
        self._tracing = bool(tracing)

    @contextmanager
    def _traces(self) -> Iterator[None]:
        """Trace inside: parameters keep what they are, and lazy ones stay lazy."""
        before, self._tracing = self._tracing, True
        try:
            with LAZY.paused():
                yield
        finally:
            self._tracing = before

    def _load_pef(self, path: str | os.PathLike[str]) -> Pef:
        """Read a PEF in the place of the one that the session had."""
        with self._profiler.event(SET_PEF):
            pef = load_pef(path)
        self._close()
        self._pef = pef
        return pef

    def _open_device(self, optimizers: OptimizerSteps | None = None) -> Device:
        """Prepare the device for the PEF, and let SambaTensors talk to it."""
        pef = self._loaded_pef()
        with self._profiler.event(INIT_RUNTIME):
            device = Device(
                pef, threads=torch.get_num_threads(), time_sections=level() == "DETAILED"
            )
        self._device = device
        graphs = pef.manifest.graphs
        self._only_graph = graphs[0].name if len(graphs) == 1 else ""
        self._hyperparameters = Hyperparameters(pef.manifest.argins, optimizers)
        DEVICE.attach(SessionStore(device, pef.manifest, self._profiler))
        return device

    def _close(self) -> None:
        """Let go of the program."""
        if self._device is not None:
            self._device.close()
            DEVICE.detach()
        if self._pef is not None:
            self._pef.close()
        self._device = self._pef = None
        self._hyperparameters = Hyperparameters()
        self._plans.clear()
        self._specs.clear()
        self._held.clear()
        self._traced.clear()
        self._renamed = False
        for group in self.tensor_dict.values():
            group.clear()
        self.optim_dict.clear()

    def _restart(self, pef_path: str) -> None:
        """Become a new session, in place."""
        self._close()
        SessionState.__init__(self, pef_path)

    def _ledger(self) -> Ledger | None:
        return None if self._device is None else self._device.ledger

    def _loaded_pef(self) -> Pef:
        if self._pef is None:
            raise NotTracedError(
                "the session has no PEF: give one, as in "
                "samba.utils.trace_graph(model, inputs, pef='out/model/model.pef')"
            )
        return self._pef

    def _open(self) -> Device:
        """The device, ready to run."""
        if self._device is None:
            have = "no PEF" if self._pef is None else "a PEF that was not traced"
            raise NotTracedError(
                f"the session has {have}: call samba.utils.trace_graph(model, inputs, pef=...) "
                "once before running or reading tensors"
            )
        return self._device

    def _manifest(self) -> Manifest:
        return self._loaded_pef().manifest

    def _graph(self, name: str | None) -> Graph:
        """The graph of a name; the only one when None.

        Raises:
            UsageError: There is none, or no name is given and there are several.
        """
        graphs: Mapping[str, Graph] = {graph.name: graph for graph in self._manifest().graphs}
        if name:
            if name not in graphs:
                raise UsageError(f"graph {name!r} does not exist; the PEF has {', '.join(graphs)}")
            return graphs[name]
        if len(graphs) > 1:
            raise UsageError(
                f"the PEF has several graphs; give graph_name, one of {', '.join(graphs)}"
            )
        return next(iter(graphs.values()))
