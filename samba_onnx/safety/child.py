"""The child process of ``sandbox.run_child`` and ``conversation.Conversation``: ``python -m samba_onnx.safety.child FOLDER``.

It limits itself before it imports anything native, and runs one task, whose answer it leaves as JSON in
the folder; or answers questions.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

from samba_onnx.safety.conversation import answer_all
from samba_onnx.safety.sandbox import ANSWER, CONVERSE, REQUEST
from samba_onnx.safety.system import die_with, do_not_note, limit_process

__all__ = ["main"]

_NOISE = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : (Load model from \S+ failed: ?)?")
_OUT_OF_MEMORY = ("bad allocation", "bad_alloc", "failed to allocate", "out of memory")


def main(folder: Path) -> None:
    """Read the request in ``folder``, do it, and leave the answer there."""
    request = json.loads((folder / REQUEST).read_text(encoding="utf-8"))
    # The parent has said already what this system lacks.
    do_not_note()
    # Before anything native is imported, whose threads and memory would not be limited.
    limit_process(request["memory_bytes"], request["cpu_seconds"])
    die_with(request["parent"])
    if request.get(CONVERSE):
        answer_all(_run(request["task"], {**request["arguments"], "folder": folder}))
        return
    try:
        answer = _run(request["task"], request["arguments"])
    # Its own case, as there may be no memory left for a long message.
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


def _run(task: str, arguments: dict[str, Any]) -> Any:
    """Import what does the task, and do it."""
    module, _, function = task.partition(":")
    return getattr(importlib.import_module(module), function)(**arguments)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
