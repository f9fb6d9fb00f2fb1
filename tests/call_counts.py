"""How often Python functions are called while something runs: work, by a measure that no other process disturbs."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["Calls", "calls_of", "growth"]

Calls = Counter[str]
"""How often each function was called, or a generator continued, by file, line and name."""


def calls_of(action: Callable[[], object]) -> Calls:
    """Return the calls of functions, and those of built-in ones, that an action makes.

    Args:
        action: Does the same whenever it is called; what it keeps for later calls is there already.
    """
    codes: Counter[Any] = Counter()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            codes[frame.f_code] += 1
        elif event == "c_call":
            codes[argument.__qualname__] += 1

    was_enabled = gc.isenabled()
    gc.disable()  # finalisers would be counted where they happen to run
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
        if was_enabled:
            gc.enable()
    calls: Calls = Counter()
    for code, number in codes.items():
        calls[code if isinstance(code, str) else _place(code)] += number
    return calls


def growth(few: Calls, more: Calls, most: Calls) -> tuple[float, str]:
    """Return how calls per layer grow, from counts for n, 2n and 4n layers.

    Args:
        few: Of n layers.
        more: Of twice as many.
        most: Of four times as many.

    Returns:
        The calls that a layer of the second half costs against one of the first, 1 where calls grow in
        proportion; and the functions of which layers need ever more, with their calls per n layers.
    """
    later = (most.total() - more.total()) / 2
    earlier = more.total() - few.total()
    names = {*few, *more, *most}
    excess = {name: (most[name] - more[name]) / 2 - (more[name] - few[name]) for name in names}
    worst = sorted(excess, key=lambda name: -excess[name])[:5]
    return later / earlier, ", ".join(f"{name} {excess[name]:+.0f}" for name in worst)


def _place(code: Any) -> str:
    return f"{code.co_filename.rpartition('/')[2]}:{code.co_firstlineno} {code.co_name}"
