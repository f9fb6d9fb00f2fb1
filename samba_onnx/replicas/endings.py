"""How a replica ends: the others are told, and nobody's end is held up by connections to the lost."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Final

import torch.distributed as dist

from samba_onnx.errors import ReplicaError
from samba_onnx.replicas.states import first_line
from samba_onnx.replicas.watch import ReplicaWatch

_current: ReplicaWatch | None = None
_shown_before: Final = sys.excepthook


def watch() -> ReplicaWatch | None:
    """Return the watch over the replicas of the default group; all of them call this at once.

    Returns:
        None for a group of one process.

    Raises:
        UsageError: Replicas differ in what must be the same, or ``CCL_TIMEOUT`` is wrong.
        ReplicaError: Some do not come.
    """
    global _current
    if dist.get_world_size() == 1:
        return None
    # A program may destroy its group and make another, of which the old watch knows nothing.
    if _current is None or not _current.is_of_current_group():
        if _current is not None:
            _current.stop()
        _current = ReplicaWatch()
        _catch_termination(_current.wake)
        sys.excepthook = _show
    return _current


def tell_exception(error: BaseException) -> bool:
    """Tell the other replicas of an exception that ends this process.

    Args:
        error: What the program raised.

    Returns:
        Whether it is about a lost replica, and its one line was written: a traceback says nothing more.
    """
    current = _current
    if current is None or current.is_over:
        return False
    # torch knows that a connection broke; who is lost may be known to the others.
    if not isinstance(error, ReplicaError) and _is_of_the_network(error):
        current.failed_at(error)
        with contextlib.suppress(ReplicaError):
            current.explain()
    if current.fault is not None and (isinstance(error, ReplicaError) or _is_of_the_network(error)):
        current.speak()
        return True
    current.tell_end(f"raised {type(error).__name__}: {first_line(error)}")
    return False


def tell_end() -> None:
    """Tell the other replicas that this process ends in an orderly way."""
    if _current is not None:
        _current.tell_end("ended")


def _is_of_the_network(error: BaseException) -> bool:
    # These are plain RuntimeErrors: only their texts tell them from others.
    words = ("gloo", "Connection", "TCPStore", "recvValue", "sendBytes")
    return isinstance(error, RuntimeError) and any(word in str(error) for word in words)


def _catch_termination(wake: int) -> None:
    """Let the watch hear of SIGTERM, unless the program catches it, or the system cannot tell."""
    # Python lets only the main thread handle signals.
    is_main = threading.current_thread() is threading.main_thread()
    if (
        not is_main
        or os.name != "posix"
        or signal.getsignal(signal.SIGTERM)
        not in (
            signal.SIG_DFL,
            _on_termination,
        )
    ):
        return
    # set_wakeup_fd refuses a descriptor whose writing may block.
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, _on_termination)


def _on_termination(number: int, _frame: FrameType | None) -> None:
    """Leave the signal to the watch, while there is one."""
    if _current is None or _current.is_over:
        # Nobody watches: the signal does what it does without a handler.
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _forget_in_child() -> None:
    """Be no replica in a process that this one forked, as one that loads data."""
    global _current
    _current = None
    # The fork may come from another thread than the main one, which may change no handlers.
    with contextlib.suppress(ValueError):
        if signal.getsignal(signal.SIGTERM) is _on_termination:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _leave() -> None:
    """End without waiting for connections to a lost replica, which would hold up the interpreter."""
    tell_end()
    if _current is None:
        return
    is_lost = _current.fault is not None and not _current.is_over
    is_of_current_group = _current.is_of_current_group()
    _current.stop()
    if is_of_current_group and not is_lost:
        # A thread of gloo's may hold the last tensor still, and needs the interpreter to let go of it:
        # where that has ended, C++ aborts the process ("terminate called without an active exception").
        dist.destroy_process_group()
    elif is_lost:
        # os._exit writes nothing that is still buffered.
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(1)


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not tell_exception(error):
        _shown_before(kind, error, trace)


# Before a program registers what is to be called, so that this comes last.
atexit.register(_leave)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
