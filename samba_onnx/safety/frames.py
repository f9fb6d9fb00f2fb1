"""Where Python keeps the frames of functions that call each other deeply: in memory that is asked for once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, ParamSpec, TypeVar

__all__ = ["frames_together"]

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

_SLOTS: Final = 1 << 17
"""Slots on the stack of a function that needs none, 8 bytes each: 1 MB, so that Python asks for a chunk of 2 MB. What is left of
it is room for three times as many frames as Python lets functions call each other, and of any that has an argument
for each weight of a large model. What no frame comes to lie in, the system gives no memory for."""


def frames_together(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Return a function whose frame, and those of all that it calls, lie side by side in one piece of memory.

    Python keeps frames in chunks of 16 KB. The first frame that does not fit into the last chunk begins another, which goes
    back to the system when that frame returns. Where a boundary lies in the middle of what is called again and again, each call
    asks for memory and faults. Where boundaries lie depends on who calls, and on the number of weights, as torch traces
    functions with one argument for each: with 96 layers of Llama it was a quarter of the time, with 48 none of it.
    Python 3.15, and late releases of 3.13 and 3.14, keep the last chunk.

    Args:
        function: Does work that is worth a few microseconds more, as a trace or a plan of a whole model.
    """

    @functools.wraps(function)
    def called(*args: _Parameters.args, **keywords: _Parameters.kwargs) -> _Result:
        result: _Result = _with_room(function, args, keywords)
        return result

    return called


def _with_room(
    function: Callable[..., Any], args: tuple[Any, ...], keywords: Mapping[str, Any]
) -> Any:
    return function(*args, **keywords)


# A function's stack size decides whether Python begins a new chunk; no instruction uses these
# slots.
_with_room.__code__ = _with_room.__code__.replace(co_stacksize=_SLOTS)
