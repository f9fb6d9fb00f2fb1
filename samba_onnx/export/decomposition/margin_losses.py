"""Margin losses over classes in terms of operators whose gradients can be written in ONNX."""

from __future__ import annotations

import torch
from torch import Tensor

_NONE, _MEAN = 0, 1


def multi_margin_loss(
    value: Tensor,
    target: Tensor,
    p: float = 1,
    margin: float = 1,
    weight: Tensor | None = None,
    reduction: int = _MEAN,
) -> Tensor:
    """Compute how far other classes come within a margin of the right one; as ATen's operator.

    Args:
        value: (N, C) or (C).
        target: (N) or (); classes.
        p: 1 or 2, the power of each violation.
        margin: How far the right class has to lead.
        weight: (C); what a violation counts for by the right class; all alike when None.
        reduction: 0 for none, 1 for the mean, 2 for the sum.
    """
    size = value.shape[-1] if value.dim() else 1
    scores, rows = value.reshape(-1, size), target.reshape(-1)
    right = scores.gather(1, rows.unsqueeze(1))
    excess = torch.relu(margin - right + scores)
    if p == 2:
        excess = excess * excess
    if weight is not None:
        excess = excess * weight[rows].unsqueeze(1)
    classes = torch.arange(scores.shape[1], device=value.device)
    # The right class does not compete with itself.
    others = classes.unsqueeze(0) != rows.unsqueeze(1)
    losses = torch.where(others, excess, 0.0).sum(1) / scores.shape[1]
    return _reduced(losses, reduction, value.dim())


def multilabel_margin_loss(value: Tensor, target: Tensor, reduction: int = _MEAN) -> Tensor:
    """Compute how far other classes come within one of each right one; as ATen's operator.

    Args:
        value: (N, C) or (C) or ().
        target: (N, C) or (C) or (); the right classes of each sample, which end before the
            first -1.
        reduction: 0 for none, 1 for the mean, 2 for the sum.
    """
    size = value.shape[-1] if value.dim() else 1
    scores, labels = value.reshape(-1, size), target.reshape(-1, size)
    # The first negative label ends a sample's list.
    counted = (labels < 0).cumsum(1) == 0
    # Any valid place will do: what does not count is left out below.
    places = torch.where(counted, labels, 0)
    classes = torch.arange(scores.shape[1], device=value.device)
    hit = (places.unsqueeze(2) == classes) & counted.unsqueeze(2)
    right = hit.any(1)
    excess = torch.relu(1 - scores.gather(1, places).unsqueeze(2) + scores.unsqueeze(1))
    valid = counted.unsqueeze(2) & ~right.unsqueeze(1)
    losses = torch.where(valid, excess, 0.0).sum((1, 2)) / scores.shape[1]
    return _reduced(losses, reduction, value.dim())


def _reduced(losses: Tensor, reduction: int, rank: int) -> Tensor:
    if reduction == _NONE:
        return losses if rank > 1 else losses.squeeze(0)
    return losses.mean() if reduction == _MEAN else losses.sum()
