"""Architectures for images and videos, and for images with text."""

from __future__ import annotations

from typing import Final

from tests.architectures.record import Architecture, plain
from tests.architectures.tasks import BATCH, LENGTH, Task

_FAMILY: Final = "vision"
_BOTH: Final = "images and text"
_NO_LABELS: Final = "its head has no labels"
_LARGE: Final = {"pixel_values": (BATCH, 3, 64, 64)}
_TEXT: Final = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 99,
    "max_position_embeddings": 64,
    "projection_dim": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_VISION: Final = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 32,
    "patch_size": 8,
    "projection_dim": 32,
}
_PAIR: Final = {"text_config": _TEXT, "vision_config": _VISION, "projection_dim": 32}
_PAIR_INPUTS: Final = {
    "input_ids": (BATCH, LENGTH),
    "attention_mask": (BATCH, LENGTH),
    "pixel_values": (BATCH, 3, 32, 32),
}

ARCHITECTURES: Final = (
    *plain(
        _FAMILY,
        Task.IMAGE,
        "beit data2vec-vision dinov2 dinov2_with_registers ijepa vit vit_msn",
    ),
    Architecture(
        "resnet",
        _FAMILY,
        Task.IMAGE,
        {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [2, 1]},
    ),
    Architecture(
        "regnet",
        _FAMILY,
        Task.IMAGE,
        {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [2, 1], "groups_width": 4},
    ),
    Architecture(
        "bit",
        _FAMILY,
        Task.IMAGE,
        {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [2, 1], "num_groups": 4},
    ),
    Architecture(
        "convnext",
        _FAMILY,
        Task.IMAGE,
        {"hidden_sizes": [8, 16], "depths": [2, 1], "num_stages": 2, "patch_size": 4},
    ),
    Architecture(
        "convnextv2",
        _FAMILY,
        Task.IMAGE,
        {"hidden_sizes": [8, 16], "depths": [2, 1], "num_stages": 2, "patch_size": 4},
    ),
    Architecture(
        "dinov3_convnext",
        _FAMILY,
        Task.FEATURES,
        {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]},
        trains=_NO_LABELS,
    ),
    # Of smaller images, batch norms see two numbers, which turns rounding errors into signs.
    Architecture("mobilenet_v1", _FAMILY, Task.IMAGE, {"depth_multiplier": 0.25}, inputs=_LARGE),
    # Of its 829,440 activations, one is so close to the kink of a ReLU6 that rounding decides about
    # a gradient.
    Architecture(
        "mobilenet_v2",
        _FAMILY,
        Task.IMAGE,
        {"depth_multiplier": 0.25, "output_stride": 8, "hidden_act": "silu"},
        inputs=_LARGE,
    ),
    Architecture(
        "mobilevit",
        _FAMILY,
        Task.IMAGE,
        {
            "hidden_sizes": [16, 24, 32],
            "neck_hidden_sizes": [4, 8, 8, 16, 16, 24, 32],
            "patch_size": 2,
        },
        inputs=_LARGE,
    ),
    Architecture(
        "mobilevitv2",
        _FAMILY,
        Task.IMAGE,
        {
            "width_multiplier": 0.25,
            "patch_size": 2,
            "base_attn_unit_dims": [32, 48, 64],
            "n_attn_blocks": [1, 1, 1],
        },
        inputs=_LARGE,
    ),
    Architecture(
        "efficientnet",
        _FAMILY,
        Task.IMAGE,
        {"width_coefficient": 0.25, "depth_coefficient": 0.25, "hidden_dim": 320},
        inputs=_LARGE,
    ),
    Architecture(
        "pp_lcnet", _FAMILY, Task.IMAGE, {"scale": 0.25}, inputs=_LARGE, trains=_NO_LABELS
    ),
    Architecture(
        "hgnet_v2",
        _FAMILY,
        Task.IMAGE,
        {
            "embedding_size": 8,
            "stem_channels": [3, 8, 8],
            "hidden_sizes": [16, 32],
            "depths": [1, 1],
            "stage_in_channels": [8, 16],
            "stage_mid_channels": [8, 8],
            "stage_out_channels": [16, 32],
            "stage_num_blocks": [1, 1],
            "stage_downsample": [False, True],
            "stage_light_block": [False, True],
            "stage_kernel_size": [3, 5],
            "stage_numb_of_layers": [2, 2],
        },
    ),
    # A batch norm before its head sees one number of each image.
    Architecture(
        "levit",
        _FAMILY,
        Task.IMAGE,
        {
            "hidden_sizes": [16, 24, 32],
            "num_attention_heads": [2, 2, 2],
            "depths": [1, 1, 1],
            "key_dim": [8, 8, 8],
            "patch_size": 16,
            "image_size": 64,
        },
        model="LevitForImageClassification",
        inputs={"pixel_values": (8, 3, 64, 64)},
    ),
    Architecture(
        "poolformer",
        _FAMILY,
        Task.IMAGE,
        {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "patch_size": 7},
    ),
    Architecture(
        "swiftformer", _FAMILY, Task.IMAGE, {"embed_dims": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}
    ),
    Architecture(
        "textnet",
        _FAMILY,
        Task.IMAGE,
        {"hidden_sizes": [8, 8, 16, 16, 32], "stem_out_channels": 8},
        inputs=_LARGE,
    ),
    Architecture(
        "focalnet",
        _FAMILY,
        Task.IMAGE,
        {
            "embed_dim": 16,
            "depths": [1, 1],
            "hidden_sizes": [16, 32],
            "focal_levels": [2, 2],
            "focal_windows": [3, 3],
            "patch_size": 4,
        },
    ),
    Architecture(
        "swin",
        _FAMILY,
        Task.IMAGE,
        {"embed_dim": 16, "depths": [2, 1], "num_heads": [2, 4], "window_size": 4, "patch_size": 2},
    ),
    Architecture(
        "swinv2",
        _FAMILY,
        Task.IMAGE,
        {"embed_dim": 16, "depths": [2, 1], "num_heads": [2, 4], "window_size": 4, "patch_size": 2},
    ),
    Architecture(
        "donut-swin",
        _FAMILY,
        Task.IMAGE,
        {"embed_dim": 16, "depths": [2, 1], "num_heads": [2, 4], "window_size": 4, "patch_size": 2},
    ),
    Architecture(
        "maskformer-swin",
        _FAMILY,
        Task.FEATURES,
        {"embed_dim": 16, "depths": [2, 1], "num_heads": [2, 4], "window_size": 4, "patch_size": 2},
        trains=_NO_LABELS,
    ),
    Architecture(
        "hiera",
        _FAMILY,
        Task.IMAGE,
        {
            "embed_dim": 16,
            "depths": [1, 1, 1, 1],
            "image_size": [64, 64],
            "num_heads": [1, 2, 2, 4],
            "masked_unit_size": [8, 8],
        },
        inputs=_LARGE,
    ),
    Architecture(
        "pvt",
        _FAMILY,
        Task.IMAGE,
        {
            "hidden_sizes": [8, 16, 24, 32],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 2, 4],
            "mlp_ratios": [2, 2, 2, 2],
            "sequence_reduction_ratios": [4, 2, 1, 1],
        },
    ),
    Architecture(
        "pvt_v2",
        _FAMILY,
        Task.IMAGE,
        {
            "hidden_sizes": [8, 16, 24, 32],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 2, 4],
            "mlp_ratios": [2, 2, 2, 2],
            "sr_ratios": [4, 2, 1, 1],
        },
    ),
    Architecture(
        "segformer",
        _FAMILY,
        Task.SEGMENTATION,
        {
            "hidden_sizes": [8, 16, 24, 32],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 2, 4],
            "sr_ratios": [4, 2, 1, 1],
            "decoder_hidden_size": 16,
        },
        inputs=_LARGE,
    ),
    Architecture(
        "cvt",
        _FAMILY,
        Task.IMAGE,
        {"embed_dim": [8, 16, 32], "depth": [1, 2, 3], "num_heads": [1, 2, 4]},
        inputs=_LARGE,
    ),
    Architecture(
        "glpn",
        _FAMILY,
        Task.DEPTH,
        {
            "hidden_sizes": [8, 16, 24, 32],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 2, 4],
            "sr_ratios": [4, 2, 1, 1],
            "decoder_hidden_size": 16,
        },
        inputs=_LARGE,
        training_limit="Its loss picks the pixels with a label, and their number is in a tensor.",
    ),
    Architecture(
        "dpt",
        _FAMILY,
        Task.DEPTH,
        {
            "num_hidden_layers": 4,
            "backbone_out_indices": [0, 1, 2, 3],
            "neck_hidden_sizes": [8, 16, 16, 16],
            "fusion_hidden_size": 16,
        },
        trains="its head for depth has no training",
    ),
    Architecture("deit", _FAMILY, Task.IMAGE, model="DeiTForImageClassification"),
    Architecture(
        "vit_mae",
        _FAMILY,
        Task.FEATURES,
        {"mask_ratio": 0.0},
        model="ViTMAEModel",
        inputs={"noise": (BATCH, 16)},
        trains=_NO_LABELS,
    ),
    Architecture(
        "yolos",
        _FAMILY,
        Task.DETECTION,
        {"image_size": [32, 32], "num_detection_tokens": 5},
        trains="its labels are lists of boxes",
    ),
    Architecture("dinov3_vit", _FAMILY, Task.FEATURES, trains=_NO_LABELS),
    Architecture("vitdet", _FAMILY, Task.FEATURES, trains=_NO_LABELS),
    Architecture("pixio", _FAMILY, Task.FEATURES, trains=_NO_LABELS),
    Architecture("mlcd", _FAMILY, Task.FEATURES, trains=_NO_LABELS),
    Architecture("internvl_vision", _FAMILY, Task.FEATURES, trains=_NO_LABELS),
    Architecture("pixtral", _FAMILY, Task.FEATURES, trains=_NO_LABELS),
    Architecture("clip_vision_model", _FAMILY, Task.FEATURES, trains=_NO_LABELS),
    Architecture("siglip_vision_model", _FAMILY, Task.FEATURES, trains=_NO_LABELS),
    Architecture("aimv2_vision_model", _FAMILY, Task.FEATURES, trains=_NO_LABELS),
    Architecture(
        "sam_vision_model",
        _FAMILY,
        Task.FEATURES,
        {"global_attn_indexes": [1], "output_channels": 16, "window_size": 2, "num_pos_feats": 8},
        trains=_NO_LABELS,
    ),
    Architecture("timesformer", "video", Task.VIDEO),
    Architecture("videomae", "video", Task.VIDEO, {"num_frames": 8}),
    Architecture("vivit", "video", Task.VIDEO, {"num_frames": 8, "tubelet_size": [2, 8, 8]}),
    Architecture("clip", _BOTH, Task.FEATURES, _PAIR, inputs=_PAIR_INPUTS, trains=_NO_LABELS),
    Architecture("siglip", _BOTH, Task.FEATURES, _PAIR, inputs=_PAIR_INPUTS, trains=_NO_LABELS),
    Architecture(
        "chinese_clip", _BOTH, Task.FEATURES, _PAIR, inputs=_PAIR_INPUTS, trains=_NO_LABELS
    ),
    Architecture(
        "groupvit_vision_model",
        _FAMILY,
        Task.FEATURES,
        {"depths": [1, 1, 1], "num_group_tokens": [8, 4, 0], "num_output_groups": [8, 4, 4]},
        model="GroupViTVisionModel",
        trains=_NO_LABELS,
    ),
    Architecture(
        "vilt",
        _BOTH,
        Task.FEATURES,
        inputs=_PAIR_INPUTS,
        trains=_NO_LABELS,
        limit="`torch.export` does not get past its choice of patches that are not padding.",
    ),
    Architecture(
        "git",
        _BOTH,
        Task.CAUSAL,
        {"vision_config": _VISION},
        inputs={"pixel_values": (BATCH, 3, 32, 32)},
    ),
    Architecture(
        "blip",
        _BOTH,
        Task.FEATURES,
        _PAIR,
        model="BlipModel",
        inputs=_PAIR_INPUTS,
        trains=_NO_LABELS,
    ),
)
"""Records."""
