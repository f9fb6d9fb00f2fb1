"""Losses that are part of a model's graph."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812  (torch's own convention)
from torch import Tensor

from samba_onnx.importing.operators.computations import Node, computes

_NO_CLASS = -100


def _likelihood(node: Node, scores: Tensor, label: Tensor, weight: Tensor | None) -> Tensor:
    """Return the negative likelihood of the label's class.

    Args:
        node: With ``reduction`` and ``ignore_index``.
        scores: Logarithms of probabilities, [batch, classes, ...].
        label: Integers, [batch, ...].
        weight: One per class.
    """
    return F.nll_loss(
        scores,
        # ONNX allows int32 labels, torch does not.
        label.long(),
        weight,
        ignore_index=node.integer("ignore_index", _NO_CLASS),
        reduction=node.text("reduction", "mean"),
    )


@computes("NegativeLogLikelihoodLoss")
def negative_log_likelihood(
    node: Node, scores: Tensor, label: Tensor, weight: Tensor | None = None
) -> Tensor:
    """Negative likelihood of the label's class."""
    return _likelihood(node, scores, label, weight)


@computes("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(
    node: Node, scores: Tensor, label: Tensor, weight: Tensor | None = None
) -> Tensor | tuple[Tensor, Tensor]:
    """Cross entropy of scores, and the logarithms of their probabilities where they are read."""
    # One operator where nobody reads the logarithms.
    if not node.wants(1):
        return F.cross_entropy(
            scores,
            label.long(),
            weight,
            ignore_index=node.integer("ignore_index", _NO_CLASS),
            reduction=node.text("reduction", "mean"),
        )
    logarithms = F.log_softmax(scores, 1)
    return _likelihood(node, logarithms, label, weight), logarithms
