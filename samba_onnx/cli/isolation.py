"""Run a command in a child process, so that a crash in native code is an error message."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType

from samba_onnx.cli.failures import EXIT_USAGE, complain, flush_output
from samba_onnx.cli.signals import SIGNALS

GRACE_SECONDS = 10.0
"""How long the child may tidy up after a signal before it is killed."""
IMPATIENT_SECONDS = 1.0
"""A second signal after so long kills it at once; sooner, it may be the first one passed on."""


def isolated(action: Callable[[], int], name: str) -> int:
    """Run ``action`` in a forked child and wait for it.

    The fork comes before anything heavy is imported, costs about a millisecond, and the child
    keeps terminal, working folder and open files. Signals sent to this process are passed on.

    Args:
        action: Returns an exit status.
        name: The command's name, with which messages begin.

    Returns:
        The child's exit status; 2, with a message on standard error, if a signal killed it;
        128 + N if it had to be killed after signal N. On systems without fork, the action's own.
    """
    if not hasattr(os, "fork"):
        from samba_onnx.safety.system import note_missing_protections

        note_missing_protections()
        return action()
    # Both processes would write what is buffered now.
    flush_output()
    # The end that only this process holds closes with it, however it dies.
    watched, lifeline = os.pipe()
    # A signal that comes now waits until somebody is there to pass it on: on a busy machine the
    # child may work for a while before this process goes on.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    child = os.fork()
    if child == 0:
        os.close(lifeline)
        _work(action, watched, mask)
    os.close(watched)
    try:
        return _supervise(child, name, mask)
    finally:
        os.close(lifeline)


def _work(action: Callable[[], int], watched: int, mask: Iterable[int]) -> None:
    """Be the child: run the action and leave without any native destructor."""
    status = EXIT_USAGE
    try:
        # Inside: a signal that was waiting must not lead the child back into the parent's code.
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        # A thread: the read blocks until the parent's end of the pipe is closed.
        threading.Thread(target=_end_with_parent, args=(watched,), daemon=True).start()
        status = action()
        flush_output()
    finally:
        os._exit(status)


def _end_with_parent(watched: int) -> None:
    """Wait until the parent is gone, then end this process: nobody waits for its answer."""
    with contextlib.suppress(OSError):
        os.read(watched, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def _supervise(child: int, name: str, mask: Iterable[int]) -> int:
    """Pass signals on to the child, wait for it, and explain its death.

    Args:
        child: The child's process id.
        name: The command's name, with which messages begin.
        mask: Signals that are blocked while this process waits: those that were before the fork.

    Returns:
        The exit status for this process.
    """
    received: list[tuple[int, float]] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        received.append((number, time.monotonic()))
        _, first = received[0]
        if len(received) == 1:
            signal.setitimer(signal.ITIMER_REAL, GRACE_SECONDS)
        impatient = time.monotonic() - first > IMPATIENT_SECONDS
        _send(child, signal.SIGKILL if impatient else number)

    def kill(number: int, frame: FrameType | None) -> None:
        _send(child, signal.SIGKILL)

    signal.signal(signal.SIGALRM, kill)
    for number in SIGNALS:
        # What is ignored stays so, as nohup wishes.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    _, status = os.waitpid(child, 0)
    # The child is gone: an alarm that came later would kill whoever has its number then.
    signal.setitimer(signal.ITIMER_REAL, 0)
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status)
    return _explain(os.WTERMSIG(status), received[0][0] if received else None, name)


def _send(child: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, number)


def _explain(number: int, received: int | None, name: str) -> int:
    """Say in one line why the child died of a signal."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K\x1b[?25h")  # a progress display that was cut off
    if received is not None:
        complain(name, "interrupted, and killed because it did not end by itself")
        return 128 + received
    word = signal.Signals(number).name
    # Nobody here sent it: the system does where memory runs out.
    if number == signal.SIGKILL:
        complain(name, f"its process was killed ({word}), most likely because memory ran out")
    else:
        complain(
            name,
            f"native code crashed ({word}: {signal.strsignal(number)}) on this input; "
            "nothing was left half-written",
        )
    return EXIT_USAGE
