"""Whisper (Radford et al., 2022): encoder and decoder of the base size, as two models."""

from torch import Tensor, nn
from transformers import WhisperConfig
from transformers.models.whisper.modeling_whisper import WhisperDecoder, WhisperEncoder

from models.example import Example, InputSpec, Variant
from models.initialization import scale_output, spread_weights

__all__ = ["Decoder", "Encoder", "build_decoder", "build_encoder"]


class Encoder(nn.Module):
    """The audio encoder under plain tensors."""

    def __init__(self, config: WhisperConfig) -> None:
        super().__init__()
        self.model = WhisperEncoder(config)

    def forward(self, input_features: Tensor) -> Tensor:
        """Map mel features (batch, mels, frames) to states (batch, frames / 2, width)."""
        states: Tensor = self.model(input_features).last_hidden_state
        return states


class Decoder(nn.Module):
    """The text decoder with its head, without key-value cache, under plain tensors."""

    def __init__(self, config: WhisperConfig) -> None:
        super().__init__()
        self.model = WhisperDecoder(config)
        self.head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.head.weight = self.model.embed_tokens.weight

    def forward(self, input_ids: Tensor, encoder_hidden_states: Tensor) -> Tensor:
        """Map ids (batch, sequence) and the encoder's states to logits."""
        result = self.model(
            input_ids=input_ids, encoder_hidden_states=encoder_hidden_states, use_cache=False
        )
        logits: Tensor = self.head(result.last_hidden_state)
        return logits


def _config(variant: Variant) -> WhisperConfig:
    if variant == "tiny":
        size, layers, heads, feed_forward, positions = 32, 2, 4, 64, (20, 16)
        vocabulary, mels = 100, 8
    else:
        size, layers, heads, feed_forward, positions = 512, 6, 8, 2048, (1500, 448)
        vocabulary, mels = 51865, 80
    return WhisperConfig(
        vocab_size=vocabulary,
        num_mel_bins=mels,
        d_model=size,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=feed_forward,
        decoder_ffn_dim=feed_forward,
        max_source_positions=positions[0],
        max_target_positions=positions[1],
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
        decoder_start_token_id=1,
    )


def build_encoder(variant: Variant = "full", seed: int = 0) -> Example:
    """Build the encoder for 3000 frames of 80 mel bins, or two narrow layers when tiny.

    Args:
        variant: ``full`` or ``tiny``.
        seed: The seed of weights and inputs.

    Returns:
        The module with its named inputs.
    """
    config = _config(variant)
    module = Encoder(config).eval()
    spread_weights(module, seed, gain=1.5)
    shape = (1, config.num_mel_bins, 2 * config.max_source_positions)
    spec = InputSpec("input_features", shape, ("batch", None, None))
    return Example(module, (spec,), ("last_hidden_state",), seed)


def build_decoder(variant: Variant = "full", seed: int = 0) -> Example:
    """Build the decoder over 16 tokens and 1500 encoder states, or two narrow layers when tiny.

    Args:
        variant: ``full`` or ``tiny``.
        seed: The seed of weights and inputs.

    Returns:
        The module with its named inputs.
    """
    config = _config(variant)
    module = Decoder(config).eval()
    spread_weights(module, seed, gain=1.5)
    batch, sequence = (1, 16) if variant == "full" else (2, 8)
    states = (batch, config.max_source_positions, config.d_model)
    specs = (
        InputSpec(
            "input_ids", (batch, sequence), ("batch", "sequence"), "tokens", config.vocab_size
        ),
        InputSpec("encoder_hidden_states", states, ("batch", None, None)),
    )
    example = Example(module, specs, ("logits",), seed)
    # The head shares its matrix with the embedding, so the norm before it takes the scale.
    scale_output(module, example.inputs, module.model.layer_norm)
    return example
