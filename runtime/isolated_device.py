"""A device in a process of its own: a crash of native code ends that process, and is an error in this one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from samba_onnx import errors
from samba_onnx.errors import DeviceError, ModelLimitError, SambaError
from samba_onnx.pef.decoding import from_tree
from samba_onnx.pef.manifest import Transfer
from samba_onnx.pef.reader import Pef
from samba_onnx.runtime.child_device import ASKED, TOLD
from samba_onnx.runtime.elements import Array
from samba_onnx.runtime.host_values import packed, unpacked
from samba_onnx.runtime.ledger import Ledger
from samba_onnx.safety.conversation import Conversation
from samba_onnx.safety.files import printable

__all__ = ["IsolatedDevice"]

_TASK: Final = "samba_onnx.runtime.child_device:serve"


class IsolatedDevice:
    """A ``Device`` in a child process, for PEFs or inputs that nobody vouches for.

    What executes stages is native code, and some of it dies of what it is given: of the remainder of the least
    integer by -1, of a graph that was forged. A ``Device`` dies with its process. Here, the process that dies is
    the child; the method that was called raises an ``ExecutionError`` that says of what, and so do all later ones.
    Values go through a file, so that a run takes some milliseconds longer; results and ledger are the same.

    Use it as a context manager. Any number of threads may use it, one after the other.
    """

    ledger: Ledger
    """Every copy between host and device."""

    def __init__(
        self,
        pef: Pef | str | os.PathLike[str],
        *,
        seconds: float | None = None,
        memory_bytes: int | None = None,
        **options: Any,
    ) -> None:
        """Load a PEF in a child process.

        Args:
            pef: The PEF, or its path. It is opened anew in the child.
            seconds: Wall-clock time after which a call is given up and the child is killed; None for any time.
            memory_bytes: Private memory that the child may take; None for no limit. Weights that are mapped
                do not count.
            **options: Keywords of ``Device``, as ``threads=2`` or ``engine="reference"``.

        Raises:
            SambaError: As ``Device`` raises it, and ``load_pef``.
            ModelLimitError: Loading took too much time or memory.
            ExecutionError: The child died of it.
        """
        path = os.path.abspath(pef.path if isinstance(pef, Pef) else pef)
        options = {key: _plain(value) for key, value in options.items()}
        self.ledger = Ledger()
        self._seconds = seconds
        self._conversation = Conversation(
            _TASK,
            {"pef": path, "options": options},
            memory_bytes=memory_bytes,
            doing=f"{printable(path)}: running it in a child process",
        )
        try:
            self._call("")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child; the ledger stays readable."""
        self._conversation.close()

    def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        outputs: str | Sequence[str] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Copy inputs to the device, execute calls, and copy outputs back.

        Args:
            inputs: Values by name, as for ``Device.run``.
            outputs: Names of graph outputs to return, or one; None for all that the run computes.
            **options: Its other keywords.

        Returns:
            Host values by name, in the order asked for.

        Raises:
            SambaError: As ``Device.run`` raises it.
            ModelLimitError: It took too much time or memory; the child is gone.
            ExecutionError: An operator failed, or the child died of it, or before.
        """
        results: dict[str, Any] = self._call("run", inputs, outputs, **options)
        return results

    def load(self, values: Mapping[str, Array]) -> None:
        """Copy weights, buffers and optimizer state to the device, as ``Device.load`` does.

        Args:
            values: Arrays of the compiled dtype and shape, by the names of residents.

        Raises:
            SambaError: As ``Device.load`` raises it.
        """
        self._call("load", values)

    def write(self, symbol: str, array: Array) -> None:
        """Copy a value to the device, as ``Device.write`` does.

        Args:
            symbol: Any symbol in device memory that is no initializer of a section.
            array: The new value, of the symbol's dtype and shape.

        Raises:
            SambaError: As ``Device.write`` raises it.
        """
        self._call("write", symbol, array)

    def read(self, symbol: str) -> Any:
        """Copy a symbol from the device, as ``Device.read`` does.

        Args:
            symbol: Any symbol that has a value.

        Returns:
            A fresh host array.

        Raises:
            SambaError: As ``Device.read`` raises it.
        """
        return self._call("read", symbol)

    def _call(self, method: str, *arguments: Any, **keywords: Any) -> Any:
        """Call a method of the device; nothing but load it where the name is empty."""
        # One question at a time: the arrays of all of them lie in the same two files.
        with self.ledger.lock.mutex:
            folder = self._conversation.folder
            if not folder.exists():  # closed, or dead: the conversation says which
                self._conversation.ask({}, None)
            question = {
                "method": method,
                "arguments": packed((arguments, keywords), folder / ASKED),
            }
            answer = self._conversation.ask(question, self._seconds)
            # Before an error is raised: a Device, too, has entered what it copied until then.
            self._enter(answer)
            if "error" in answer:
                raise _error(answer["error"], answer["text"])
            return unpacked(answer["result"], folder / TOLD)

    def _enter(self, answer: Mapping[str, Any]) -> None:
        """Enter the copies that a call made into the ledger."""
        transfers: list[Transfer] = [
            from_tree(Transfer, tree) for tree in answer.get("transfers", ())
        ]
        for transfer in transfers:
            if transfer.call is None:
                self.ledger.enter(transfer)
        if answer.get("runs"):
            self.ledger.enter_run(tuple(each for each in transfers if each.call is not None))


def _error(name: str, text: str) -> Exception:
    """Return the error that was raised in the child."""
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, SambaError):
        return kind(text)
    if name == "TypeError":
        return TypeError(text)
    return ModelLimitError(f"not enough memory for the child process: {text}" if text else "not enough memory")  # fmt: skip


def _plain(value: Any) -> Any:
    """Return a keyword of ``Device`` as JSON has it.

    Raises:
        DeviceError: It belongs to this process.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, os.PathLike):
        return os.path.abspath(value)
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    raise DeviceError(
        f"a {type(value).__name__} belongs to this process: a device in another one cannot have it"
    )
