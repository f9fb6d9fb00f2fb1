"""Where the windows of convolutions and poolings lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812  (torch's own convention)
from torch import Tensor

from samba_onnx.importing.operators.computations import Node


@dataclass(frozen=True)
class SlidingWindows:
    """Sizes of windows per spatial axis, and what lies around the value."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    before: list[int]
    after: list[int]
    extra: list[int]
    """Elements beyond ``after`` that the last window reaches with ``ceil_mode``."""

    @property
    def symmetric(self) -> bool:
        """Whether torch's own operators take the padding."""
        return self.before == self.after and not any(self.extra)

    @property
    def dilated(self) -> bool:
        """Whether windows have gaps."""
        return any(step != 1 for step in self.dilations)

    def padding(self, *, extra: bool = True) -> list[int]:
        """Return the numbers for ``F.pad``: the last axis first."""
        flat: list[int] = []
        for axis in reversed(range(len(self.kernel))):
            flat += [self.before[axis], self.after[axis] + (self.extra[axis] if extra else 0)]
        return flat


def windows(node: Node, value: Tensor, kernel: Sequence[int]) -> SlidingWindows:
    """Return where the windows of a node lie.

    Args:
        node: With ``strides``, ``dilations``, ``pads``, ``auto_pad`` and ``ceil_mode``.
        value: [batch, channels, spatial sizes...].
        kernel: Spatial sizes of the window.

    Raises:
        ModelError: The value has no or more than three spatial axes.
    """
    rank = value.dim() - 2
    # torch has these three ranks, and a kernel of another rank is an error of the model.
    if not 1 <= rank <= 3 or rank != len(kernel):
        raise node.refuse(f"its operand has {rank} spatial axes; torch computes 1, 2 or 3")
    sizes = list(value.shape[2:])
    strides = node.integers("strides", [1] * rank)
    dilations = node.integers("dilations", [1] * rank)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    before, after = _pads(node, sizes, reach, strides)
    extra = [0] * rank
    if node.integer("ceil_mode"):
        for axis in range(rank):
            whole = sizes[axis] + before[axis] + after[axis]
            count = -(-(whole - reach[axis]) // strides[axis]) + 1
            if (count - 1) * strides[axis] >= sizes[axis] + before[axis]:
                count -= 1  # a window must begin inside the value or before it
            extra[axis] = max(0, (count - 1) * strides[axis] + reach[axis] - whole)
    return SlidingWindows(list(kernel), strides, dilations, before, after, extra)


def _pads(
    node: Node, sizes: list[int], reach: list[int], strides: list[int]
) -> tuple[list[int], list[int]]:
    rank = len(sizes)
    automatic = node.text("auto_pad", "NOTSET")
    if automatic == "VALID":
        return [0] * rank, [0] * rank
    if automatic not in ("SAME_UPPER", "SAME_LOWER"):
        pads = node.integers("pads", [0] * 2 * rank)
        return pads[:rank], pads[rank:]
    before, after = [], []
    for size, extent, stride in zip(sizes, reach, strides, strict=True):
        # SAME means as many windows as strides fit into the value, whatever the kernel is.
        needed = max((-(-size // stride) - 1) * stride + extent - size, 0)
        small, large = needed // 2, needed - needed // 2
        before.append(small if automatic == "SAME_UPPER" else large)
        after.append(large if automatic == "SAME_UPPER" else small)
    return before, after


def unfolded(value: Tensor, place: SlidingWindows, filling: float) -> Tensor:
    """Return the content of every window.

    Args:
        value: [batch, channels, spatial sizes...].
        place: Where the windows lie.
        filling: What lies around the value.

    Returns:
        [batch, channels, windows per axis..., elements of a window].
    """
    rank = len(place.kernel)
    value = F.pad(value, place.padding(), value=filling)
    for axis in range(rank):
        reach = (place.kernel[axis] - 1) * place.dilations[axis] + 1
        value = value.unfold(2 + axis, reach, place.strides[axis])
        value = value[..., :: place.dilations[axis]]
    return value.flatten(2 + rank)


def lowest(dtype: torch.dtype) -> float:
    """Return what no element of a type is below."""
    # Infinity would be no integer, and the lowest finite float would win over minus infinity.
    return -torch.inf if dtype.is_floating_point else torch.iinfo(dtype).min
