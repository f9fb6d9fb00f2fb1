"""Logistic regression: one linear layer and a softmax."""

import torch
from torch import Tensor, nn

from models.example import Example, InputSpec, Variant
from models.initialization import spread_weights

__all__ = ["LogisticRegression", "build"]


class LogisticRegression(nn.Module):
    """Class probabilities of flat feature vectors."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, classes)

    def forward(self, features: Tensor) -> Tensor:
        """Map (batch, features) to (batch, classes)."""
        return torch.softmax(self.linear(features), dim=-1)


def build(variant: Variant = "full", seed: int = 0) -> Example:
    """Build the model: 784 features and 10 classes, or 12 and 3 when tiny.

    Args:
        variant: ``full`` or ``tiny``.
        seed: The seed of weights and inputs.

    Returns:
        The module with its named inputs.
    """
    features, classes = (784, 10) if variant == "full" else (12, 3)
    module = LogisticRegression(features, classes).eval()
    spread_weights(module, seed)
    spec = InputSpec("features", (4, features), ("batch", None))
    return Example(module, (spec,), ("probabilities",), seed)
