"""Real architectures with seeded random weights, for tests, documentation and benchmarks.

``build("resnet50", "tiny")`` gives an `Example`; ``models.cache.cached_onnx("resnet50", "tiny")``
gives the path of its ONNX file. Importing this package imports no torch: a model's own file is
imported when it is built.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType

from models.example import Example, InputSpec, Variant
from samba_onnx.errors import UsageError

__all__ = ["MODELS", "Builder", "Example", "InputSpec", "Variant", "build", "find"]


@dataclass(frozen=True)
class Builder:
    """One entry of the registry; calling it builds the model.

    Attributes:
        name: The model's name in `MODELS`.
        file: The module that holds the model, such as ``models.lenet``.
        function: Its function in that file.
        title: One line for people.
        variants: The sizes that exist.
    """

    name: str
    file: str
    function: str
    title: str
    variants: tuple[Variant, ...] = ("tiny", "full")

    def __call__(self, variant: Variant = "tiny", seed: int = 0) -> Example:
        """Build the model.

        Args:
            variant: One of ``variants``.
            seed: The seed of weights and inputs.

        Returns:
            The module in evaluation mode with its named inputs.

        Raises:
            UsageError: If the model has no such variant.
        """
        self.check(variant)
        example: Example = getattr(import_module(self.file), self.function)(variant, seed)
        return example

    def check(self, variant: str) -> None:
        """Refuse a variant that does not exist.

        Args:
            variant: What was asked for.

        Raises:
            UsageError: If the model has no such variant.
        """
        if variant not in self.variants:
            raise UsageError(
                f"{self.name} has no variant {variant!r}; it has {', '.join(self.variants)}"
            )


def _registry(*builders: Builder) -> Mapping[str, Builder]:
    return MappingProxyType({builder.name: builder for builder in builders})


MODELS: Mapping[str, Builder] = _registry(
    Builder(
        "logistic_regression",
        "models.logistic_regression",
        "build",
        "logistic regression on 784 features, 10 classes",
    ),
    Builder("mlp", "models.mlp", "build", "multilayer perceptron 784-512-512-10"),
    Builder("lenet", "models.lenet", "build", "LeNet-5 on 32x32 images"),
    Builder("resnet50", "models.resnet", "build", "ResNet-50 v1.5 on 224x224 images"),
    Builder("mobilenet_v3", "models.mobilenet", "build", "MobileNetV3-Large on 224x224 images"),
    Builder("unet", "models.unet", "build", "U-Net with transposed convolutions, 256x256 images"),
    Builder("lstm", "models.lstm", "build", "bidirectional two-layer LSTM text classifier"),
    Builder("bert", "models.bert", "build", "BERT-base encoder with pooler, 128 tokens"),
    Builder("gpt2", "models.gpt2", "build", "GPT-2 (124M) language model, 64 tokens"),
    Builder("vit", "models.vit", "build", "ViT-B/16 image classifier on 224x224 images"),
    Builder(
        "llama",
        "models.llama",
        "build",
        "Llama-style decoder with grouped-query attention, 64 tokens",
        ("tiny", "full", "large"),
    ),
    Builder(
        "whisper_encoder", "models.whisper", "build_encoder", "Whisper-base encoder, 30 s of audio"
    ),
    Builder(
        "whisper_decoder", "models.whisper", "build_decoder", "Whisper-base decoder, 16 tokens"
    ),
)
"""Every model by name."""


def build(name: str, variant: Variant = "tiny", seed: int = 0) -> Example:
    """Build a model by name.

    Args:
        name: A key of `MODELS`.
        variant: ``tiny``, ``full`` or, where the model has it, ``large``.
        seed: The seed of weights and inputs.

    Returns:
        The module in evaluation mode with its named inputs.

    Raises:
        UsageError: If there is no such model or variant.
    """
    return find(name)(variant, seed)


def find(name: str) -> Builder:
    """Look a model up.

    Args:
        name: A key of `MODELS`.

    Returns:
        Its entry.

    Raises:
        UsageError: If there is no such model.
    """
    if name not in MODELS:
        raise UsageError(f"no model {name!r}; there are {', '.join(MODELS)}")
    return MODELS[name]
