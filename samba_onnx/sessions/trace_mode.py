"""Whether values count: not while a graph is traced, nor while parameters are made without any."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from samba_onnx.tensor.lazy_parameters import LAZY
from samba_onnx.tensor.random_values import DrawingOptions


class TraceMode:
    """A flag that compiling and tracing turn on while they look at a model."""

    def __init__(self) -> None:
        """Begin with the flag off."""
        self.tracing = False
        """Whether a graph is being traced."""

    def use_static_functional(self) -> bool:
        """Whether values do not count now: while tracing, and while parameters are lazy."""
        return self.tracing or LAZY.enabled

    def enable_lazy_param(
        self,
        seed: int | None = None,
        init_threads: int = 8,
        inverse_transform_sampling: bool = False,
        fp32_to_bf16_rounding: str = "nearest_even",
    ) -> None:
        """Let modules that are made from now on have parameters without memory.

        How a module initialises its parameters is written down, and carried out when their values
        are needed: one by one at ``trace_graph``, or all that a computation on the host touches.

        Args:
            seed: Seed of random values, which then depend on nothing else; None takes a seed from
                torch's generator.
            init_threads: Threads that draw random values; they do not change the values.
            inverse_transform_sampling: Make normal values of uniform ones by the inverse of the
                distribution function.
            fp32_to_bf16_rounding: ``nearest_even`` or ``truncation``.

        Raises:
            UsageError: There are no threads, or the rounding does not exist.
        """
        options = DrawingOptions(init_threads, inverse_transform_sampling, fp32_to_bf16_rounding)
        options.check()
        LAZY.enable(seed, options)

    @staticmethod
    def disable_lazy_param() -> None:
        """Let modules that are made from now on have parameters with memory."""
        LAZY.disable()

    @staticmethod
    def use_lazy_param() -> bool:
        """Whether modules that are made now have parameters without memory."""
        return LAZY.enabled

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
