"""LeNet-5 (LeCun et al., 1998), with every map of C3 connected to every map of S2."""

import torch
from torch import Tensor, nn

from models.example import Example, InputSpec, Variant
from models.initialization import scale_output, spread_weights

__all__ = ["LeNet", "build"]


class LeNet(nn.Module):
    """Two convolutions with average pooling, then three linear layers."""

    def __init__(self, width: int = 1, classes: int = 10) -> None:
        """Build the layers.

        Args:
            width: Divides the number of maps and of hidden units; 1 is the published size.
            classes: The number of outputs.
        """
        super().__init__()
        self.first = nn.Conv2d(1, 6 // width, 5)
        self.second = nn.Conv2d(6 // width, 16 // width, 5)
        self.pool = nn.AvgPool2d(2)
        self.third = nn.Linear(16 // width * 25, 120 // width)
        self.fourth = nn.Linear(120 // width, 84 // width)
        self.head = nn.Linear(84 // width, classes)

    def forward(self, image: Tensor) -> Tensor:
        """Map (batch, 1, 32, 32) to logits (batch, classes)."""
        maps = self.pool(torch.tanh(self.first(image)))
        maps = self.pool(torch.tanh(self.second(maps)))
        hidden = torch.tanh(self.third(torch.flatten(maps, 1)))
        logits: Tensor = self.head(torch.tanh(self.fourth(hidden)))
        return logits


def build(variant: Variant = "full", seed: int = 0) -> Example:
    """Build the model at its published size, or with half the maps and units when tiny.

    Args:
        variant: ``full`` or ``tiny``.
        seed: The seed of weights and inputs.

    Returns:
        The module with its named inputs.
    """
    module = LeNet(1 if variant == "full" else 2).eval()
    spread_weights(module, seed, gain=1.5)
    spec = InputSpec("image", (2, 1, 32, 32), ("batch", None, None, None), "image")
    example = Example(module, (spec,), ("logits",), seed)
    scale_output(module, example.inputs, module.head)
    return example
