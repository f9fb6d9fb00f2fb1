"""ViT-B/16 (Dosovitskiy et al., 2020) from its published configuration."""

from torch import Tensor, nn
from transformers import ViTConfig, ViTForImageClassification

from models.example import Example, InputSpec, Variant
from models.initialization import scale_output, spread_weights

__all__ = ["Vit", "build"]


class Vit(nn.Module):
    """The image classifier under plain tensors."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.model = ViTForImageClassification(config)

    def forward(self, pixel_values: Tensor) -> Tensor:
        """Map (batch, 3, h, w) to logits (batch, classes)."""
        logits: Tensor = self.model(pixel_values=pixel_values).logits
        return logits


def build(variant: Variant = "full", seed: int = 0) -> Example:
    """Build ViT-B/16 with 1000 classes for 224x224 images, or two narrow layers when tiny.

    Args:
        variant: ``full`` or ``tiny``.
        seed: The seed of weights and inputs.

    Returns:
        The module with its named inputs.
    """
    pixels, labels, config = 224, 1000, ViTConfig()
    if variant == "tiny":
        pixels, labels = 16, 10
        config = ViTConfig(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            image_size=pixels,
            patch_size=4,
        )
    config.num_labels = labels
    module = Vit(config).eval()
    spread_weights(module, seed, gain=1.5)
    shape = (1, 3, pixels, pixels)
    spec = InputSpec("pixel_values", shape, ("batch", None, None, None), "image")
    example = Example(module, (spec,), ("logits",), seed)
    scale_output(module, example.inputs, module.model.classifier)
    return example
