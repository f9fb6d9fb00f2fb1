"""What this machine says of another process: whether it lives, and whether it was stopped."""

from __future__ import annotations

import enum
import os
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Life", "ProcessIdentity"]


class Life(enum.StrEnum):
    """What a process is doing, as far as its machine tells."""

    RUNNING = "running"
    STOPPED = "stopped"
    """By a signal, or by a debugger: it does nothing until it is told to go on."""
    GONE = "gone"
    UNKNOWN = "unknown"
    """It runs elsewhere, or the system does not tell."""


@dataclass(frozen=True)
class ProcessIdentity:
    """A process among those of several machines."""

    host: str
    """The name of its machine."""
    pid: int
    realm: str
    """Another one wherever process ids mean other processes: another machine, boot or container."""
    started: str
    """When it started, in the kernel's words: ids are used again. Empty where the system tells none."""

    @classmethod
    def own(cls) -> ProcessIdentity:
        """Return that of this process."""
        _, started = _status(os.getpid())
        return cls(socket.gethostname(), os.getpid(), _realm(), started)

    def life(self) -> Life:
        """Return what it is doing now."""
        # Ids mean other processes elsewhere, and without a start time the id may have been used
        # again.
        if self.realm != _realm() or not self.started:
            return Life.UNKNOWN
        state, started = _status(self.pid)
        # A zombie is gone for everyone but its parent.
        if state in ("", "Z", "X") or started != self.started:
            return Life.GONE
        return Life.STOPPED if state in "Tt" else Life.RUNNING

    def end_if_stopped(self) -> None:
        """Ask it to end and let it go on, if it was stopped on this machine.

        Raises:
            OSError: It is another user's.
        """
        if self.life() is Life.STOPPED:
            # The first signal waits until the process goes on.
            os.kill(self.pid, signal.SIGTERM)
            os.kill(self.pid, signal.SIGCONT)


def _realm() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _status(pid: int) -> tuple[str, str]:
    """Return the letter of a process' state and when it started; empty texts if there is none."""
    try:
        content = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "", ""
    # The program's name, in parentheses, may have anything in it.
    # Field 22 of the line, counted behind the name.
    fields = content.rpartition(")")[2].split()
    return fields[0], fields[19]
