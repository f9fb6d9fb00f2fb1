"""What operating systems differ in: the one place that knows which calls there are.

Linux has everything that is used here. Where a system lacks a call, another one takes its place, or
the protection that it gives is left out; ``missing_protections`` says which are, and they are logged
once per process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import subprocess

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]
try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

__all__ = [
    "HAS_DRIVES",
    "NEW_FILE",
    "READ",
    "READ_NO_LINK",
    "cause_of_death",
    "die_with",
    "do_not_note",
    "has_folder_descriptors",
    "is_redirected",
    "kill_group",
    "limit_process",
    "lock",
    "lock_folder",
    "missing_protections",
    "note_missing_protections",
    "open_folder",
    "permit",
    "read_at",
    "read_into",
]

LOGGER: Final = logging.getLogger("samba_onnx")


HAS_DRIVES: Final = os.name == "nt"
"""Whether a colon in a path names a drive, or a stream of a file."""


def _flags(*names: str) -> int:
    """Return the flags of ``os.open`` with these names, without those that this system lacks."""
    flags = 0
    for name in names:
        flags |= getattr(os, name, 0)
    return flags


# O_BINARY: without it, Windows translates the ends of lines.
READ: Final = _flags("O_RDONLY", "O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY", "O_BINARY")
"""How a file is opened for reading: no waiting, nothing inherited by other programs."""

READ_NO_LINK: Final = READ | _flags("O_NOFOLLOW")
"""How a file is opened for reading that must not be a symbolic link."""

NEW_FILE: Final = _flags("O_RDWR", "O_CREAT", "O_EXCL", "O_NOFOLLOW", "O_CLOEXEC", "O_BINARY")
"""How a file is made that must not exist yet."""

_FOLDER: Final = _flags("O_RDONLY", "O_DIRECTORY", "O_CLOEXEC")

_FIRST_CRASH: Final = 0xC0000000
"""The least status of a process that Windows ended."""

_CRASHES: Final = {
    "SIGFPE": "an integer division by zero, or by -1 of the smallest integer",
    "SIGSEGV": "an access to memory that is not its own",
    "SIGABRT": "a check inside of the library",
    "SIGBUS": "a file that became shorter while it was read",
    # What Windows calls them.
    "0xC0000094": "an integer division by zero",
    "0xC0000095": "an integer division of the smallest integer by -1",
    "0xC0000005": "an access to memory that is not its own",
    "0xC0000409": "a check inside of the library",
    "0xC00000FD": "a stack that is full",
}


def missing_protections() -> tuple[str, ...]:
    """Return what protects on Linux and is missing on this system, in words; nothing on Linux."""
    return tuple(text for is_there, text in _protections() if not is_there)


def _protections() -> Iterator[tuple[bool, str]]:
    yield hasattr(os, "fork"), "a crash of native code ends the command without a message"
    yield resource is not None, "child processes have no limit on memory and processor time"
    yield (
        has_folder_descriptors(),
        "a folder that is exchanged while a model is read may lead elsewhere",
    )
    yield fcntl is not None, "two runs may write the same dataset"
    yield hasattr(os, "killpg"), "what a child process started may outlive it"


_noted = threading.Event()


def note_missing_protections() -> None:
    """Log one warning, once per process, that says which protections this system lacks; none on Linux."""
    if _noted.is_set():
        return
    _noted.set()
    missing = missing_protections()
    if missing:
        LOGGER.warning("note: on this system %s; see docs/versions.md", "; ".join(missing))


def do_not_note() -> None:
    """Keep this process from logging what is missing: the one that started it does."""
    _noted.set()


def has_folder_descriptors() -> bool:
    """Return whether files can be opened relative to an open folder, and links be refused there."""
    names = ("O_DIRECTORY", "O_NOFOLLOW")
    # Both are needed: relative opening alone would still follow a link.
    return os.open in os.supports_dir_fd and all(hasattr(os, name) for name in names)


def is_redirected(status: os.stat_result) -> bool:
    """Return whether what ``lstat`` told is a symbolic link, or what Windows has of that kind, as a junction.

    Args:
        status: From ``lstat``.
    """
    reparse = getattr(stat, "FILE_ATTRIBUTE_REPARSE_POINT", 0)
    return stat.S_ISLNK(status.st_mode) or bool(getattr(status, "st_file_attributes", 0) & reparse)


def open_folder(path: str | os.PathLike[str], parent: int | None = None) -> int:
    """Open a folder; ask ``has_folder_descriptors`` before.

    Args:
        path: The folder; a name in ``parent`` if that is given, and then no symbolic link.
        parent: An open folder.

    Returns:
        The descriptor.

    Raises:
        OSError: It is no folder, or cannot be read.
    """
    if parent is None:
        return os.open(path, _FOLDER)
    return os.open(path, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)


_seeking = threading.Lock()


def read_into(descriptor: int, buffer: memoryview, offset: int) -> int:
    """Read from a place in a file, whose own position other threads may be using.

    Args:
        descriptor: The open file.
        buffer: Filled from its start.
        offset: Where in the file.

    Returns:
        How many bytes were read; 0 at the end of the file.

    Raises:
        OSError: The file cannot be read.
    """
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [buffer], offset)
    content = read_at(descriptor, len(buffer), offset)
    buffer[: len(content)] = content
    return len(content)


def read_at(descriptor: int, length: int, offset: int) -> bytes:
    """Return up to ``length`` bytes from a place in a file; nothing at its end.

    Args:
        descriptor: The open file.
        length: The most bytes to return.
        offset: Where in the file.

    Raises:
        OSError: The file cannot be read.
    """
    if hasattr(os, "pread"):
        return os.pread(descriptor, length, offset)
    with _seeking:  # only this function moves the position of a descriptor that threads share
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, length)


def permit(descriptor: int, path: str | os.PathLike[str], mode: int) -> None:
    """Give an open file permissions.

    Args:
        descriptor: The open file.
        path: Its path, for systems that change permissions by path only.
        mode: The permissions.

    Raises:
        OSError: They cannot be changed.
    """
    if hasattr(os, "fchmod"):
        os.fchmod(descriptor, mode)
    else:
        os.chmod(path, mode)


@contextlib.contextmanager
def lock_folder(path: Path) -> Iterator[None]:
    """Be the only one that locks a folder.

    Where the system has no locks of folders, this only looks whether it is one.

    Args:
        path: The folder.

    Raises:
        BlockingIOError: Another process has locked it.
        OSError: It cannot be opened.
    """
    if fcntl is None or not hasattr(os, "O_DIRECTORY"):
        note_missing_protections()
        os.listdir(path)
        yield
        return
    descriptor = open_folder(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def lock(descriptor: int) -> bool:
    """Lock an open file or folder until the last copy of the descriptor is closed, or its process ends.

    Args:
        descriptor: What is open.

    Returns:
        Whether it is locked now; False where somebody else has locked it, or the system cannot.
    """
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def limit_process(memory_bytes: int | None, cpu_seconds: int) -> None:
    """Limit memory and time of this process, and leave no core file; where the system has such limits.

    Args:
        memory_bytes: Private memory that it may take; None for no limit of ours.
        cpu_seconds: Processor time of all its threads, after which the kernel ends it.
    """
    if resource is None:
        return
    # Five seconds between SIGXCPU, which names the reason, and SIGKILL, which does not. A core file
    # would be as large as the process.
    limits = [("RLIMIT_CPU", (cpu_seconds, cpu_seconds + 5)), ("RLIMIT_CORE", (0, 0))]
    if memory_bytes is not None:
        # Private writable memory: mapped weights do not count, what is allocated does.
        limits.append(("RLIMIT_DATA", (memory_bytes, memory_bytes)))
    for name, bounds in limits:
        if hasattr(resource, name):
            _limit(getattr(resource, name), bounds)
    with contextlib.suppress(OSError):
        # Should the machine run out of memory all the same, this process goes first.
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _limit(kind: int, bounds: tuple[int, int]) -> None:
    """Set a limit, but no higher than one that is set already."""
    # Only a privileged process may raise its limits.
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        bounds = (min(bounds[0], hard), min(bounds[1], hard))
    resource.setrlimit(kind, bounds)


_PR_SET_PDEATHSIG: Final = 1
_LOOKS_PER_SECOND: Final = 2


def die_with(parent: int) -> None:
    """End this process when its parent dies, however; do so now if it is dead.

    Linux does this itself; elsewhere a thread looks twice a second. Windows does not tell that a
    parent died.

    Args:
        parent: Its process id.
    """
    if not hasattr(os, "killpg"):
        return  # on Windows, the parent may be a program that only starts the interpreter
    if not _asked_the_kernel():
        threading.Thread(target=_look_for, args=(parent,), daemon=True).start()
    # The interpreter takes a while to start: nobody tells of a parent that died meanwhile.
    if os.getppid() != parent:
        os._exit(1)


def _asked_the_kernel() -> bool:
    """Ask Linux to end this process with its parent; return whether it will."""
    import ctypes  # here: every command imports this module, and few need it

    with contextlib.suppress(OSError, AttributeError, TypeError):
        # Looked up by name, since other systems have a C library without this call.
        return int(ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)) == 0
    return False


def _look_for(parent: int) -> None:
    # The parent's id changes when it dies, as another process adopts this one.
    while os.getppid() == parent:
        time.sleep(1 / _LOOKS_PER_SECOND)
    os._exit(1)


def kill_group(process: subprocess.Popen[Any]) -> None:
    """End a process that was started in a session of its own, with all that it started.

    Args:
        process: It may have ended already. Systems without sessions end this process alone.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def cause_of_death(code: int) -> tuple[str, str]:
    """Return what ended a process, and what that means.

    Args:
        code: The exit code as ``subprocess`` states it.

    Returns:
        The name of the signal, as ``SIGSEGV``, or of Windows' status, as ``0xC0000005``, and what it
        means, if that is known; empty texts where the process ended by itself.
    """
    if 0 <= code < _FIRST_CRASH:
        return "", ""
    try:
        name = signal.Signals(-code).name if code < 0 else f"0x{code:08X}"
    except ValueError:  # a real-time signal
        name = f"signal {-code}"
    return name, _CRASHES.get(name, "")
