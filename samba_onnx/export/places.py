"""Where in the user's program something happens, as messages say it: a line of the user's, or the module.

A line of torch's or of another library's is no place that a user can change. Models that a library makes have
no other lines, though: of these the module is named, which users find in their model, and the library's
line is added to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, TypeAlias

from torch import fx, nn

from samba_onnx.program.source_location import library_line, user_line

__all__ = ["CodePlace", "Level", "node_place", "stack_place"]

Level: TypeAlias = tuple[FrameType, int]
"""A frame of a stack, and the line that it is at."""

_CALL_NUMBER: Final = re.compile(r"@\d+")
"""What torch puts behind the path of a module that is called once more."""
_WRAPPING: Final = ("samba_onnx.export", "torch.export", "torch._", "torch.fx")
"""Where classes of modules are from that tracing puts around a model; users know nothing of them."""


@dataclass(frozen=True)
class CodePlace:
    """Where something happens, for messages."""

    line: str = ""
    """The innermost line that is the user's, as ``model.py:12``; empty if there is none."""
    module: str | None = None
    """Path of the innermost module that was running; empty for the whole model, None if unknown."""
    kind: str = ""
    """Its class."""
    library: str = ""
    """The line of a library that the user's code, or the module, was at, as ``transformers/models/x.py:3``; never torch's."""

    def __str__(self) -> str:
        """Return the place as the subject of a sentence."""
        if self.line:
            return f"{self.line} (in {self.library})" if self.library else self.line
        what = f"module {self.module!r}" if self.module else "the model"
        more = ", ".join(filter(None, (self.kind, self.library)))
        return f"{what} ({more})" if more else what

    @property
    def phrase(self) -> str:
        """The place with its preposition, as ``at model.py:12``."""
        return f"at {self}" if self.line else f"in {self}"


def node_place(node: fx.Node) -> CodePlace:
    """Return where a node of a captured graph comes from.

    Args:
        node: It has torch's record of the stack and of the modules that were being called.
    """
    trace = node.meta.get("stack_trace") or ""
    stack: Mapping[str, tuple[str, Any]] = node.meta.get("nn_module_stack") or {}
    path, kind = next(reversed(list(stack.values())), (None, ""))
    name = kind if isinstance(kind, str) else getattr(kind, "__name__", "")
    module = None if path is None else _CALL_NUMBER.sub("", path)
    return CodePlace(user_line(trace), module, name.rpartition(".")[2], library_line(trace))


def stack_place(levels: Sequence[Level]) -> CodePlace:
    """Return the place that a stack leads to.

    Args:
        levels: Outermost first.
    """
    frames = [frame for frame, _ in levels]
    trace = "".join(
        f'File "{frame.f_code.co_filename}", line {line}, in _\n' for frame, line in levels
    )
    line, library = user_line(trace), library_line(trace)
    # What frames hold is copied when it is looked at: only where no line says enough.
    module, kind = (None, "") if line else _running(frames)
    return CodePlace(line, module, kind, library)


def _running(frames: Sequence[FrameType]) -> tuple[str | None, str]:
    """Return path and class of the innermost module among those that run methods of theirs."""
    modules = list(_modules(frames))
    if not modules:
        return None, ""
    root, inner = modules[0], modules[-1]
    path = next((path for path, module in root.named_modules() if module is inner), None)
    return path, type(inner).__name__


def _modules(frames: Sequence[FrameType]) -> Iterator[nn.Module]:
    for frame in frames:
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module) and not type(owner).__module__.startswith(_WRAPPING):
            yield owner
