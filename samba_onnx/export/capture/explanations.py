"""Why a module cannot be traced, in words about the user's program instead of torch's own."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from samba_onnx.export.places import CodePlace, Level, stack_place
from samba_onnx.program.source_location import is_exporters

_BY_FUNCTION: Final[Mapping[str, str]] = MappingProxyType(
    {
        "torch/_higher_order_ops/cond.py": "torch.cond chooses by values, and a compiled graph does "
        "the same in every run: compute both results, and choose with torch.where",
        "torch/_higher_order_ops/": "control flow that depends on values cannot be compiled: compute "
        "all cases, and choose with torch.where",
        "torch/_functorch/": "a transformation of torch.func cannot be compiled here: write what it "
        "does with operators on whole batches",
        "torch/func/": "a transformation of torch.func cannot be compiled here: write what it does "
        "with operators on whole batches",
        "torch/autograd/": "gradients cannot be computed inside forward: return the loss, and let the "
        "session compute gradients",
    }
)
"""What to say where the user's line calls functions of such a file; the first that fits counts."""

_ROOM: Final = f"{Path(__file__).parent}{os.sep}"
_INTERNAL: Final = (
    "torch/_dynamo/",
    "torch/_export/",
    "torch/_functorch/",
    "torch/_higher_order_ops/",
    "torch/_ops.py",
    "torch/_prims",
    "torch/_subclasses/",
    "torch/export/",
    "torch/fx/",
)
"""Where torch traces: errors from there speak of tracing, and not of the user's program."""

_EAGER: Final = frozenset({RuntimeError, ValueError, IndexError})
"""What operators raise of sizes and types that do not fit, in eager torch as well."""
_TRACING: Final = re.compile(r"fake|proxy|trac|functorch|dynamo|symbolic|dispatch|storage", re.I)
"""Words of errors that are about tracing all the same."""
_VALUES: Final = (
    "it asks for values of tensors, which are not known while a model is compiled: choose with "
    "torch.where"
)
_SIZES: Final = (
    "it makes a tensor whose size depends on values: a compiled graph has fixed sizes, so use a mask "
    "of a fixed size instead"
)
_WRITTEN_TOO_EARLY: Final = "has been modified by an inplace operation"
_CLONE: Final = (
    "something that gradients need of it is written in place afterwards, so that torch does not "
    "compute them either: let one of the two work on a clone"
)
_NUMPY: Final = ".numpy() is not supported for tensor subclasses"
_ARRAY: Final = (
    "it makes a numpy array of a tensor, which has no values while a model is compiled, and would keep those "
    "of the given inputs: compute with functions of torch"
)
_UNTRACEABLE: Final = (
    "torch cannot trace what is called there: compute it with other operators of torch, or outside "
    "of the module"
)


def explained(error: Exception) -> str:
    """Return why tracing failed: what the user's program does, and what to do instead.

    Args:
        error: As the user's code, or torch for it, raised it; it has a traceback.

    Returns:
        A clause without a full stop. Errors that the same program raises in eager torch are told in
        their own words.
    """
    # What a class or torch's own words tell for certain comes before guesses by the files on the
    # stack.
    if isinstance(error, DataDependentOutputException | GuardOnDataDependentSymNode):
        return _VALUES
    if isinstance(error, DynamicOutputShapeException):
        return _SIZES
    if _WRITTEN_TOO_EARLY in str(error):
        return _CLONE
    if _NUMPY in str(error):
        return _ARRAY
    files = _called(error)
    # Further lines of torch's are addressed to those who debug torch.
    first = str(error).strip().partition("\n")[0][:500]
    # By exact type: torch derives errors of tracing from RuntimeError.
    tells_users = type(error) in _EAGER and not _TRACING.search(first)
    unsupported = isinstance(error, UnsupportedOperatorException)
    if unsupported or (_is_internal(files) and not tells_users):
        for path, sentence in _BY_FUNCTION.items():
            if any(path in file for file in files):
                return sentence
        return _UNTRACEABLE
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def raised_at(error: Exception) -> CodePlace:
    """Return where in the user's model an error was raised.

    Args:
        error: It has a traceback.
    """
    return stack_place(_inside(_levels(error)))


def user_place() -> str:
    """Return where in the user's model the program is, as ``model.py:12``, for messages."""
    stack = [(frame, line) for frame, line in traceback.walk_stack(sys._getframe(1))][::-1]
    inner = stack_place(_inside(stack))
    # Outside of all modules, the line that gave the model to the compiler is the best there is.
    return str(stack_place(stack) if not inner.line and inner.module is None else inner)


def _inside(levels: Sequence[Level]) -> Sequence[Level]:
    """Return the levels of a stack from the first of the exporter's own on.

    The program that called the exporter lies further out, and is no part of the model.
    """
    files = [frame.f_code.co_filename for frame, _ in levels]
    start = next((i for i, file in enumerate(files) if file.startswith(_ROOM)), 0)
    return levels[start:]


def _called(error: Exception) -> list[str]:
    """Return the files of torch behind the last line of the user's, outermost first."""
    files = [_file(level) for level in _inside(_levels(error))]
    start = max((place for place, file in enumerate(files) if _is_models(file)), default=-1)
    return [file for file in files[start + 1 :] if "/torch/" in file]


def _levels(error: BaseException) -> list[Level]:
    """Return the stack of an error; that of its cause where its own does not reach the model's code."""
    levels = list(traceback.walk_tb(error.__traceback__))
    earlier = error.__cause__ or error.__context__
    if earlier is None or any(_is_models(_file(level)) for level in _inside(levels)):
        return levels
    return _levels(earlier)


def _file(level: Level) -> str:
    return level[0].f_code.co_filename.replace("\\", "/")


def _is_models(file: str) -> bool:
    """Return whether a file may be of a model: the user's, or of a library that has models."""
    return not is_exporters(file)


def _is_internal(files: list[str]) -> bool:
    # The innermost file counts: every traced call comes through torch's tracing further out.
    return bool(files) and any(part in files[-1] for part in _INTERNAL)
