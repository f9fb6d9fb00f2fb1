"""Methods of a class that is composed of parts: each is that of a part, or a function, and said there.

Signature and documentation are those of what is called, for people, ``help``, and editors alike.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

_Part = TypeVar("_Part")
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def call(
    method: Callable[Concatenate[_Part, _Parameters], _Result], of: str
) -> Callable[Concatenate[Any, _Parameters], _Result]:
    """Return the method that calls one of a part.

    Args:
        method: The method of the part.
        of: The name of the attribute that has the part.
    """

    @functools.wraps(method)
    def forwarded(self: Any, /, *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        # Looked up each time: a session that is reset has other parts.
        return method(getattr(self, of), *args, **kwargs)

    return forwarded


def alone(
    first: str, function: Callable[_Parameters, _Result]
) -> Callable[Concatenate[Any, _Parameters], _Result]:
    """Return the method that calls a function, which needs no part.

    Args:
        first: What the method calls its first argument, ``self`` or ``cls``, which the function does not take.
        function: The function.
    """

    @functools.wraps(function)
    def forwarded(_: Any, /, *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        return function(*args, **kwargs)

    signature = inspect.signature(function)
    owner = inspect.Parameter(first, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    # Whoever asks a bound method takes its first parameter away, which must not be one of the function's.
    forwarded.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[owner, *signature.parameters.values()]
    )
    return forwarded
