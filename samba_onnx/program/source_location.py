"""The line of the user's own model that a node comes from, as torch's exporters recorded it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

STACK_TRACE = "pkg.torch.onnx.stack_trace"
"""Where the exporter that is built on ``torch.export`` keeps a node's stack, outermost first."""

# Regular expressions over text of a stranger's model; no stack is this long.
_MAX_CHARACTERS = 100_000
_TRACE_FRAME = re.compile(r'^\s*File "([^"\n]{1,1000})", line (\d{1,9}), in ', re.MULTILINE)
_DOC_FRAME = re.compile(r"^(\S[^\n]{0,1000}?)\((\d{1,9})\): ", re.MULTILINE)
_INSTALLED = re.compile(r"(?:site|dist)-packages/(.+)$")
# Python's own modules stand between a library and what it calls, as contextlib does around a decorated forward.
_STANDARD = re.compile(r"/lib(?:64)?/python3\.\d+/(?!(?:site|dist)-packages/)")
# Not in site-packages when it is installed from a checkout.
_OURS = f"{Path(sys.modules['samba_onnx'].__file__ or '').parent.as_posix()}/"
_STANDARD_NAME = "python/"
_LIBRARIES = ("torch/", "samba_onnx/", _STANDARD_NAME)
# Below these frames lies the program that called the exporter, not the model.
_EXPORTER = ("torch/jit/_trace.py", "torch/onnx/")


@dataclass(frozen=True)
class _Frame:
    """One level of a stack."""

    path: str
    line: int

    @property
    def package_path(self) -> str | None:
        """The path below ``site-packages``; None for a file that is not an installed package's."""
        if self.path.startswith(_OURS):
            return f"samba_onnx/{self.path.removeprefix(_OURS)}"
        if match := _INSTALLED.search(self.path):
            return match[1]
        if match := _STANDARD.search(self.path):
            return f"{_STANDARD_NAME}{self.path[match.end() :]}"
        return None

    @property
    def short(self) -> str:
        """``file.py:line``; an installed file keeps the folders of its package."""
        return f"{self.package_path or self.path.rsplit('/', 1)[-1]}:{self.line}"


def source_location(node: ir.Node) -> str:
    """Return where in the user's model a node comes from.

    The innermost line of the user's own code is best. A model that lies in an installed package as
    a whole is named by that package's innermost line, and torch's own code is the last resort.

    Args:
        node: A node, with metadata or documentation as an exporter left it.

    Returns:
        As ``model.py:12``, or ``transformers/models/bert/modeling_bert.py:93`` for an installed
        package; empty if the node carries no stack.
    """
    return _best(list(_frames(node)))


def trace_location(trace: str) -> str:
    """Return where in the user's model a stack trace leads.

    Args:
        trace: As torch records it, outermost frame first.

    Returns:
        As ``source_location``.
    """
    return _best(list(_parse(_TRACE_FRAME, trace))[::-1])


def user_line(trace: str) -> str:
    """Return the innermost line of a stack trace that is of the user's own code.

    Args:
        trace: As torch records it, outermost frame first.

    Returns:
        As ``model.py:12``; empty if all lines are of installed packages or of Python's own modules.
    """
    frames = list(_parse(_TRACE_FRAME, trace))[::-1]
    return next((frame.short for frame in frames if frame.package_path is None), "")


def library_line(trace: str) -> str:
    """Return the line of an installed package that the innermost line of the user's own leads to.

    Args:
        trace: As torch records it, outermost frame first.

    Returns:
        As ``transformers/models/bert/modeling_bert.py:93``; empty if what the user's line calls is torch's or
        our own.
    """
    for frame in list(_parse(_TRACE_FRAME, trace))[::-1]:
        if frame.package_path is None:
            break
        if not frame.package_path.startswith(_LIBRARIES):
            return frame.short
    return ""


def is_exporters(file: str) -> bool:
    """Return whether a file is torch's, Python's or our own, and so not of any model.

    Args:
        file: As frames have it.
    """
    package_path = _Frame(file.replace("\\", "/"), 0).package_path
    return package_path is not None and package_path.startswith(_LIBRARIES)


def _best(frames: list[_Frame]) -> str:
    frames_of_user = (frame for frame in frames if frame.package_path is None)
    # A frame without package path is the user's own, and was taken above.
    other = (
        frame for frame in frames if not (frame.package_path or "torch/").startswith(_LIBRARIES)
    )
    best = next(frames_of_user, None) or next(other, None) or next(iter(frames), None)
    return best.short if best else ""


def _frames(node: ir.Node) -> Iterator[_Frame]:
    """Yield the frames of a node's stack, the innermost first."""
    trace = node.metadata_props.get(STACK_TRACE)
    if trace:
        yield from reversed(list(_parse(_TRACE_FRAME, trace)))
        return
    for frame in _parse(_DOC_FRAME, node.doc_string or ""):
        if (frame.package_path or "").startswith(_EXPORTER):
            return
        yield frame


def _parse(pattern: re.Pattern[str], text: str) -> Iterator[_Frame]:
    for path, line in pattern.findall(text[:_MAX_CHARACTERS]):
        # Models exported on Windows name files with backslashes.
        path = path.replace("\\", "/")
        # `<string>` and `<eval_with_key>` are code that no file holds.
        if not path.startswith("<") and path.isprintable():
            yield _Frame(path, int(line))
