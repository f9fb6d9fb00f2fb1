"""Encoders of text."""

from __future__ import annotations

from typing import Final

from tests.architectures.record import Architecture, plain
from tests.architectures.tasks import BATCH, LENGTH, Task

_FAMILY: Final = "encoder"
_OWN_BACKWARD: Final = "a backward of their own, which `torch.export` does not keep"
_BOXES: Final = {"bbox": (BATCH, LENGTH, 4)}

ARCHITECTURES: Final = (
    *plain(
        _FAMILY,
        Task.SEQUENCE,
        "albert bert camembert convbert data2vec-text "
        "distilbert electra ernie esm eurobert flaubert fnet gte jina_embeddings_v3 "
        "layoutlm markuplm megatron-bert modernbert mpnet nomic_bert "
        "nystromformer rembert roberta roberta-prelayernorm roformer squeezebert tapas "
        "ultrabert xlm xlm-roberta xlm-roberta-xl",
    ),
    Architecture(
        "mra", _FAMILY, Task.SEQUENCE, trains="torch has it in float32 only, which is no oracle"
    ),
    Architecture(
        "ibert",
        _FAMILY,
        Task.SEQUENCE,
        trains="what its running ranges become depends on what they are, a branch in each step",
    ),
    Architecture(
        "yoso",
        _FAMILY,
        Task.SEQUENCE,
        trains="its attention has a backward of its own, which `torch.export` does not keep; "
        "compiling it for training is refused",
    ),
    # Without norms, its activations grow until rounding errors do, too.
    Architecture("mobilebert", _FAMILY, Task.SEQUENCE, {"normalization_type": "layer_norm"}),
    Architecture("deberta", _FAMILY, Task.MASKED),
    Architecture("deberta-v2", _FAMILY, Task.MASKED),
    Architecture("big_bird", _FAMILY, Task.SEQUENCE, {"attention_type": "original_full"}),
    Architecture("canine", _FAMILY, Task.SEQUENCE),
    Architecture(
        "funnel",
        _FAMILY,
        Task.SEQUENCE,
        {"num_hidden_layers": None, "block_sizes": [1, 1], "d_head": 8, "d_inner": 48},
    ),
    Architecture("esmc", _FAMILY, Task.SEQUENCE, {"num_key_value_heads": 4}),
    Architecture(
        "lilt",
        _FAMILY,
        Task.SEQUENCE,
        {"hidden_size": 48, "channel_shrink_ratio": 4, "num_attention_heads": 4},
        inputs=_BOXES,
    ),
    Architecture(
        "layoutlmv3",
        _FAMILY,
        Task.SEQUENCE,
        {
            "coordinate_size": 6,
            "shape_size": 4,
            "has_relative_attention_bias": False,
            "visual_embed": False,
        },
        inputs=_BOXES,
    ),
    Architecture(
        "luke",
        _FAMILY,
        Task.SEQUENCE,
        {"entity_vocab_size": 10, "entity_emb_size": 16},
    ),
    Architecture(
        "perceiver",
        _FAMILY,
        Task.SEQUENCE,
        {
            "d_latents": 32,
            "d_model": 32,
            "num_latents": 8,
            "num_blocks": 1,
            "num_self_attends_per_block": 2,
            "num_self_attention_heads": 4,
            "num_cross_attention_heads": 4,
        },
        inputs={"input_ids": None, "inputs": (BATCH, LENGTH)},
    ),
    Architecture(
        "reformer",
        _FAMILY,
        Task.SEQUENCE,
        {
            "attn_layers": ["local", "local"],
            "axial_pos_embds": False,
            "local_attn_chunk_length": 4,
            "attention_head_size": 8,
            "feed_forward_size": 48,
            "is_decoder": False,
        },
        training_limit=f"Its layers have {_OWN_BACKWARD}.",
    ),
    Architecture("xlnet", _FAMILY, Task.SEQUENCE, {"max_position_embeddings": None}),
    Architecture("xmod", _FAMILY, Task.SEQUENCE, {"languages": ["en"], "default_language": "en"}),
    Architecture(
        "longformer",
        _FAMILY,
        Task.SEQUENCE,
        limit="`torch.export` does not get past its count of tokens with global attention.",
    ),
    Architecture(
        "roc_bert", _FAMILY, Task.SEQUENCE, {"pronunciation_vocab_size": 99, "shape_vocab_size": 99}
    ),
    Architecture("splinter", _FAMILY, Task.TEXT_FEATURES, trains="its head has no labels"),
    Architecture(
        "dpr",
        _FAMILY,
        Task.TEXT_FEATURES,
        model="DPRContextEncoder",
        trains="its head has no labels",
    ),
    Architecture("clip_text_model", _FAMILY, Task.TEXT_FEATURES, trains="its head has no labels"),
    Architecture(
        "siglip_text_model",
        _FAMILY,
        Task.TEXT_FEATURES,
        {"projection_size": 32},
        model="SiglipTextModel",
        trains="its head has no labels",
    ),
    Architecture(
        "lxmert",
        _FAMILY,
        Task.TEXT_FEATURES,
        {"l_layers": 1, "x_layers": 1, "r_layers": 1, "visual_feat_dim": 16},
        model="LxmertModel",
        inputs={"visual_feats": (BATCH, 4, 16), "visual_pos": (BATCH, 4, 4)},
        trains="its head has no labels",
    ),
    Architecture(
        "visual_bert",
        _FAMILY,
        Task.TEXT_FEATURES,
        {"visual_embedding_dim": 16},
        inputs={"visual_embeds": (BATCH, 4, 16)},
        trains="its head has no labels",
    ),
)
"""Records."""
