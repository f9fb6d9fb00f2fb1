"""A multilayer perceptron with ReLU and dropout, the first network of most tutorials."""

from torch import Tensor, nn

from models.example import Example, InputSpec, Variant
from models.initialization import scale_output, spread_weights

__all__ = ["MultilayerPerceptron", "build"]


class MultilayerPerceptron(nn.Module):
    """Two hidden layers over flat feature vectors."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(features, hidden),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Dropout(0.2),
        )
        self.head = nn.Linear(hidden, classes)

    def forward(self, features: Tensor) -> Tensor:
        """Map (batch, features) to logits (batch, classes)."""
        logits: Tensor = self.head(self.layers(features))
        return logits


def build(variant: Variant = "full", seed: int = 0) -> Example:
    """Build the model: 784-512-512-10, or 12-16-16-3 when tiny.

    Args:
        variant: ``full`` or ``tiny``.
        seed: The seed of weights and inputs.

    Returns:
        The module with its named inputs.
    """
    sizes = (784, 512, 10) if variant == "full" else (12, 16, 3)
    module = MultilayerPerceptron(*sizes).eval()
    spread_weights(module, seed, gain=2**0.5)
    example = Example(
        module, (InputSpec("features", (4, sizes[0]), ("batch", None)),), ("logits",), seed
    )
    scale_output(module, example.inputs, module.head)
    return example
