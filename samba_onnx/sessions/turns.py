"""Threads take turns: all sessions of a process share one device, and one way of tracing.

A turn is everything that one call of a session does, so that no other thread sees half of it: a run
with its copies, the transfer of a whole module, a trace with all that it sends. A thread that is in
its turn may call any of them again, as a materializer does that reads another tensor.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from samba_onnx.runtime.locking import RenewedMutex

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

TURN: Final = RenewedMutex()
"""Held by the thread whose turn it is, and by no thread of a process that was just forked."""


def in_turn(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Let a function, or method, be executed in a turn of its own.

    Args:
        function: What uses the device, or what is known of the loaded program.
    """

    @functools.wraps(function)
    def taking_turns(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        with TURN.mutex:
            return function(*args, **kwargs)

    return taking_turns
