"""One thread at a time, and only in the process that made the device.

A run copies inputs into device memory, executes there, and copies outputs back; whoever came in
between would find, or leave, somebody else's values. Each device is therefore used under a mutex,
which the thread that holds it may take again: code of the user that is called within (a tensor's
materializer, ``__array__`` of an input) may use the device itself.

A forked child has the parent's memory, but neither its threads nor a mutex that another thread will
ever let go of. Right after a fork, the mutex of every device of the parent is replaced by one that
refuses; nothing can wait for it.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Concatenate, Final, NoReturn, ParamSpec, Protocol, TypeVar

from samba_onnx.errors import DeviceError

Mutex = AbstractContextManager[Any]
"""What is entered to keep others out; may be entered again by the thread that is in."""


class DeviceLock:
    """Lets one thread at a time use one device.

    Whoever uses the device enters ``mutex``, asked for anew each time: a plain attribute, for small
    models run in a few microseconds.
    """

    __slots__ = ("_process", "mutex")

    def __init__(self, mutex: Mutex | None = None) -> None:
        """Begin with nobody in.

        Args:
            mutex: Shared with other devices; None for one of its own.
        """
        self.mutex: Mutex = threading.RLock() if mutex is None else mutex
        """Entered for as long as something is done; refuses in a forked child."""
        self._process = os.getpid()

    @property
    def is_foreign(self) -> bool:
        """Whether this process was forked from the one that has the device."""
        return isinstance(self.mutex, _Refusal)

    def refuse(self) -> None:
        """Refuse every use from now on: the device is that of the parent of this process."""
        if not self.is_foreign:
            self.mutex = _Refusal(self._process)


class Locked(Protocol):
    """Something that is used by one thread at a time."""

    lock: DeviceLock
    """Lets one thread at a time in."""


_Owner = TypeVar("_Owner", bound=Locked)
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class RenewedMutex:
    """A mutex of the whole process; a forked child begins with one that nobody has."""

    def __init__(self) -> None:
        """Begin with nobody in."""
        self.mutex: Mutex = threading.RLock()
        """Entered for as long as something is done."""
        _after_fork(self.renew)

    def renew(self) -> None:
        """Begin anew; for a process that has no other thread."""
        self.mutex = threading.RLock()


class _Refusal:
    """Stands for a mutex whose device belongs to another process."""

    def __init__(self, process: int) -> None:
        self._process = process

    def __enter__(self) -> NoReturn:
        raise DeviceError(
            f"the device belongs to process {self._process}, and this is process {os.getpid()}, "
            "forked from it: start processes that use a device with multiprocessing's 'spawn', or "
            "make a new Device in this one (a session: call samba.utils.trace_graph again)"
        )

    def __exit__(self, *_exception: object) -> None:
        """Is never reached."""


def in_turn(
    method: Callable[Concatenate[_Owner, _Parameters], _Result],
) -> Callable[Concatenate[_Owner, _Parameters], _Result]:
    """Let a method keep other threads out of its object's device until it is done.

    Args:
        method: What an object with a lock does; it may use the device as often as it likes.
    """

    @functools.wraps(method)
    def exclusive(
        self: _Owner, /, *args: _Parameters.args, **kwargs: _Parameters.kwargs
    ) -> _Result:
        with self.lock.mutex:
            return method(self, *args, **kwargs)

    return exclusive


# Weak, so that a device that nobody uses any more can go.
_IN_USE: Final[weakref.WeakSet[Locked]] = weakref.WeakSet()
_ABANDONED: Final[list[Locked]] = []
"""Devices of the parent. The child keeps them: to end an engine is to wait for its threads, which
are in the parent only."""


def refuse_in_children(device: Locked) -> None:
    """Let forked processes refuse to use a device.

    Args:
        device: Is in use in this process from now on.
    """
    _IN_USE.add(device)


def _abandon() -> None:
    for device in tuple(_IN_USE):
        device.lock.refuse()
        _ABANDONED.append(device)


def _after_fork(function: Callable[[], None]) -> None:
    # Systems without fork have no such hook, and need none.
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


_after_fork(_abandon)
