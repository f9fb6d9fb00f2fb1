"""Ctrl-C and its relatives, as an exception that nobody swallows."""

from __future__ import annotations

import signal
from types import FrameType

SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""What a user or a supervisor sends to end a command."""


class Interrupted(BaseException):
    """A signal asked the command to end.

    Not a ``KeyboardInterrupt``: libraries catch that one, and it would hide which signal it was.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def interruptible() -> None:
    """Let each of ``SIGNALS`` raise ``Interrupted`` in the main thread, once.

    Further signals are ignored: the shell sends Ctrl-C to every process of a job and a supervisor
    may pass it on once more, and a second one must not disturb the tidying up.
    """
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup wishes
            signal.signal(number, _raise)


def _raise(number: int, frame: FrameType | None) -> None:
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise Interrupted(number)
