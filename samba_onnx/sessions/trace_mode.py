"""Whether a graph is being traced, so that values do not count."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from samba_onnx.tensor.lazy_parameters import LAZY


class TraceMode:
    """A flag that compiling and tracing turn on while they look at a model."""

    def __init__(self) -> None:
        """Begin with the flag off."""
        self.tracing = False
        """Whether a graph is being traced."""

    @property
    def static(self) -> bool:
        """Whether values do not count now: while tracing, and while parameters are lazy."""
        return self.tracing or LAZY.enabled

    @contextmanager
    def on(self) -> Iterator[None]:
        """Trace inside: parameters keep what they are, and lazy ones stay lazy."""
        # Restored, not switched off: a trace may be made inside another one.
        before, self.tracing = self.tracing, True
        try:
            with LAZY.paused():
                yield
        finally:
            self.tracing = before
