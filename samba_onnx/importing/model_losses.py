"""Losses that are built on an output of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import torch.nn.functional as F  # noqa: N812  (torch's own convention)
from torch import Tensor

from samba_onnx.errors import UsageError

__all__ = ["Loss", "LossKind"]

LossKind: TypeAlias = Literal["cross_entropy", "mse", "bce_with_logits", "l1", "nll"]
_CLASSES = ("cross_entropy", "nll")


@dataclass(frozen=True)
class Loss:
    """A loss on one output of a model, with a new input for the label.

    Example:
        >>> Loss("cross_entropy", "logits", "labels", class_axis=-1)
        Loss(kind='cross_entropy', output='logits', label='labels', name='', reduction='mean', \
ignore_index=-100, label_smoothing=0.0, class_axis=-1)
    """

    kind: LossKind
    output: str
    """Name of the output that it compares with the label."""
    label: str
    """Name of the new input: for cross_entropy and nll int64 classes in the output's shape without
    its class axis (cross_entropy also takes probabilities in the output's shape), else numbers in
    the output's shape. Several losses may share one."""
    name: str = ""
    """Name of the new output; by default that of the output with ``_loss`` appended."""
    reduction: Literal["mean", "sum", "none"] = "mean"
    ignore_index: int = -100
    """Class that does not count; cross_entropy and nll only."""
    label_smoothing: float = 0.0
    """From 0 to 1; cross_entropy only."""
    class_axis: int = 1
    """Axis of the classes in the output: 1 as in torch, -1 for language models."""

    def __post_init__(self) -> None:
        """Refuse what no loss can mean.

        Raises:
            UsageError: A field has no meaning, or none for this kind of loss.
        """
        if self.kind not in get_args(LossKind):
            kinds = ", ".join(get_args(LossKind))
            raise UsageError(f"unknown loss {self.kind!r}; choose one of {kinds}")
        if self.reduction not in ("mean", "sum", "none"):
            raise UsageError(
                f"unknown reduction {self.reduction!r}; choose one of mean, sum and none"
            )
        if not 0.0 <= self.label_smoothing <= 1.0:
            raise UsageError(f"label_smoothing is {self.label_smoothing}, it must be from 0 to 1")
        if self.label_smoothing and self.kind != "cross_entropy":
            raise UsageError(f"label_smoothing is for cross_entropy, not for {self.kind}")
        # Other losses have no classes. A value that is the default may as well not have been given.
        if self.kind not in _CLASSES and (self.ignore_index != -100 or self.class_axis != 1):
            raise UsageError(
                f"ignore_index and class_axis are for {' and '.join(_CLASSES)}, not for {self.kind}"
            )

    @property
    def output_name(self) -> str:
        """Name of the new output."""
        return self.name or f"{self.output}_loss"

    def compute(self, output: Tensor, label: Tensor) -> Tensor:
        """Return the loss.

        Args:
            output: What the model gave.
            label: What it should have given, as ``label`` describes.

        Returns:
            A scalar; with reduction ``none`` one number per element or, for classes, per label.
        """
        if self.kind == "mse":
            return F.mse_loss(output, label, reduction=self.reduction)
        if self.kind == "l1":
            return F.l1_loss(output, label, reduction=self.reduction)
        if self.kind == "bce_with_logits":
            return F.binary_cross_entropy_with_logits(output, label, reduction=self.reduction)
        # The rows lose the label's shape, which the user expects back where nothing is reduced.
        shape = label.shape
        output, label = self._by_rows(output, label)
        if self.kind == "nll":
            result = F.nll_loss(output, label, None, None, self.ignore_index, None, self.reduction)
        else:
            result = F.cross_entropy(
                output,
                label,
                reduction=self.reduction,
                ignore_index=self.ignore_index,
                label_smoothing=self.label_smoothing,
            )
        # Probabilities as labels keep the output's shape, so that nothing was flattened.
        if self.reduction != "none" or label.is_floating_point():
            return result
        return result.reshape(shape)

    def _by_rows(self, output: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """Bring classes to the axis where torch wants them."""
        axis = self.class_axis % output.dim()
        # Labels that are probabilities have the class axis too, and must move with the output.
        if label.is_floating_point():
            return output.movedim(axis, 1), label.movedim(axis, 1)
        if axis == output.dim() - 1:  # a plain matrix: nothing is moved in memory
            return output.reshape(-1, output.shape[-1]), label.reshape(-1)
        return output.movedim(axis, 1), label
