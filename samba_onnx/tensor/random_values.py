"""Random values in blocks that several threads fill, the same with any number of threads."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from samba_onnx.errors import UsageError

_BLOCK: Final = 1 << 20
"""Values that one generator draws."""
_ROUNDINGS: Final = ("nearest_even", "truncation")


@dataclass(frozen=True)
class DrawingOptions:
    """How random values are drawn."""

    threads: int = 8
    inverse_transform_sampling: bool = False
    """Normal values from uniform ones by the inverse of the distribution function."""
    rounding: str = "nearest_even"
    """From float32 to bfloat16: ``nearest_even`` or ``truncation``."""

    def check(self) -> None:
        """Refuse what makes no sense.

        Raises:
            UsageError: An option does not exist; the message names the first.
        """
        if self.threads < 1:
            raise UsageError(f"init_threads is {self.threads}; give 1 or more")
        if self.rounding not in _ROUNDINGS:
            raise UsageError(
                f"fp32_to_bf16_rounding is {self.rounding!r}; give {' or '.join(_ROUNDINGS)}"
            )


_KINDS: Final[dict[Any, str]] = {
    torch.ops.aten.uniform_.default: "uniform_",
    torch.ops.aten.normal_.default: "normal_",
}
_DEFAULTS: Final = (0.0, 1.0)
"""Bounds, or mean and standard deviation."""

FAITHFUL: Final = DrawingOptions()
"""The documented defaults."""


class Drawing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside, ``uniform_`` and ``normal_`` fill tensors block by block."""

    def __init__(self, options: DrawingOptions) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._options = options

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Carry an operator out; called by torch."""
        kwargs = kwargs or {}
        kind = _KINDS.get(func)
        if kind is None or kwargs.get("generator") is not None:
            return func(*args, **kwargs)
        numbers = [*args[1:], *_DEFAULTS[len(args) - 1 :]]
        return fill(args[0], kind, numbers[0], numbers[1], self._options)


def fill(
    tensor: Tensor,
    kind: str,
    first: float,
    second: float,
    options: DrawingOptions,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Fill a tensor with random values; a generator seeds them.

    Args:
        tensor: Filled in place.
        kind: ``uniform_`` or ``normal_``.
        first: Lower bound, or mean.
        second: Upper bound, or standard deviation.
        options: How values are drawn.
        generator: Seeds the values; torch's own when None.

    Returns:
        The tensor.
    """
    base = int(torch.randint(2**62, (), generator=generator))
    # A narrow type is drawn in float32 and rounded as the options say; a tensor that does not lie in
    # one piece has no blocks.
    drawn = tensor if _is_flat(tensor) else torch.empty(tensor.shape, dtype=torch.float32)
    blocks = torch.split(drawn.view(-1), _BLOCK)
    with ThreadPoolExecutor(min(options.threads, len(blocks) or 1)) as pool:
        jobs = [
            # A seed for each block, not for each thread: as many threads as there are, the values
            # are the same.
            pool.submit(_draw, block, kind, first, second, base + index, options)
            for index, block in enumerate(blocks)
        ]
        for job in jobs:
            job.result()
    if drawn is not tensor:
        tensor.copy_(rounded(drawn, tensor.dtype, options))
    return tensor


def rounded(values: Tensor, dtype: torch.dtype, options: DrawingOptions) -> Tensor:
    """Cast values.

    Args:
        values: Any tensor.
        dtype: What to cast to.
        options: How float32 becomes bfloat16.
    """
    cut = dtype is torch.bfloat16 and values.dtype is torch.float32
    if cut and options.rounding == "truncation":
        return (values.view(torch.int32) >> 16).to(torch.int16).view(torch.bfloat16)
    return values.to(dtype)


def _is_flat(tensor: Tensor) -> bool:
    return tensor.dtype in (torch.float32, torch.float64) and tensor.is_contiguous()


def _draw(
    block: Tensor, kind: str, first: float, second: float, seed: int, options: DrawingOptions
) -> None:
    generator = torch.Generator().manual_seed(seed % 2**63)
    with torch.no_grad():
        if kind == "uniform_":
            block.uniform_(first, second, generator=generator)
        elif not options.inverse_transform_sampling:
            block.normal_(first, second, generator=generator)
        else:
            # Symmetric and open on both sides: the inverse is infinite at -1 and 1.
            edge = 1.0 - torch.finfo(block.dtype).eps
            block.uniform_(-edge, edge, generator=generator)
            block.erfinv_().mul_(second * math.sqrt(2.0)).add_(first)


class MultithreadedRNG:
    """Random values for one materializer, the same with any number of threads.

    SambaFlow hands it to materializers of two parameters; ``normal`` has the signature that its
    programs call.
    """

    def __init__(self, options: DrawingOptions, generator: torch.Generator | None) -> None:
        """Draw from a generator.

        Args:
            options: How values are drawn.
            generator: Seeds them; torch's own when None.
        """
        self._options = options
        self._generator = generator

    def normal(
        self,
        mean: float = 0.0,
        std: float = 1.0,
        shape: Iterable[int] = (),
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """Return normal values.

        Args:
            mean: Their mean.
            std: Their standard deviation.
            shape: Sizes of the tensor.
            dtype: Its floating-point type; torch's default when None.
        """
        return self._drawn("normal_", mean, std, shape, dtype)

    def uniform(
        self,
        low: float = 0.0,
        high: float = 1.0,
        shape: Iterable[int] = (),
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """Return uniform values.

        Args:
            low: The lower bound.
            high: The upper bound, which is not reached.
            shape: Sizes of the tensor.
            dtype: Its floating-point type; torch's default when None.
        """
        return self._drawn("uniform_", low, high, shape, dtype)

    def _drawn(
        self,
        kind: str,
        first: float,
        second: float,
        shape: Iterable[int],
        dtype: torch.dtype | None,
    ) -> Tensor:
        # No torch.empty: in lazy mode that is a tensor without memory.
        values = torch.zeros(tuple(shape), dtype=dtype)
        return fill(values, kind, first, second, self._options, self._generator)


class RandomSource:
    """Where materializers get random values from."""

    def __init__(self) -> None:
        """Draw from torch's own generator, with the documented defaults."""
        self._seed: int | None = None
        self._options = FAITHFUL

    def seed(self, seed: int | None, options: DrawingOptions) -> None:
        """Draw in another way from now on.

        Args:
            seed: Makes the values of a tensor depend on this number and on the tensor's name, and
                on nothing else; None for torch's own generator.
            options: How values are drawn.
        """
        self._seed, self._options = seed, options

    def rng(self, name: str) -> MultithreadedRNG:
        """Return random values for one tensor.

        Args:
            name: The tensor's name.
        """
        generator = None
        if self._seed is not None:
            # By a digest, so that tensors with similar names do not draw similar numbers.
            digest = hashlib.blake2b(f"{self._seed} {name}".encode(), digest_size=8).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
        return MultithreadedRNG(self._options, generator)


RANDOM: Final = RandomSource()
"""What the materializers of this process draw from; ``enable_lazy_param`` sets its seed."""
