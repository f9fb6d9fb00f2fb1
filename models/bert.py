"""BERT-base (Devlin et al., 2018) from its published configuration."""

from torch import Tensor, nn
from transformers import BertConfig, BertModel

from models.example import Example, InputSpec, Variant
from models.initialization import spread_weights

__all__ = ["Bert", "build"]


class Bert(nn.Module):
    """The encoder with its pooler, under plain tensors."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.model = BertModel(config)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Map ids (batch, sequence) to states (batch, sequence, hidden) and (batch, hidden)."""
        result = self.model(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        )
        return result.last_hidden_state, result.pooler_output


def build(variant: Variant = "full", seed: int = 0) -> Example:
    """Build BERT-base over 128 tokens, or two layers of width 32 over 8 when tiny.

    Args:
        variant: ``full`` or ``tiny``.
        seed: The seed of weights and inputs.

    Returns:
        The module with its named inputs.
    """
    config = BertConfig()
    if variant == "tiny":
        config = BertConfig(
            vocab_size=100,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            max_position_embeddings=16,
        )
    module = Bert(config).eval()
    spread_weights(module, seed, gain=1.5)
    shape = (1, 128) if variant == "full" else (2, 8)
    axes = ("batch", "sequence")
    specs = (
        InputSpec("input_ids", shape, axes, "tokens", config.vocab_size),
        InputSpec("attention_mask", shape, axes, "mask"),
        InputSpec("token_type_ids", shape, axes, "tokens", config.type_vocab_size),
    )
    return Example(module, specs, ("last_hidden_state", "pooler_output"), seed)
