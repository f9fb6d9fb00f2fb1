"""Encoders with decoders, of text."""

from __future__ import annotations

from typing import Final

from tests.architectures.record import Architecture, plain
from tests.architectures.tasks import Task

_FAMILY: Final = "encoder-decoder"

ARCHITECTURES: Final = (
    *plain(
        _FAMILY,
        Task.TRANSLATION,
        "bart blenderbot blenderbot-small longt5 m2m_100 marian mbart mt5 mvp "
        "nllb-moe pegasus pegasus_x plbart switch_transformers t5 umt5",
    ),
    # It has block_sparse change into the same, with other weights, while it runs.
    Architecture("bigbird_pegasus", _FAMILY, Task.TRANSLATION, {"attention_type": "original_full"}),
    Architecture(
        "fsmt",
        _FAMILY,
        Task.TRANSLATION,
        {"src_vocab_size": 99, "tgt_vocab_size": 99},
    ),
    Architecture(
        "led",
        _FAMILY,
        Task.TRANSLATION,
        {
            "max_encoder_position_embeddings": 64,
            "max_decoder_position_embeddings": 64,
            "attention_window": 8,
        },
    ),
    Architecture(
        "prophetnet",
        _FAMILY,
        Task.TRANSLATION,
        {
            "num_hidden_layers": None,
            "num_encoder_layers": 2,
            "num_decoder_layers": 2,
            "num_encoder_attention_heads": 4,
            "num_decoder_attention_heads": 4,
        },
    ),
)
"""Records."""
