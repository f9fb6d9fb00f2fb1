"""The replicas that train together: processes of ``torch.distributed``, each with a device of its own.

Whoever launched them, ``torchrun``, ``mpirun`` or a program that called ``init_process_group``, they
are the default group of this process. This is the one place in which gradients meet torch.
"""

from __future__ import annotations

import weakref
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist

from samba_onnx.errors import UsageError
from samba_onnx.replicas.endings import watch
from samba_onnx.replicas.watch import ReplicaWatch
from samba_onnx.runtime.elements import Array
from samba_onnx.tensor.arrays import from_array

_AVERAGING: Final = ("gloo",)
"""Backends that take means themselves; others add up, and the sum is divided here."""
_ON_THE_HOST: Final = ("gloo", "mpi", "ucc")
"""Backends that combine what is in a process' own memory."""


class Replicas:
    """All processes of the default group."""

    def __init__(self) -> None:
        """Take the group as it is now.

        Raises:
            UsageError: There is none, its backend combines what is on other devices only, or
                replicas have different versions of torch or of this product.
            ReplicaError: Some do not come.
        """
        if not self.exist():
            raise UsageError(
                "data_parallel=True needs a group of processes, one per replica: launch the program "
                "with torchrun or mpirun and give it --data-parallel, call "
                "torch.distributed.init_process_group first, or leave data_parallel out"
            )
        self._group = weakref.ref(dist.group.WORLD)
        self.rank = dist.get_rank()
        """The number of this replica."""
        self.size = dist.get_world_size()
        """How many there are."""
        backend = _host_backend(str(dist.get_backend_config(dist.group.WORLD)))
        self._averages = backend in _AVERAGING
        self._watch = watch()

    @staticmethod
    def exist() -> bool:
        """Return whether this process is in a group."""
        return dist.is_available() and dist.is_initialized()

    @classmethod
    def current(cls, known: Replicas | None) -> Replicas:
        """Return the processes of the group that there is now.

        Args:
            known: What this returned before, which stays as long as the group is the same.

        Raises:
            UsageError: There is no group, or its backend combines what is on other devices only.
        """
        if known is not None and cls.exist() and known._group() is dist.group.WORLD:
            return known
        return cls()

    def start(self, values: Array, name: str) -> PendingMean:
        """Begin to replace every number by its mean over all replicas; see ``runtime.GradientReducer``.

        Args:
            values: One dimension, without gaps; torch works on its memory, wherever that is.
            name: What they are.

        Raises:
            ReplicaError: A replica is lost.
        """
        tensor, call = from_array(values), f"REDUCE of {name}"
        operation = dist.ReduceOp.AVG if self._averages else dist.ReduceOp.SUM
        with self._waiting(call):
            work = dist.all_reduce(tensor, operation, async_op=True)
        divisor = 1 if self._averages else self.size
        return PendingMean(work, tensor, divisor, self._watch, call)

    def _waiting(self, call: str) -> AbstractContextManager[None]:
        return nullcontext() if self._watch is None else self._watch.waiting(call)

    def broadcast(self, values: Array) -> None:
        """Replace values by those that replica 0 has.

        Args:
            values: An array of the same type and shape on all replicas, without gaps.
        """
        if values.size:
            # Bytes: there is nothing to compute, and torch lacks some of the types.
            content = torch.from_numpy(values.reshape(-1).view(np.uint8))
            with self._waiting("the broadcast of what rank 0 begins with"):
                _wait(self._watch, dist.broadcast(content, 0, async_op=True))

    def from_first(self, value: Any) -> Any:
        """Return what replica 0 has.

        Args:
            value: Anything that can be pickled; what other replicas give is not looked at.
        """
        box = [value]
        with self._waiting("the broadcast of what rank 0 begins with"):
            dist.broadcast_object_list(box, 0)
        return box[0]

    def agree(self, value: bytes) -> bool:
        """Return whether all replicas, which all ask, give the same value.

        Args:
            value: What this one has.
        """
        return len(set(self.of_all(value))) == 1

    def of_all(self, value: Any) -> list[Any]:
        """Return what every replica has, by their numbers.

        Args:
            value: Anything that can be pickled.
        """
        values: list[Any] = [None] * self.size
        with self._waiting("the comparison of replicas"):
            dist.all_gather_object(values, value)
        return values


@dataclass(frozen=True)
class PendingMean:
    """Means that are being taken."""

    work: Any
    tensor: torch.Tensor
    divisor: int = 1
    """How many numbers each of the tensor's adds up, where the backend takes no means; else 1."""
    watch: ReplicaWatch | None = None
    """Looks after the other replicas meanwhile."""
    call: str = ""
    """What is waited for, for people."""

    def wait(self) -> None:
        """Return when all means are there.

        Raises:
            ReplicaError: Another process is lost, or the network fails.
        """
        with nullcontext() if self.watch is None else self.watch.waiting(self.call):
            _wait(self.watch, self.work)
        if self.divisor != 1:
            self.tensor.div_(self.divisor)


def _wait(watch: ReplicaWatch | None, work: Any) -> None:
    if watch is None:
        work.wait()
    else:
        watch.wait(work)


def _host_backend(config: str) -> str:
    """Return the backend that combines what is on the host, out of ``cpu:gloo,cuda:nccl``.

    Raises:
        UsageError: There is none.
    """
    backends = dict(part.split(":", 1) for part in config.split(",") if ":" in part)
    backend = backends.get("cpu", "")
    if backend not in _ON_THE_HOST:
        raise UsageError(
            f"the group of processes talks through {config}, which combines nothing that is on the "
            'host: call init_process_group with "gloo", "mpi" or "cpu:gloo,cuda:nccl"'
        )
    return backend
