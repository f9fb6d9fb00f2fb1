"""Runs of several replicas: who they are, how they begin alike, and how they combine gradients."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import weakref
from typing import Final

import numpy as np

from samba_onnx.errors import ScheduleError, UsageError
from samba_onnx.pef.decoding import to_tree
from samba_onnx.pef.manifest import Manifest
from samba_onnx.program.kinds import LOADED_KINDS, SectionType
from samba_onnx.replicas.endings import tell_end
from samba_onnx.replicas.group import Replicas
from samba_onnx.replicas.watch import BEFORE_ENDING
from samba_onnx.runtime.device import Device
from samba_onnx.runtime.elements import Array
from samba_onnx.runtime.plans import RunPlan
from samba_onnx.runtime.reducing import GradientReduction, ReductionMode
from samba_onnx.sessions.exits import atexit_register, run_handlers
from samba_onnx.sessions.loaded import LoadedProgram
from samba_onnx.sessions.turns import in_turn

MODES: Final = tuple(mode.value for mode in ReductionMode)
_GOING_ON: Final = frozenset({SectionType.BCKWD, SectionType.GRADNORM, SectionType.OPT})
"""Types of sections that read what a forward pass left."""

# However a replica ends, the others are told, and what the program registered is called.
atexit_register(tell_end)
BEFORE_ENDING.append(run_handlers)


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

    They find each other when a program is traced that was launched with ``--data-parallel``, else in
    the first run with ``data_parallel=True``. From then on they all have the weights, buffers, states of
    optimizers and counts of steps that replica 0 had on its device.
    """

    def __init__(self, program: LoadedProgram) -> None:
        """Begin with a program that works alone.

        Args:
            program: The program of the session.
        """
        self._program = program
        self._replicas: Replicas | None = None
        self._joined: weakref.ref[Device] | None = None
        """The device that began with what replica 0 has."""
        self.traced_mode = ReductionMode.NORMAL.value
        """The mode that the program was traced with, which counts for runs that name no other."""

    @property
    def rank(self) -> int:
        """The number of this replica; 0 before it found others."""
        device, replicas = self._program.device, self._replicas
        return replicas.rank if replicas is not None and self.is_joined(device) else 0

    def reduction(
        self, data_parallel: bool, mode: str, reduce_on_rdu: bool
    ) -> GradientReduction | None:
        """Return how a run combines gradients.

        Args:
            data_parallel: Whether replicas share the work.
            mode: When they combine gradients, one of ``MODES``.
            reduce_on_rdu: Whether devices do it among themselves, or their hosts.

        Returns:
            None for a run of one device.

        Raises:
            UsageError: There is no such mode, no group of processes, or its backend cannot be used.
        """
        checked_mode(mode)
        if not data_parallel:
            return None
        replicas = Replicas.current(self._replicas)
        # Alone, there is nothing to add up: the run is one like any other.
        if replicas.size == 1:
            return None
        # Another group of processes: what the device began with was another replica 0's.
        if replicas is not self._replicas:
            self._replicas, self._joined = replicas, None
        chosen = ReductionMode(self.traced_mode if mode == ReductionMode.NORMAL else mode)
        return GradientReduction(chosen, replicas.size, bool(reduce_on_rdu))

    @in_turn
    def join_traced(self) -> None:
        """Let a program that was just traced begin with what replica 0 has, if there are others."""
        if Replicas.exist() and self.reduction(True, self.traced_mode, False) is not None:
            self._join(self._program.required_device(), is_late=False)

    def join(self, device: Device, reduction: GradientReduction | None, plan: RunPlan) -> None:
        """Let this replica begin with what replica 0 has, unless it did already.

        Args:
            device: The device of the session.
            reduction: What ``reduction`` returned for a run; None for one of this device alone.
            plan: The run.

        Raises:
            UsageError: Replicas have different PEFs; or they had different weights when a run without
                ``data_parallel`` computed what this one goes on with.
        """
        if reduction is not None and not self.is_joined(device):
            goes_on = SectionType.FWD not in plan.section_types and _GOING_ON & plan.section_types
            forward_runs, *_ = self._program.hyperparameters.steps_done
            self._join(device, is_late=bool(goes_on and forward_runs))

    def _join(self, device: Device, *, is_late: bool) -> None:
        replicas = self._replicas
        assert replicas is not None, "reduction() was called"
        # First: replicas exchange tensors in the order of the PEF, which must be the same for all.
        self._refuse_other_programs(replicas)
        differs = _share_residents(replicas, device, self._program.manifest)
        if is_late and any(replicas.of_all(differs)):
            raise UsageError(
                "replicas had different weights when they ran FWD, and this run goes on with what it "
                "left: give data_parallel=True to the run of FWD, too, or --data-parallel to the "
                "program, so that replicas begin alike when they are traced"
            )
        hyperparameters = self._program.hyperparameters
        # Counts too: replicas correct Adam's bias and draw seeds by the number of steps.
        hyperparameters.resume_from(replicas.from_first(hyperparameters.steps_done))
        if hyperparameters.rounding_names:
            hyperparameters.round_as(replicas.from_first(hyperparameters.rounding_seed))
        device.reductions.reducer = replicas
        # Weak: whoever loads another PEF must not keep the memory of this device.
        self._joined = weakref.ref(device)

    def is_joined(self, device: Device | None) -> bool:
        """Return whether a device began with what replica 0 of the replicas known now has.

        Args:
            device: The device of the session; None if there is none.
        """
        return device is not None and self._joined is not None and self._joined() is device

    def _refuse_other_programs(self, replicas: Replicas) -> None:
        pef = self._program.required_pef()
        prints = replicas.of_all(_print(pef.manifest))
        others = [rank for rank, other in enumerate(prints) if other != prints[0]]
        if others:
            # All replicas are here: they have the same digests.
            tensors = replicas.of_all(_tensors(pef.manifest))
            listed = ", ".join(map(str, others))
            raise UsageError(
                f"replicas have different programs: that of rank {listed} is not that of rank 0: "
                f"{_first_difference(tensors, others[0])}; this one, rank {replicas.rank}, has "
                f"{pef.path}: give all of them the same PEF"
            )


