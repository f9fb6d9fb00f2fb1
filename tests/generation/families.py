"""Every family of causal language models of ``transformers``, made small: by its mapping, so that a new one is here, too."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from transformers import PretrainedConfig, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from models.initialization import spread_weights
from tests.architectures.building import drop_nothing, fits
from tests.architectures.catalogue import ARCHITECTURES
from tests.architectures.record import SMALL

__all__ = ["FAMILIES", "WINDOW", "build"]

FAMILIES = tuple(sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
"""Types of models by transformers' own list."""
WINDOW = 8
"""Tokens of a sliding window, of a chunk and of a local attention, where there is one."""
_WINDOWS = {
    "sliding_window": WINDOW,
    "attention_chunk_size": WINDOW,
    "window_size": WINDOW,
    "attention_window_size": WINDOW,
}
_KINDS = ("layer_types", "block_types", "layers_block_type")
"""Settings that list what kind each layer is of."""
_SETTINGS = {
    **SMALL,
    **_WINDOWS,
    "use_cache": True,
    "is_decoder": True,
    "use_sliding_window": True,
    "attn_layer_period": 2,
    "attn_layer_offset": 1,
    "index_n_heads": 4,
    "index_head_dim": 16,
    "index_topk": 4,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "prompt_length": 4,
    "indexer_n_heads": 4,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 16,
    "indexer_budget": 4,
    "indexer_compress_ratio": 2,
    "num_kv_shared_layers": 0,
}
_FEWEST = ("num_experts_per_tok",)
"""Settings that are no larger than they usually are: some families have a router for one expert only."""


def build(family: str, seed: int = 0) -> PreTrainedModel:
    """Return a model of a family with random weights that are the same every time.

    Args:
        family: Its type.
        seed: Of the weights.
    """
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    kind: Any = getattr(transformers, _class(family))
    config: Any = _configuration(family)
    if kind.config_class is not None and not isinstance(config, kind.config_class):
        config = config.get_text_config(decoder=True)  # the mapping has whole models, too
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = kind._from_config(config)
    spread_weights(model, seed)
    _separate(model, seed)
    # A checkpoint's settings for sampling, penalties and ends are no part of a family.
    model.generation_config = transformers.GenerationConfig()
    return model.eval()


def _class(family: str) -> str:
    name: Any = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[family]
    return name if isinstance(name, str) else name[0]


def _configuration(family: str) -> PretrainedConfig:
    kind: Any = CONFIG_MAPPING[family]
    settings = _small(kind)
    if family in ARCHITECTURES:
        own = ARCHITECTURES[family].settings
        settings = {**settings, **own, "use_cache": True, "is_decoder": True}
    config: PretrainedConfig = kind(**{n: v for n, v in settings.items() if v is not None})
    drop_nothing(config)
    return config


def _small(kind: Any) -> dict[str, Any]:
    """Return the settings that make a configuration small, with those of its parts."""
    usual = kind()
    settings: dict[str, Any] = {
        name: value
        for name, value in _SETTINGS.items()
        if _has(usual, name) and fits(vars(usual).get(name), value)
    }
    for name in _FEWEST:
        if name in settings and isinstance(most := vars(usual).get(name), int):
            settings[name] = min(settings[name], most)
    if "kv_lora_rank" in settings and "num_key_value_heads" in settings:
        # Keys and values come out of one latent vector, for every head its own.
        settings["num_key_value_heads"] = settings["num_attention_heads"]
    for name in _KINDS:
        listed = vars(usual).get(name)
        if isinstance(listed, list | tuple) and len(kinds := list(dict.fromkeys(listed))) > 1:
            # One layer of each kind, as a hybrid with one kind alone is none.
            settings |= {name: kinds, "num_hidden_layers": len(kinds)}
    for name, part in vars(usual).items():
        if isinstance(part, PretrainedConfig):
            settings[name] = {"model_type": part.model_type, **_small(type(part))}
    return settings


def _has(usual: Any, name: str) -> bool:
    """Return whether a configuration has a setting; some refuse to tell what layers have each their own."""
    computed = getattr(type(usual), name, None)
    if isinstance(computed, property) and computed.fset is None:
        return False
    try:
        return hasattr(usual, name)
    except Exception:  # of transformers' own for such settings, of no public class
        return True


def _separate(model: PreTrainedModel, seed: int) -> None:
    """Let the most probable token be so by far, and another one than the last.

    A head that is the table of embeddings answers every token with itself: it gets weights of its own.
    """
    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    weight = getattr(head, "weight", None)
    if weight is None:
        return
    draws = torch.Generator().manual_seed(seed + 1)
    fresh = torch.randn(weight.shape, generator=draws)
    head.weight = torch.nn.Parameter(fresh.to(weight.dtype))
