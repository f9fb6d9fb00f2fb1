"""How programs for SambaFlow find their other processes: ``init_process_group`` as the vendor's torch has it.

Such programs ask for ``backend="mpi"`` and are launched by ``mpirun``. Torch as it is published knows
neither, so that gloo stands for MPI, and the launcher's environment says who is who.
"""

from __future__ import annotations

import functools
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.distributed.constants import default_pg_timeout

from samba_onnx.errors import UsageError
from samba_onnx.replicas.endings import watch
from samba_onnx.replicas.starts import adapt_meeting, meeting_store

__all__ = ["Place", "adapt_process_groups", "launched_place"]

_log = logging.getLogger(__name__)
_LAUNCHERS: Final = (
    ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),  # torchrun
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),  # Open MPI
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"),  # MVAPICH2
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),  # MPICH and Intel MPI
    # Slurm's srun: the step's variables, as those of the job are also those of its batch script, a
    # process of its own. It says how many run on a machine in words, as "2(x3)".
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"),
)
"""Where launchers say a process' rank, the number of processes, and that on its machine."""
_PORTS: Final = range(20_000, 32_000)
"""Below those that Linux gives to connections."""


@dataclass(frozen=True)
class Place:
    """A process among those that were launched together."""

    rank: int
    size: int
    local_size: int | None = None
    """How many of them run on this machine, where the launcher says so."""


def launched_place(environment: Mapping[str, str]) -> Place:
    """Return the place that a launcher gave to a process.

    Args:
        environment: The process' environment variables.

    Returns:
        That of torchrun, Open MPI, MVAPICH2, MPICH or Intel MPI; a group of one process without any.

    Raises:
        UsageError: A launcher's variable is no number.
    """
    for rank, size, local_size in _LAUNCHERS:
        if rank in environment and size in environment:
            local = _number(environment, local_size) if local_size in environment else None
            return Place(_number(environment, rank), _number(environment, size), local)
    return Place(0, 1, 1)


def _number(environment: Mapping[str, str], name: str) -> int:
    """Return the number that a variable is, or begins with: Slurm's "2(x3)" and "2,1" are lists."""
    try:
        return int(re.split(r"[(,]", environment[name])[0])
    except ValueError:
        raise UsageError(
            f"the environment variable {name} is {environment[name]!r}: a launcher sets it to a number"
        ) from None


def adapt_process_groups() -> None:
    """Let ``torch.distributed.init_process_group`` start what programs for SambaFlow ask for.

    From then on, ``backend="mpi"`` is gloo where torch is built without MPI, which is logged once as
    a warning; processes that ``mpirun`` launched find each other; and a process that nobody launched
    is a group of one. What a program says itself is left as it is. Calling it again changes nothing.
    """
    adapt_meeting(_arguments, __name__, watch)


def _arguments(given: dict[str, Any]) -> dict[str, Any]:
    """Return what torch's function is given for what a program states."""
    if given.get("backend") is not None:
        given["backend"] = _backend(str(given["backend"]))
    if not any(given.get(name) for name in ("init_method", "store", "world_size")):
        timeout = given.get("timeout") or default_pg_timeout
        given |= _meeting(launched_place(os.environ), timeout)
    return given


def _backend(name: str) -> str:
    """Return a backend that this torch has in place of MPI."""
    if dist.is_mpi_available() or "mpi" not in name.lower():
        return name
    _warn_of_gloo()
    return name.lower().replace("mpi", "gloo")


@functools.cache
def _warn_of_gloo() -> None:
    _log.warning("torch is built without MPI: processes talk through gloo")


def _meeting(place: Place, timeout: timedelta) -> dict[str, Any]:
    """Return the arguments with which a process meets the others of its group.

    Raises:
        UsageError: They run on several machines, and nobody said where they meet; or they differ in
            what must be the same.
        ReplicaError: Some do not come.
    """
    if place.size == 1:
        return {"store": HashStore(), "rank": 0, "world_size": 1}
    if "MASTER_ADDR" not in os.environ and place.local_size not in (None, place.size):
        raise UsageError(
            f"{place.size} processes were launched, {place.local_size} of them on this machine: set "
            "MASTER_ADDR to the name of the first one's machine, and MASTER_PORT to a port there"
        )
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    # All that one mpirun launches here are its children: another one's meet at another port.
    os.environ.setdefault("MASTER_PORT", str(_PORTS[os.getppid() % len(_PORTS)]))
    _number(os.environ, "MASTER_PORT")  # which says what it should be, if it is none
    store = meeting_store(place.rank, place.size, timeout)
    return {"store": store, "rank": place.rank, "world_size": place.size}
