"""Runs of several replicas: who they are, how they begin alike, and how they combine gradients."""

from __future__ import annotations

import contextlib
import hashlib
from typing import Final

import numpy as np

from samba_onnx.errors import ScheduleError, UsageError
from samba_onnx.facts.dtypes import tensor_element
from samba_onnx.pef.manifest import Manifest
from samba_onnx.program.kinds import LOADED_KINDS
from samba_onnx.runtime.device import Device
from samba_onnx.runtime.elements import Array
from samba_onnx.runtime.reducing import GradientReduction, ReductionMode
from samba_onnx.sessions.loaded import LoadedProgram
from samba_onnx.workflows.replicas import Replicas

MODES: Final = tuple(mode.value for mode in ReductionMode)


def checked_mode(mode: str) -> str:
    """Return a mode, unless there is no such.

    Args:
        mode: When replicas combine gradients, one of ``MODES``.

    Raises:
        UsageError: There is no such mode.
    """
    if mode not in MODES:
        raise UsageError(f"data_parallel_mode is {mode!r}; give one of {', '.join(MODES)}")
    return mode


class DataParallel:
    """What a session knows of the other replicas of its program.

    They are found by the first run with ``data_parallel=True`` after a program was traced. All of
    them make it, and then they all have the weights, buffers, states of optimizers and counts of
    steps that replica 0 has on its device.
    """

    def __init__(self, program: LoadedProgram) -> None:
        """Begin with a program that works alone.

        Args:
            program: The program of the session.
        """
        self._program = program
        self._replicas: Replicas | None = None
        self._joined: Device | None = None
        """The device that has what replica 0 has."""
        self.traced_mode = ReductionMode.NORMAL.value
        """The mode that the program was traced with, which counts for runs that name no other."""

    def reduction(
        self, data_parallel: bool, mode: str, reduce_on_rdu: bool
    ) -> tuple[GradientReduction | None, int]:
        """Return how a run combines gradients, and the number of this replica.

        Args:
            data_parallel: Whether replicas share the work.
            mode: When they combine gradients, one of ``MODES``.
            reduce_on_rdu: Whether devices do it among themselves, or their hosts.

        Returns:
            None and 0 for a run of one device.

        Raises:
            UsageError: There is no such mode, no group of processes, or its backend cannot be used.
        """
        checked_mode(mode)
        if not data_parallel:
            return None, 0
        replicas = Replicas()
        if replicas.size == 1:
            return None, 0
        self._replicas = replicas
        chosen = ReductionMode(self.traced_mode if mode == ReductionMode.NORMAL else mode)
        return GradientReduction(chosen, replicas.size, bool(reduce_on_rdu)), replicas.rank

    def join(self, device: Device, reduction: GradientReduction | None) -> None:
        """Let this replica begin with what replica 0 has, unless it did already.

        Args:
            device: The device of the session.
            reduction: What a run was found to be; None for one of this device alone.

        Raises:
            UsageError: Replicas have different PEFs.
        """
        replicas = self._replicas
        if reduction is None or replicas is None or device is self._joined:
            return
        self._refuse_other_programs(replicas)
        _share_residents(replicas, device, self._program.manifest)
        hyperparameters = self._program.hyperparameters
        hyperparameters.resume_from(replicas.from_first(hyperparameters.steps_done))
        device.reductions.reducer = replicas
        self._joined = device

    def _refuse_other_programs(self, replicas: Replicas) -> None:
        pef = self._program.required_pef()
        prints = replicas.of_all(_print(pef.manifest))
        others = [rank for rank, other in enumerate(prints) if other != prints[0]]
        if others:
            listed = ", ".join(map(str, others))
            raise UsageError(
                f"replicas have different programs: that of rank {listed} is not that of rank 0; this "
                f"one, rank {replicas.rank}, has {pef.path}: give all of them the same PEF"
            )


def _print(manifest: Manifest) -> str:
    """Return a text that only manifests of equal programs have."""
    return hashlib.sha256(repr(manifest).encode()).hexdigest()


def _share_residents(replicas: Replicas, device: Device, manifest: Manifest) -> None:
    """Let all devices have what that of replica 0 has; each value is copied from there, or to it."""
    residents = manifest.residents()
    kinds = {symbol.name: symbol.kind for symbol in manifest.symbols}
    own: dict[str, Array] = {}
    planned = {move.symbol for graph in manifest.graphs for move in graph.load_transfers}
    if replicas.rank == 0:
        for name in sorted(planned & residents):
            if kinds[name] in LOADED_KINDS:
                # Without transfer_device a program may have loaded some of them only.
                with contextlib.suppress(ScheduleError):
                    own[name] = device.read(name)
    symbols = {symbol.name: symbol for symbol in manifest.symbols}
    for name in replicas.from_first(list(own)):
        if replicas.rank == 0:
            replicas.broadcast(own[name])
            continue
        element, shape = tensor_element(symbols[name].type), symbols[name].shape
        assert element is not None, "residents are tensors of numbers"
        array = np.empty([size for size in shape or () if isinstance(size, int)], element.numpy)
        replicas.broadcast(array)
        device.load({name: array})
