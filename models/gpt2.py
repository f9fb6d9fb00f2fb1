"""GPT-2 with 124 million parameters (Radford et al., 2019) from its published configuration."""

from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from models.example import Example, InputSpec, Variant
from models.initialization import scale_output, spread_weights

__all__ = ["Gpt2", "build"]


class Gpt2(nn.Module):
    """The language model without its key-value cache, under plain tensors."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.model = GPT2LMHeadModel(config)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Map ids (batch, sequence) to logits (batch, sequence, vocabulary)."""
        logits: Tensor = self.model(input_ids=input_ids, use_cache=False).logits
        return logits


def build(variant: Variant = "full", seed: int = 0) -> Example:
    """Build GPT-2 over 64 tokens, or two layers of width 32 over 8 when tiny.

    Args:
        variant: ``full`` or ``tiny``.
        seed: The seed of weights and inputs.

    Returns:
        The module with its named inputs.
    """
    config = GPT2Config()
    if variant == "tiny":
        config = GPT2Config(
            vocab_size=100,
            n_positions=16,
            n_embd=32,
            n_layer=2,
            n_head=4,
            bos_token_id=0,
            eos_token_id=0,
        )
    module = Gpt2(config).eval()
    spread_weights(module, seed, gain=1.5)
    shape = (1, 64) if variant == "full" else (2, 8)
    spec = InputSpec("input_ids", shape, ("batch", "sequence"), "tokens", config.vocab_size)
    example = Example(module, (spec,), ("logits",), seed)
    # The head shares its matrix with the embedding, so the norm before it takes the scale.
    scale_output(module, example.inputs, module.model.transformer.ln_f)
    return example
