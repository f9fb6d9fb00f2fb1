"""Llama-style decoders (Touvron et al., 2023): rotary positions, RMS norm, gated feed-forward.

``full`` has the configuration of SmolLM-135M, a published model of this architecture with
grouped-query attention and a tied head. ``large`` has the layer shapes of Llama 3.2 1B, but 6 of
its 16 layers: 2.5 GB of float32 weights, more than one protobuf message can hold.
"""

from functools import partial

from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from models.example import Example, InputSpec, Variant
from models.initialization import scale_output, spread_weights

__all__ = ["Llama", "build"]

_CONFIGURATIONS = {
    "tiny": partial(
        LlamaConfig,
        vocab_size=100,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=16,
        tie_word_embeddings=True,
    ),
    "full": partial(
        LlamaConfig,
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    ),
    "large": partial(
        LlamaConfig,
        vocab_size=128256,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=6,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    ),
}

_SHAPES = {"tiny": (2, 8), "full": (1, 64), "large": (1, 16)}


class Llama(nn.Module):
    """The language model without its key-value cache, under plain tensors."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.model = LlamaForCausalLM(config)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Map ids (batch, sequence) to logits (batch, sequence, vocabulary)."""
        logits: Tensor = self.model(input_ids=input_ids, use_cache=False).logits
        return logits


def build(variant: Variant = "full", seed: int = 0) -> Example:
    """Build 30 layers of width 576, 6 of width 2048 when large, or 2 of width 32 when tiny.

    Args:
        variant: ``full``, ``large`` or ``tiny``.
        seed: The seed of weights and inputs.

    Returns:
        The module with its named inputs.
    """
    config = _CONFIGURATIONS[variant]()
    module = Llama(config).eval()
    spread_weights(module, seed)
    axes = ("batch", "sequence")
    spec = InputSpec("input_ids", _SHAPES[variant], axes, "tokens", config.vocab_size)
    example = Example(module, (spec,), ("logits",), seed)
    # The head shares its matrix with the embedding, so the norm before it takes the scale.
    scale_output(module, example.inputs, module.model.model.norm)
    return example
