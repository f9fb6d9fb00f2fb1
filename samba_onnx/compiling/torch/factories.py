"""The function that a user names on the command line: found, called, and what is said if that fails."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from pathlib import Path
from typing import Any, Final

from torch import nn

from samba_onnx.errors import ModelError, UsageError
from samba_onnx.safety.files import printable

RETURNS: Final = {
    False: "return a module and its example inputs, as in return model, (image,)",
    True: "return a module, its example inputs and an optimizer, as in return model, (image, "
    "label), optimizer",
}
"""What a factory must do; by whether it is to be trained."""


def call_factory(source: str, count: int) -> tuple[Any, ...]:
    """Call a factory and return what it returned.

    Args:
        source: ``package.module:function``, as a user gave it.
        count: How many things it must return.

    Raises:
        UsageError: There is no such function, it takes arguments, or returns something else.
        ModelError: It failed, or its module did.
    """
    place, _, attribute = source.rpartition(":")
    if not all(part.isidentifier() for part in (*place.split("."), *attribute.split("."))):
        raise UsageError(
            f"{printable(source)!r} names no factory: give package.module:function, as in "
            "samba-port convert my_project.models:resnet"
        )
    # As for python -m: what lies in the working folder can be imported.
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        factory: Any = importlib.import_module(place)
    except ModuleNotFoundError as error:
        # What the user's own module imports in vain is a failure of that module, and no wrong name.
        if error.name and (place == error.name or place.startswith(f"{error.name}.")):
            todo = "run the command in the folder that holds it, or install it"
            if place.endswith(".py"):
                todo = f"modules go by their names, without the suffix: {place[:-3]}:{attribute}"
            raise UsageError(f"there is no Python module {place!r}: {todo}") from None
        raise failed_at(source, error) from error
    except (Exception, SystemExit) as error:  # whatever the user's module raises
        raise failed_at(source, error) from error
    for name in attribute.split("."):
        if not hasattr(factory, name):
            raise UsageError(f"module {place!r} has no {attribute!r}")
        factory = getattr(factory, name)
    _refuse_unless_factory(source, factory, count)
    try:
        parts = factory()
    except (Exception, SystemExit) as error:  # whatever the user's function raises
        raise failed_at(source, error) from error
    if not isinstance(parts, tuple | list) or len(parts) != count:
        what = type(parts).__name__
        if isinstance(parts, tuple | list):
            what += f" of {len(parts)}"
        raise UsageError(f"{source} returned {what}: it must {RETURNS[count == 3]}")
    return tuple(parts)


def _refuse_unless_factory(source: str, factory: Any, count: int) -> None:
    """Refuse what cannot be called without arguments for a module and its inputs."""
    name = source.rpartition(":")[2]
    wanted = f"give a function without parameters; it must {RETURNS[count == 3]}"
    # A module can be called, but returns what it computes.
    if isinstance(factory, nn.Module) or not callable(factory):
        raise UsageError(f"{source} is {type(factory).__name__}, not a function: {wanted}")
    if isinstance(factory, type):
        raise UsageError(f"{source} is a class, not a function: {wanted}")
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # of builtins that do not say what they take
        return
    needed = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if needed:
        raise UsageError(
            f"{source} has parameters without a default, {', '.join(needed)}, and a factory is called "
            "without arguments: give them defaults, or name a function that calls it, as in "
            f"def factory(): return {name}({', '.join(f'{one}=...' for one in needed)})"
        )


def failed_at(source: str, error: BaseException) -> ModelError:
    """Return the error that says where the user's own code failed.

    Args:
        source: What was executed, in the user's words.
        error: What it raised.
    """
    reason = " ".join(str(error).split())[:300]
    if isinstance(error, SyntaxError):  # the line that is read, and not the reader's
        place = f" at {Path(error.filename).name}:{error.lineno}" if error.filename else ""
        reason = error.msg
    else:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f" at {Path(frame.filename).name}:{frame.lineno}"
    return ModelError(f"{source} failed{place}: {type(error).__name__}: {reason}")
