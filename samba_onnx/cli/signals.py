"""Ctrl-C and its relatives, as an exception that nobody swallows."""

from __future__ import annotations

import signal
from types import FrameType

SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""What a user or a supervisor sends to end a command."""

REPEAT_SECONDS = 3.0
"""Native code that loads a module or calls back can turn the exception into one of its own, or
lose it; it is raised again after so long, unless the command is about to end."""

_received: list[int] = []


class Interrupted(BaseException):
    """A signal asked the command to end.

    Not a ``KeyboardInterrupt``: libraries catch that one, and it would hide which signal it was.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def interruptible() -> None:
    """Let the first of ``SIGNALS`` that arrives raise ``Interrupted`` in the main thread.

    Further ones are ignored: the shell sends Ctrl-C to every process of a job and a supervisor
    may pass it on once more, and a second one must not disturb the tidying up.
    """
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup wishes
            signal.signal(number, _raise)


def interruption() -> int | None:
    """Return the signal that asked the command to end, and do not raise it any more."""
    _raise_again_after(0)
    return _received[0] if _received else None


def _raise(number: int, frame: FrameType | None) -> None:
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    _received.append(number)
    _raise_again_after(REPEAT_SECONDS)
    raise Interrupted(number)


def _raise_again_after(seconds: float) -> None:
    """Set the timer, where the system has one; 0 stops it."""
    if hasattr(signal, "setitimer"):
        if seconds:
            signal.signal(signal.SIGALRM, _raise_again)
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _raise_again(number: int, frame: FrameType | None) -> None:
    raise Interrupted(_received[0])
