"""``sambaflow.samba.lazy_param``: parameters that take no memory until their values are needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from samba_onnx.errors import UnsupportedSymbolError
from samba_onnx.sessions import SESSION

__all__ = ["RNGProvider", "RNGProviderFactory", "lazy_param"]


@contextmanager
def lazy_param(quantized: bool = False) -> Iterator[None]:
    """Let modules that are made inside have parameters without memory.

    Args:
        quantized: Whether they are of the vendor's quantized modules, which are not here.

    Raises:
        UnsupportedSymbolError: ``quantized`` is true.
    """
    if quantized:
        raise UnsupportedSymbolError(
            "sambaflow.samba.lazy_param.lazy_param(quantized=True) is not part of samba-onnx: its "
            "quantized modules are not; make the modules without quantization"
        )
    # Whoever switched it on before wants it on afterwards.
    was_lazy = SESSION.use_lazy_param()
    if not was_lazy:
        SESSION.enable_lazy_param()
    try:
        yield
    finally:
        if not was_lazy:
            SESSION.disable_lazy_param()


class RNGProvider:
    """Gives materializers of parameters the generator that they draw from: torch's own."""

    def __call__(self) -> RNGProvider:
        """Return the generator, which this is."""
        return self

    def normal(
        self,
        mean: float,
        std: float,
        shape: Sequence[int],
        dtype: torch.dtype = torch.float32,
    ) -> torch.Tensor:
        """Draw normally distributed values.

        Args:
            mean: Their mean.
            std: Their standard deviation, at least 0.
            shape: Shape of the tensor.
            dtype: Type of its elements; they are drawn in float32 and rounded to it.

        Returns:
            A new tensor.
        """
        return torch.empty(tuple(shape), dtype=torch.float32).normal_(mean, std).to(dtype)


class RNGProviderFactory:
    """Builds providers."""

    def build_provider(self) -> RNGProvider:
        """Return a provider of random values."""
        return RNGProvider()
