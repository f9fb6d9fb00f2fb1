"""Run native code on a model from outside where it can do no harm: in a child with limits.

onnxruntime dies of an integer division by zero, loops as long as a model says so, and allocates
what a model declares. A fresh interpreter takes the risk; whatever happens to it becomes one clear
error here, and nothing of it survives.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from samba_onnx.errors import ExecutionError, InternalError, ModelLimitError, TimeLimitError
from samba_onnx.safety import system
from samba_onnx.safety.files import printable
from samba_onnx.safety.leftovers import temporary_folder

__all__ = ["available_memory", "child_environment", "memory_for_a_child", "run_child"]

PACKAGE = "samba_onnx"
"""Where a child finds what it does: nothing else is imported for a task."""

ANSWER, REQUEST, NOISE = "answer.json", "request.json", "stderr.txt"
"""Files of the exchange, in a folder that only the two processes know."""

CONVERSE = "converse"
"""In a request: whether the child answers questions, rather than do one task."""

_SHARE_OF_MEMORY = 0.8
"""The share of the available memory that a child may take; the rest keeps the machine usable."""


def run_child(
    task: str,
    arguments: Mapping[str, Any],
    *,
    seconds: float,
    memory_bytes: int | None = None,
    doing: str,
) -> dict[str, Any]:
    """Run a task in a fresh interpreter with limits on time and memory.

    Args:
        task: Module and function that do it, as ``samba_onnx.room.module:function``; known by name
            only, for this room lies below whatever runs models.
        arguments: What the task takes, able to be JSON.
        seconds: Wall-clock time after which the child is killed.
        memory_bytes: Private memory that the child may take; None for no limit of ours.
        doing: What the child does, for messages: ``model.onnx: running it on sample inputs``.

    Returns:
        The task's answer.

    Raises:
        ModelLimitError: The child ran out of time or memory.
        ExecutionError: The child died, or the library in it reported an error.
    """
    # The task is imported by name in the child: only code of this package may be.
    if not task.startswith(f"{PACKAGE}.") or ":" not in task:
        raise InternalError(f"there is no task {task!r} for a child; please report this")
    system.note_missing_protections()
    request = {
        "task": task,
        "arguments": dict(arguments),
        "parent": os.getpid(),
        "memory_bytes": memory_bytes,
        # Processor time of all threads: only a last resort, in case this process is stopped.
        "cpu_seconds": int(seconds * (os.cpu_count() or 1)) + 10,
    }
    with temporary_folder("child") as name:
        folder = Path(name)
        (folder / REQUEST).write_text(json.dumps(request), encoding="utf-8")
        code = _run(folder, seconds, doing)
        return _read_answer(folder, code, doing)


def available_memory() -> int | None:
    """Return how many bytes of memory can be taken without harm; None where that is unknown."""
    figures: list[int] = []
    # Linux alone has these files; elsewhere nothing is known.
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        figures += [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvail")]
    # In a container the limit of its group counts, and not the memory of the machine.
    with contextlib.suppress(OSError, ValueError):
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii"))
        used = int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii"))
        figures.append(max(limit - used, 0))
    return min(figures, default=None)


def memory_for_a_child() -> int | None:
    """Return how many bytes a child may take: most of what is available; None where that is unknown."""
    available = available_memory()
    return None if available is None else int(available * _SHARE_OF_MEMORY)


def _run(folder: Path, seconds: float, doing: str) -> int:
    """Start the child and wait for it; return its exit code, negative for a signal."""
    # -P: a module in the user's folder must not be taken for one of the standard library.
    command = [sys.executable, "-P", "-m", "samba_onnx.safety.child", str(folder)]
    with (folder / NOISE).open("wb") as noise:
        child = subprocess.Popen(
            command,
            # Nothing is read and nothing answered over pipes, so that no pipe can fill up and hang.
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=noise,
            env=child_environment(),
            start_new_session=True,
        )
    try:
        return child.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise TimeLimitError(
            f"{doing}: it took longer than {seconds:g} s and was stopped; it may never end"
        ) from None
    finally:
        if child.returncode is None:
            # Its whole session: nothing that it may have started stays behind.
            system.kill_group(child)
            child.wait()


def child_environment() -> dict[str, str]:
    """Return the environment in which the child finds this package and no output is coloured."""
    home = str(Path(__file__).resolve().parents[2])
    environment = dict(os.environ)
    # An installed package is found anyway; a checkout must be told of.
    if Path(home).name not in {"site-packages", "dist-packages"}:
        known = environment.get("PYTHONPATH", "")
        environment["PYTHONPATH"] = f"{home}{os.pathsep}{known}" if known else home
    return environment


def _read_answer(folder: Path, code: int, doing: str) -> dict[str, Any]:
    """Turn what the child left behind into its answer or into one error."""
    name, meaning = system.cause_of_death(code)
    if name:
        # SIGXCPU is the limit on processor time, SIGKILL what comes after it or for want of memory.
        if name in {"SIGKILL", "SIGXCPU"}:
            raise ModelLimitError(
                f"{doing}: the child process was killed ({name}): it took too much memory or time"
            )
        raise ExecutionError(f"{doing}: the child process died of {name} ({meaning or 'a fault'})")
    try:
        answer = json.loads((folder / ANSWER).read_text(encoding="utf-8"))
    # No answer or half of one: the process ended while it wrote.
    except (OSError, ValueError):
        noise = (folder / NOISE).read_bytes()[-2000:].decode("utf-8", "replace").strip()
        last = printable(noise.splitlines()[-1] if noise else "it left no message", 300)
        if "MemoryError" in last:
            raise ModelLimitError(f"{doing}: not enough memory for the child process") from None
        raise ExecutionError(f"{doing}: the child process failed: {last}") from None
    if "error" not in answer:
        return dict(answer)
    text = f"{doing}: {printable(answer['error'], 400)}"
    if answer.get("kind") == "memory":
        raise ModelLimitError(text)
    raise ExecutionError(text)
