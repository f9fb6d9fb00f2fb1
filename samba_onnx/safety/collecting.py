"""When garbage is collected: not in the middle of a trace, nor of a compilation."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator
from typing import Final

__all__ = ["collections_deferred"]

_LOCK: Final = threading.Lock()
_STATE: Final = {"contexts": 0, "was_enabled": False}


@contextlib.contextmanager
def collections_deferred() -> Iterator[None]:
    """Let Python collect no cycles of garbage within the context, or within a decorated function.

    A collection runs finalisers of objects that have nothing to do with what is being done, at any
    allocation. While torch traces, that is wrong twice: an abandoned generator under
    ``torch.no_grad()``, as programs and torch's own tests leave them behind, sets the mode of
    gradients when it is closed, and what sets it is recorded as part of the model, or raises where the
    trace is not ready yet. While a large program is compiled, it is slow: hundreds of thousands of
    nodes and values, all of them in cycles and nearly none of them garbage, are looked through again and
    again, which takes a quarter of the time of a training step and gains some percent of memory.

    Objects without cycles still go at once; cycles go after the outermost context. Contexts may be
    nested and entered by several threads. A program that has switched collections off keeps them off.
    """
    # A counter under a lock: two threads may compile at once, and the first that ends must not
    # switch collections on for the other.
    with _LOCK:
        if not _STATE["contexts"]:
            _STATE["was_enabled"] = gc.isenabled()
            gc.disable()
        _STATE["contexts"] += 1
    try:
        yield
    finally:
        with _LOCK:
            _STATE["contexts"] -= 1
            if not _STATE["contexts"] and _STATE["was_enabled"]:
                gc.enable()
