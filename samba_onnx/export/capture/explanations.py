"""Why a module cannot be traced, in words about the user's program instead of torch's own."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from samba_onnx.program.source_location import trace_location

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
    if isinstance(error, DataDependentOutputException | GuardOnDataDependentSymNode):
        return _VALUES
    if isinstance(error, DynamicOutputShapeException):
        return _SIZES
    if _WRITTEN_TOO_EARLY in str(error):
        return _CLONE
    if _NUMPY in str(error):
        return _ARRAY
    files = _called(error)
    first = str(error).strip().partition("\n")[0][:500]
    tells_users = type(error) in _EAGER and not _TRACING.search(first)
    unsupported = isinstance(error, UnsupportedOperatorException)
    if unsupported or (_is_internal(files) and not tells_users):
        for path, sentence in _BY_FUNCTION.items():
            if any(path in file for file in files):
                return sentence
        return _UNTRACEABLE
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def raised_at(error: Exception) -> str:
    """Return the user's line at which an error was raised, as ``model.py:12``; empty for none.

    Args:
        error: It has a traceback.
    """
    own = [frame for frame in _frames(error) if not is_library(frame.filename)]
    return trace_location("".join(traceback.format_list(own)))


def user_place() -> str:
    """Return the line of the user's model that is being executed, as ``model.py:12``."""
    stack = traceback.extract_stack()
    # The program that called the exporter lies further out, and is no part of the model.
    start = next((i for i, frame in enumerate(stack) if frame.filename.startswith(_ROOM)), 0)
    inner, whole = (
        trace_location("".join(traceback.format_list(frames))) for frames in (stack[start:], stack)
    )
    whole = whole or "an unknown line"
    return whole if not inner or inner.startswith(("torch/", "samba_onnx/")) else inner


def _called(error: Exception) -> list[str]:
    """Return the files of torch behind the last line of the user's, outermost first."""
    files = [frame.filename.replace("\\", "/") for frame in _frames(error)]
    start = max((place for place, file in enumerate(files) if not is_library(file)), default=-1)
    return [file for file in files[start + 1 :] if "/torch/" in file]


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the frames of an error; those of its cause where its own do not reach the user's code."""
    frames = list(traceback.extract_tb(error.__traceback__))
    earlier = error.__cause__ or error.__context__
    if earlier is None or not all(is_library(frame.filename) for frame in frames):
        return frames
    return _frames(earlier)


def is_library(file: str) -> bool:
    """Return whether a file is none of the user's: of torch, or of this product.

    Args:
        file: Its path.
    """
    file = file.replace("\\", "/")
    return "/torch/" in file or "/samba_onnx/" in file or file.endswith("/contextlib.py")


def _is_internal(files: list[str]) -> bool:
    return bool(files) and any(part in files[-1] for part in _INTERNAL)