def _print(manifest: Manifest) -> str:
    """Return a text that only manifests of equal programs have."""
    # A digest: the manifest of a large model is too long to be sent by every replica.
    return hashlib.sha256(json.dumps(to_tree(manifest)).encode()).hexdigest()


def _tensors(manifest: Manifest) -> list[str]:
    """Return what replicas send each other or are told, in the order of the PEF."""
    return [
        f"{symbol.kind.value} {symbol.name} {symbol.type} {list(symbol.shape or ())}"
        for symbol in manifest.symbols
    ]


def _first_difference(tensors: list[list[str]], rank: int) -> str:
    """Return the first tensor that another replica has otherwise than replica 0."""
    pairs = itertools.zip_longest(tensors[0], tensors[rank], fillvalue="missing")
    for number, (first, other) in enumerate(pairs):
        if first != other:
            return f"tensor {number} is {first} on rank 0 and {other} on rank {rank}"
    return "their tensors are the same, their sections are not"


def _share_residents(replicas: Replicas, device: Device, manifest: Manifest) -> bool:
    """Let all devices have what that of replica 0 has; return whether this one had anything else.

    Each value is copied from the device of replica 0, or to that of another one.
    """
    residents = manifest.residents()
    planned = {move.symbol for graph in manifest.graphs for move in graph.load_transfers}
    symbols = {
        symbol.name: symbol
        for symbol in manifest.symbols
        if symbol.kind in LOADED_KINDS and symbol.name in planned & residents
    }
    own: dict[str, Array] = {}
    for name in symbols if replicas.rank == 0 else ():
        # Without transfer_device a program may have loaded some of them only.
        with contextlib.suppress(ScheduleError):
            own[name] = device.read(name)
    differs = False
    for name in replicas.from_first(list(own)):
        if replicas.rank == 0:
            replicas.broadcast(own[name])
            continue
        before = device.memory.whole(name).load()
        array = np.empty_like(before)
        replicas.broadcast(array)
        # By bytes: NaN differs from itself, and -0.0 is the same number as 0.0.
        differs = differs or array.tobytes() != before.tobytes()
        device.load({name: array})
    return differs
