"""Reads ``.pt2`` files of ``torch.export.save`` without running anything that is inside them.

torch's own reader unpickles what it finds there and hands expressions to an evaluator. Here a file is
looked through first, and what could run code is refused.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import re
import sys
import zipfile
from collections.abc import Iterator
from typing import Any

import torch

from samba_onnx.errors import (
    InvalidModelError,
    ModelError,
    ModelFileError,
    ModelLimitError,
    SambaError,
)
from samba_onnx.export.capture.replacing import replaced
from samba_onnx.export.capture.torch_reports import without_reports
from samba_onnx.safety.archives import open_archive
from samba_onnx.safety.files import open_regular, printable
from samba_onnx.safety.torch_files import require_harmless

SUFFIX = ".pt2"
"""What files of exported programs are called."""

_LONGEST_DOCUMENT = 1 << 28
"""Bytes of JSON that are read: the graph of the largest model known takes a tenth of it."""
_FUNCTIONS = "Add|Mul|Pow|Integer|Rational|FloorDiv|CleanDiv|CeilDiv|PythonMod|Mod|Max|Min"
# A run of tokens and no grammar: it is enough that no token names anything else to call.
_EXPRESSION = re.compile(
    r"(?:Symbol\('[su]\d{1,9}'(?:, (?:positive|integer|nonnegative)=True)*\)"
    rf"|[su]?\d{{1,18}}|(?:{_FUNCTIONS})\(|true|false|[-+*/(), <>=]){{0,10000}}"
)
"""Sizes as torch writes them; anything else would be evaluated, too."""


def load_exported_program(path: str | os.PathLike[str]) -> torch.export.ExportedProgram:
    """Read an exported program.

    Args:
        path: A file written by ``torch.export.save``.

    Returns:
        The program with its weights and example inputs.

    Raises:
        ModelFileError: The file cannot be read, or is no archive of an exported program.
        ModelLimitError: It holds more than can be looked through.
        InvalidModelError: It holds something that only running code could restore, or torch refuses
            it.
    """
    name = printable(path)
    with open_regular(path, what="model", error=ModelFileError) as file:
        try:
            with open_archive(file, name) as archive:
                _check(archive, name)
        except ModelError:  # some of ours are a ValueError as well
            raise
        # RecursionError: JSON may be nested more deeply than the parser goes.
        except (zipfile.BadZipFile, RecursionError, ValueError, KeyError) as error:
            raise ModelFileError(
                f"{name}: is no exported program ({error}); write it with torch.export.save"
            ) from None
        # The same open file: its path may lead to another one by now.
        file.seek(0)
        with refused_by_torch(name, "read it"), _nothing_unpickled(name):
            return torch.export.load(file)


@contextlib.contextmanager
def refused_by_torch(name: str, what: str) -> Iterator[None]:
    """Tell in one line what torch cannot do with what a file holds.

    Args:
        name: The file, for the message.
        what: What is done with it within the context.

    Raises:
        InvalidModelError: torch refused it.
    """
    reports: list[BaseException] = []
    try:
        with without_reports() as reports:
            yield
    # Ours say already what is wrong, and lack of memory says nothing about the file.
    except (SambaError, MemoryError):
        raise
    except Exception as error:  # torch has no class for what its files can be
        # What it reported first says why; then it tried an older format.
        first = reports[0] if reports else error
        # A message of one word, as that of a KeyError, says nothing without its class.
        said = str(first) if len(str(first).split()) > 1 else f"{type(first).__name__}: {first}"
        # One line of bounded length: torch's messages may run over pages.
        reason = " ".join(said.split())[:300]
        raise InvalidModelError(f"{name}: torch cannot {what}: {reason}") from None


def _check(archive: zipfile.ZipFile, name: str) -> None:
    """Refuse an archive that says of itself that code is needed to restore it."""
    documents = [info for info in archive.infolist() if info.filename.endswith(".json")]
    if not any("/models/" in info.filename for info in documents):
        raise ModelFileError(
            f"{name}: is an archive, but not of an exported program; write it with torch.export.save"
        )
    # By the archive's directory, before anything is read into memory.
    if sum(info.file_size for info in documents) > _LONGEST_DOCUMENT:
        raise ModelLimitError(f"{name}: its graph takes more than {_LONGEST_DOCUMENT >> 20} MiB")
    # torch stores members as they are; a compressed one could unfold to more than the file's size.
    for info in archive.infolist():
        if info.compress_type != zipfile.ZIP_STORED:
            raise ModelLimitError(f"{name}: member {printable(info.filename)!r} is compressed")
    for info in documents:
        _check_document(json.loads(archive.read(info)), name)


def _check_document(document: Any, name: str) -> None:
    # Without recursion: the document decides how deeply it is nested.
    pending = [document]
    while pending:
        item = pending.pop()
        if isinstance(item, list):
            pending += item
        if not isinstance(item, dict):
            continue
        pending += item.values()
        path = item.get("path_name", "")
        # The entry itself or its name tells torch to unpickle the member.
        if item.get("use_pickle") or str(path).startswith(("custom_obj", "opaque_obj")):
            raise InvalidModelError(
                f"{name}: {printable(path)!r} is a pickled object, which is never loaded; export "
                "the model without tensor subclasses and custom objects"
            )
        expression = item.get("expr_str")
        if expression is not None and not _EXPRESSION.fullmatch(str(expression)):
            raise InvalidModelError(
                f"{name}: the size {printable(expression)!r} is none that torch.export writes"
            )


@contextlib.contextmanager
def _nothing_unpickled(name: str) -> Iterator[None]:
    """Let torch's reader restore tensors only, whatever the file says."""

    def refuse(*_: object, **__: object) -> Any:
        raise InvalidModelError(f"{name}: holds a pickled object, which is never loaded")

    # Taken before torch.load is replaced below, or it would call itself.
    load = functools.partial(torch.load, weights_only=True)

    def restore(source: io.BytesIO, *_: object, **__: object) -> Any:
        require_harmless(source.getbuffer(), f"{name}: the tensors inside")
        return load(source)

    with (
        # What torch's reader calls to unpickle, also for entries that the check above does not know.
        replaced(torch, "load", restore),
        replaced(torch._C, "_pickle_load_obj", refuse),
        replaced(sys.modules["pickle"], "loads", refuse),
    ):
        yield
