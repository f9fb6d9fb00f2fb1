"""A child process that does one thing after another, as it is asked; whatever kills it is one clear error here.

``sandbox`` runs one task in a fresh interpreter; this keeps one that has loaded something which takes time to
load. Questions and answers are lines of JSON over pipes, and arrays lie in files of a folder that only the two
processes know: nothing is unpickled on either side.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import IO, Any

from samba_onnx.errors import ExecutionError, ModelLimitError
from samba_onnx.safety import system
from samba_onnx.safety.files import printable
from samba_onnx.safety.leftovers import temporary_folder
from samba_onnx.safety.sandbox import CONVERSE, NOISE, REQUEST, child_environment

__all__ = ["Conversation", "answer_all"]

_NO_LIMIT = 1 << 30
"""Seconds of processor time of a process that may be asked for as long as somebody likes."""


class Conversation:
    """A child that answers questions until it is closed, or dies.

    Threads may ask; each has its answer before the next one is heard.
    """

    def __init__(
        self,
        task: str,
        arguments: Mapping[str, Any],
        *,
        memory_bytes: int | None = None,
        doing: str,
    ) -> None:
        """Start the child; the first question waits until it is ready.

        Args:
            task: Module and function, as ``samba_onnx.room.module:function``, that takes the arguments and
                the folder, and gives what answers: a function of a question.
            arguments: What the task takes, able to be JSON.
            memory_bytes: Private memory that the child may take; None for no limit of ours.
            doing: What the child does, for messages.
        """
        system.note_missing_protections()
        self.doing = doing
        self._lock = threading.Lock()
        self._death: str | None = None
        self._stack = contextlib.ExitStack()
        self.folder = self._stack.enter_context(temporary_folder("child"))
        """Where both sides leave files for each other."""
        request = {
            "task": task, "arguments": dict(arguments), "parent": os.getpid(), "memory_bytes": memory_bytes,
            "cpu_seconds": _NO_LIMIT, CONVERSE: True,
        }  # fmt: skip
        (self.folder / REQUEST).write_text(json.dumps(request), encoding="utf-8")
        # -P: a module in the user's folder must not be taken for one of the standard library.
        command = [sys.executable, "-P", "-m", "samba_onnx.safety.child", str(self.folder)]
        with (self.folder / NOISE).open("wb") as noise:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=noise,
                env=child_environment(),
                # A session of its own, so that everything the child starts can be ended together.
                start_new_session=True,
            )

    def ask(self, question: Mapping[str, Any], seconds: float | None = None) -> dict[str, Any]:
        """Return the answer to a question.

        Args:
            question: Able to be JSON.
            seconds: After which the child is killed; None for any time.

        Raises:
            ModelLimitError: It ran out of time or memory.
            ExecutionError: It died, now or before, or was closed.
        """
        # One question at a time: an answer belongs to the question before it.
        with self._lock:
            if self._death is not None:
                raise ExecutionError(self._death)
            return self._ask(json.dumps(question), seconds)

    def _ask(self, question: str, seconds: float | None) -> dict[str, Any]:
        # Tells a child that was killed for its time from one that the system killed.
        late = threading.Event()

        def stop() -> None:
            late.set()
            system.kill_group(self._child)

        timer = None if seconds is None else threading.Timer(seconds, stop)
        if timer is not None:
            timer.start()
        try:
            with contextlib.suppress(OSError):  # it is gone already, and the answer says how
                self._pipe(self._child.stdin).write(question.encode() + b"\n")
                self._pipe(self._child.stdin).flush()
            answer = self._pipe(self._child.stdout).readline()
        except BaseException:
            # Its next answer would be that to this question.
            self._end("was interrupted")
            raise
        finally:
            if timer is not None:
                timer.cancel()
        # A line that is cut off is no answer: the child died while it wrote.
        if answer.endswith(b"\n"):
            return dict(json.loads(answer))
        raise self._dead(f"it took longer than {seconds:g} s" if late.is_set() else "")

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        assert pipe is not None
        return pipe

    def _dead(self, late: str) -> ExecutionError | ModelLimitError:
        """Return why there is no answer, and remember it for whoever asks next."""
        # The exit code is there only after the child has been waited for.
        self._child.wait()
        name, meaning = system.cause_of_death(self._child.returncode)
        # The last lines are enough, and a library may have written megabytes.
        noise = (self.folder / NOISE).read_bytes()[-2000:].decode("utf-8", "replace").strip()
        last = printable(noise.splitlines()[-1] if noise else "it left no message", 300)
        if late:
            error: ExecutionError | ModelLimitError = ModelLimitError(
                f"{self.doing}: {late} and was stopped; it may never end"
            )
        # On Linux the kernel kills with this signal whoever it chooses when memory runs out.
        elif name == "SIGKILL" or "MemoryError" in last:
            error = ModelLimitError(f"{self.doing}: the child process took too much memory")
        elif name:
            error = ExecutionError(
                f"{self.doing}: native code crashed in the child process ({name}: {meaning or 'a fault'})"
            )
        else:
            error = ExecutionError(f"{self.doing}: the child process failed: {last}")
        self._end(f"died of it before ({name or 'without a word'})")
        return error

    def _end(self, how: str) -> None:
        self._death = f"{self.doing}: the child process {how}; load the same anew"
        if self._child.poll() is None:
            # Its whole session: nothing that it may have started stays behind.
            system.kill_group(self._child)
            self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            with contextlib.suppress(OSError):
                self._pipe(pipe).close()
        self._stack.close()

    def close(self) -> None:
        """End the child; it may be closed again."""
        with self._lock:
            if self._death is None:
                self._end("was closed")


def answer_all(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer questions until there are no more; the child's side.

    Args:
        answer: What makes an answer of a question.
    """
    # What libraries print must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "wb")
    # Descriptor 1 leads to the errors now, also for native code that writes past Python.
    os.dup2(2, 1)
    for question in sys.stdin.buffer:
        answers.write(json.dumps(answer(json.loads(question))).encode() + b"\n")
        answers.flush()
