"""What every builder returns: a module, its named inputs, and how to draw more of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["Example", "InputSpec", "Variant"]

Variant = Literal["tiny", "full", "large"]
"""``tiny`` is for tests, ``full`` has the published size, ``large`` has more than 2 GB of weights."""


@dataclass(frozen=True)
class InputSpec:
    """One input of a model.

    Attributes:
        name: The argument of ``forward``, and the name of the graph input.
        shape: Its dimensions.
        axes: For each dimension the name under which it may become dynamic, or None.
        kind: ``normal`` for standard normal float32 values, ``image`` for the same on top of coarse
            patches (pure noise averages out in pooling, and all images look the same), ``tokens`` for int64 ids below
            ``vocabulary``, ``mask`` for an int64 mask of ones that ends in zeros (padding).
        vocabulary: The number of token ids; used by ``tokens`` only.
    """

    name: str
    shape: tuple[int, ...]
    axes: tuple[str | None, ...]
    kind: Literal["normal", "image", "tokens", "mask"] = "normal"
    vocabulary: int = 0

    def with_batch(self, size: int) -> InputSpec:
        """The same input with another batch size, if it has a dynamic batch axis.

        Args:
            size: The new size of the axis named ``batch``.

        Returns:
            The changed description.
        """
        pairs = zip(self.shape, self.axes, strict=True)
        return replace(self, shape=tuple(size if axis == "batch" else n for n, axis in pairs))

    def draw(self, seed: int) -> Tensor:
        """Draw values of this input.

        Args:
            seed: The same seed always gives the same values.

        Returns:
            A tensor of ``shape``, float32 or int64.
        """
        import torch

        generator = torch.Generator().manual_seed(seed)
        if self.kind == "normal":
            return torch.randn(self.shape, generator=generator)
        if self.kind == "image":
            coarse = torch.randn((*self.shape[:-2], 4, 4), generator=generator)
            patches = torch.nn.functional.interpolate(coarse, self.shape[-2:])
            return 0.8 * patches + 0.6 * torch.randn(self.shape, generator=generator)
        if self.kind == "tokens":
            return torch.randint(0, self.vocabulary, self.shape, generator=generator)
        mask = torch.ones(self.shape, dtype=torch.int64)
        mask[..., self.shape[-1] - self.shape[-1] // 4 :] = 0
        return mask


@dataclass(frozen=True)
class Example:
    """A model that is ready to be exported.

    Attributes:
        module: In evaluation mode; ``module(**inputs)`` gives a tensor or a tuple of tensors.
        specs: The inputs in the order of ``forward``.
        outputs: A name for each output.
        seed: The seed that ``inputs`` are drawn with.
    """

    module: nn.Module
    specs: tuple[InputSpec, ...]
    outputs: tuple[str, ...]
    seed: int = 0

    @property
    def inputs(self) -> dict[str, Tensor]:
        """The named example inputs."""
        return self.draw(self.seed)

    @property
    def dynamic_axes(self) -> Mapping[str, Mapping[int, str]]:
        """For each input the dimensions that may become dynamic, with their names."""
        return {
            spec.name: {axis: name for axis, name in enumerate(spec.axes) if name is not None}
            for spec in self.specs
        }

    def draw(self, seed: int) -> dict[str, Tensor]:
        """Draw other inputs of the same shapes.

        Args:
            seed: The same seed always gives the same values.

        Returns:
            One tensor per input, by name.
        """
        return {spec.name: spec.draw(seed * 101 + index) for index, spec in enumerate(self.specs)}
