"""The child process of ``sandbox.run_child``: ``python -m samba_onnx.safety.child FOLDER``.

It limits itself before it imports anything native, runs one task, and leaves its answer as JSON in
the folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import re
import resource
import signal
import sys
from pathlib import Path
from typing import Any

from samba_onnx.safety.sandbox import ANSWER, REQUEST

__all__ = ["die_with", "limit_process", "main"]

_PR_SET_PDEATHSIG = 1
_NOISE = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : (Load model from \S+ failed: ?)?")
_OUT_OF_MEMORY = ("bad allocation", "bad_alloc", "failed to allocate", "out of memory")


def main(folder: Path) -> None:
    """Read the request in ``folder``, do it, and leave the answer there."""
    request = json.loads((folder / REQUEST).read_text(encoding="utf-8"))
    limit_process(request["memory_bytes"], request["cpu_seconds"])
    die_with(request["parent"])
    try:
        answer = _run(request["task"], request["arguments"])
    except MemoryError:
        answer = {"kind": "memory", "error": "it takes more memory than there is"}
    except Exception as error:
        # Any class: what onnxruntime raises has no common base, and the answer must be written.
        # Names of onnxruntime's classes, as Fail, say nothing to a user.
        named = not type(error).__module__.startswith("onnxruntime")
        text = f"{type(error).__name__}: {error}" if named else str(error)
        if any(sign in text.lower() for sign in _OUT_OF_MEMORY):
            asked = re.search(r"buffer of size (\d+)", text)
            size = f": it asked for {asked[1]} bytes at once" if asked else ""
            answer = {"kind": "memory", "error": f"it takes more memory than there is{size}"}
        else:
            answer = {"kind": "failed", "error": _NOISE.sub("", text)[:4000]}
    (folder / ANSWER).write_text(json.dumps(answer), encoding="utf-8")


def _run(task: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Import what does the task, and do it."""
    module, _, function = task.partition(":")
    answer: dict[str, Any] = getattr(importlib.import_module(module), function)(**arguments)
    return answer


def limit_process(memory_bytes: int | None, cpu_seconds: int) -> None:
    """Limit memory and time of this process, and leave no core file.

    Args:
        memory_bytes: Private memory that it may take; None for no limit of ours.
        cpu_seconds: Processor time of all its threads, after which the kernel ends it.
    """
    if memory_bytes is not None:
        # Private writable memory: mapped weights do not count, what is allocated does.
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        # Should the machine run out of memory all the same, this process goes first.
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def die_with(parent: int) -> None:
    """Let the kernel end this process when its parent dies, however; do so now if it is dead."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # The interpreter takes a while to start: nobody tells of a parent that died meanwhile.
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
