"""The program that a session has loaded, and the device that it runs on."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Final

import torch

from samba_onnx.errors import NotTracedError, UsageError
from samba_onnx.pef import Pef, load_pef
from samba_onnx.pef.manifest import Graph, Manifest, Symbol
from samba_onnx.runtime.device import Device
from samba_onnx.runtime.ledger import Ledger
from samba_onnx.runtime.parallel_device import open_device
from samba_onnx.runtime.profile import Profile
from samba_onnx.sessions.gradient_overwrites import GradientOverwrites
from samba_onnx.sessions.hyperparameters import Hyperparameters
from samba_onnx.sessions.optimizer_steps import OptimizerSteps
from samba_onnx.sessions.profiler import INIT_RUNTIME, SET_PEF, Profiler
from samba_onnx.sessions.runtime_profile import level
from samba_onnx.sessions.store import SessionStore
from samba_onnx.sessions.turns import TURN
from samba_onnx.sessions.unread_outputs import UnreadOutputs
from samba_onnx.tensor import DEVICE

LOGGER: Final = logging.getLogger(__name__)


class LoadedProgram:
    """A PEF with its device, neither of which there need be.

    A PEF is loaded first; its device is opened by whoever knows the optimizers that it was traced
    with, and SambaTensors talk to it from then on.
    """

    def __init__(self, profiler: Profiler) -> None:
        """Begin without a program.

        Args:
            profiler: Measures how long PEF and device take, and the device's reads and writes.
        """
        self._profiler = profiler
        self.pef: Pef | None = None
        """The PEF; None before one was loaded."""
        self.device: Device | None = None
        """The device; None before it was opened."""
        self.hyperparameters = Hyperparameters()
        """Scalars that runs send to the device; they persist as long as the program."""
        self.overwrites: GradientOverwrites | None = None
        """Watches over the gradients of the device; None without one."""
        self.unread = UnreadOutputs()
        """Watches over runs without outputs."""
        self._graphs: dict[str, Graph] = {}
        self._inputs: dict[str, dict[str, Symbol]] = {}
        self._whole: Manifest | None = None
        self.only_graph = ""
        """Name of the graph that runs when no name is given; empty when there are several."""

    @property
    def manifest(self) -> Manifest:
        """What the PEF says about itself, with whole values where several RDUs have shards.

        Raises:
            NotTracedError: There is no PEF.
        """
        self.required_pef()
        assert self._whole is not None
        return self._whole

    @property
    def ledger(self) -> Ledger | None:
        """The copies between host and device; None without a device."""
        return None if self.device is None else self.device.ledger

    def load(self, path: str | os.PathLike[str]) -> Pef:
        """Read a PEF, and let go of the one before; an unusable PEF changes nothing.

        Args:
            path: Where it is.

        Raises:
            PefError: The PEF cannot be used.
        """
        with self._profiler.event(SET_PEF):
            pef = load_pef(path)
        # After the new PEF was read: one that cannot be used leaves the old one running.
        self.close()
        self.pef = pef
        self._graphs = {graph.name: graph for graph in pef.manifest.graphs}
        # The session speaks of whole tensors, whatever shards several RDUs have.
        self._whole = pef.manifest.whole()
        self._inputs = _inputs(self._whole)
        self.only_graph = next(iter(self._graphs)) if len(self._graphs) == 1 else ""
        return pef

    def open_device(self, optimizers: OptimizerSteps | None = None) -> Device:
        """Prepare the device for the PEF, and let SambaTensors talk to it.

        Args:
            optimizers: Optimizers that the program was traced with; None without any.

        Raises:
            NotTracedError: There is no PEF.
            OutOfDeviceMemoryError: Its tensors do not fit into the device's memory.
        """
        pef = self.required_pef()
        with self._profiler.event(INIT_RUNTIME):
            device = open_device(
                pef,
                threads=torch.get_num_threads(),
                time_sections=level() == "DETAILED",
                # The same lock for all sessions: a turn that uses the device needs no second one.
                mutex=TURN.mutex,
            )
        # The words of SambaFlow's runtime, by which people find in a log what was run.
        LOGGER.info("sn_create_session: PEF File: %s", pef.path)
        self.device = device
        # What watches and counts belongs to a device: another one begins without any runs.
        self.hyperparameters = Hyperparameters(pef.manifest.argins, optimizers)
        self.overwrites = GradientOverwrites(pef.manifest)
        self.unread = UnreadOutputs(self.manifest.symbols)
        # Last: tensors must not find a device that could not be prepared.
        DEVICE.attach(SessionStore(device, self.manifest, self._profiler))
        return device

    def close(self) -> None:
        """Let go of PEF, device and hyperparameters."""
        if self.device is not None:
            self.device.close()
            DEVICE.detach()
        if self.pef is not None:
            self.pef.close()
        self.pef = self.device = None
        self.hyperparameters = Hyperparameters()
        self.overwrites = None
        self.only_graph = ""

    def required_pef(self) -> Pef:
        """Return the PEF.

        Raises:
            NotTracedError: There is none.
        """
        if self.pef is None:
            raise NotTracedError(
                "the session has no PEF: give one, as in "
                "samba.utils.trace_graph(model, inputs, pef='out/model/model.pef'), or by --pef on "
                "the command line of a SambaFlow program"
            )
        return self.pef

    def required_device(self) -> Device:
        """Return the device, ready to run.

        Raises:
            NotTracedError: There is none.
        """
        if self.device is None:
            have = "no PEF" if self.pef is None else "a PEF that was not traced"
            raise NotTracedError(
                f"the session has {have}: call samba.utils.trace_graph(model, inputs, pef=...) "
                "once before running or reading tensors"
            )
        return self.device

    def graph(self, name: str | None) -> Graph:
        """Return a graph of the PEF.

        Args:
            name: Its name; None or empty for the only one.

        Raises:
            NotTracedError: There is no PEF.
            UsageError: There is no such graph, or no name is given and there are several.
        """
        self.required_pef()
        name = name or self.only_graph
        if isinstance(name, str) and name in self._graphs:
            return self._graphs[name]
        known = ", ".join(self._graphs)
        if name:
            raise UsageError(f"graph {name!r} does not exist; the PEF has {known}")
        raise UsageError(f"the PEF has several graphs; give graph_name, one of {known}")

    def inputs(self, graph: str) -> Mapping[str, Symbol]:
        """Return the symbols that a run of a graph may be given, by name; argins are none of them.

        Args:
            graph: Name of a graph of the PEF.
        """
        return self._inputs[graph]

    def profile(self) -> tuple[Profile | None, tuple[str, ...]]:
        """Return what the device measured, if there is one, and the names of the PEF's graphs."""
        device = None if self.device is None else self.device.profile
        graphs = () if self.pef is None else self.pef.manifest.graphs
        return device, tuple(graph.name for graph in graphs)


def _inputs(manifest: Manifest) -> dict[str, dict[str, Symbol]]:
    """The inputs of every graph that are no argins, by name."""
    symbols = {symbol.name: symbol for symbol in manifest.symbols}
    argins = {argin.name for argin in manifest.argins}
    return {
        graph.name: {name: symbols[name] for name in graph.inputs if name not in argins}
        for graph in manifest.graphs
    }
