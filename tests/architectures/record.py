"""One architecture of ``transformers``, and what makes all of them small."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from tests.architectures.tasks import LABELS, Task


@dataclass(frozen=True)
class Architecture:
    """One architecture, and how it is made small."""

    name: str
    """What ``transformers`` calls the type of model."""
    family: str
    task: Task
    """What its head is for: decides the class, inputs and labels."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the configuration, on top of ``SMALL``; None for what is to stay as it is."""
    model: str = ""
    """Class of ``transformers``, where it is not the one for the task."""
    inputs: Mapping[str, tuple[int, ...] | None] = field(default_factory=dict)
    """Shapes, where they are not those of the task; None for what the model does not take."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of ``forward`` that are no tensors."""
    trains: str = ""
    """Why it is not trained, if so: its head takes no labels that are tensors."""
    limit: str = ""
    """Why it does not pass, if so."""
    training_limit: str = ""
    """Why its training does not pass, if so."""


def plain(family: str, task: Task, names: str) -> Iterable[Architecture]:
    """Iterate over architectures that ``SMALL`` makes small.

    Args:
        family: Of all of them.
        task: Of all of them.
        names: With spaces in between.
    """
    return (Architecture(name, family, task) for name in names.split())


SMALL: Final[Mapping[str, Any]] = MappingProxyType(
    {
        # Text, by the names that different families have for the same.
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 48,
        "vocab_size": 99,
        "max_position_embeddings": 64,
        "head_dim": 8,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 64,
        "n_inner": 48,
        "n_ctx": 64,
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "d_ff": 48,
        "d_kv": 8,
        "num_layers": 2,
        "num_decoder_layers": 2,
        "num_heads": 4,
        "dim": 32,
        "n_layers": 2,
        "n_heads": 4,
        "hidden_dim": 48,
        "ffn_dim": 48,
        "embedding_size": 32,
        "emb_dim": 32,
        "word_embed_proj_dim": 32,
        "sliding_window": 8,
        "type_vocab_size": 2,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
        "num_labels": LABELS,
        # Mixtures of experts.
        "num_experts": 4,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 16,
        "n_routed_experts": 4,
        # State spaces.
        "state_size": 8,
        "expand": 2,
        "conv_kernel": 4,
        "time_step_rank": 4,
        # Images and sounds.
        "image_size": 32,
        "patch_size": 8,
        "num_channels": 3,
        "num_mel_bins": 16,
        "max_source_positions": 64,
        "max_target_positions": 64,
        # Nothing that outlives a run.
        "use_cache": False,
    }
)
"""What is set in every configuration that has a setting of that name and kind."""
