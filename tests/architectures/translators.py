"""Encoders with decoders, of text."""

from __future__ import annotations

from typing import Final

from tests.architectures.record import Architecture, plain
from tests.architectures.tasks import Task

_FAMILY: Final = "encoder-decoder"
_NAN: Final = "torch computes NaN in float64, which is no oracle"

ARCHITECTURES: Final = (
    *plain(
        _FAMILY,
        Task.TRANSLATION,
        "bart blenderbot blenderbot-small longt5 m2m_100 marian mbart mt5 mvp "
        "nllb-moe pegasus plbart switch_transformers t5 umt5",
    ),
    # It has block_sparse change into the same, with other weights, while it runs.
    Architecture("bigbird_pegasus", _FAMILY, Task.TRANSLATION, {"attention_type": "original_full"}),
    Architecture(
        "pegasus_x",
        _FAMILY,
        Task.TRANSLATION,
        training_limit="One parameter is off by up to 1.3 times what is allowed.",
    ),
    Architecture(
        "fsmt",
        _FAMILY,
        Task.TRANSLATION,
        {"src_vocab_size": 99, "tgt_vocab_size": 99},
        trains="torch fails in float64, which is no oracle",
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
        trains=_NAN,
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
        trains=_NAN,
    ),
)
"""Records."""
