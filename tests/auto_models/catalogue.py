"""Every class of ``AutoModel``, with the models that stand for it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from tests.architectures.tasks import Shapes
from tests.auto_models.record import Representative

__all__ = ["REPRESENTATIVES"]

_TEXT: Final = {"input_ids": (1, 12), "attention_mask": (1, 12)}
_IMAGE: Final = {"pixel_values": (1, 3, 32, 32)}
_LARGE: Final = {"pixel_values": (1, 3, 64, 64)}
_SOUND: Final = {"input_values": (1, 1600)}
_WAVES: Final = {
    "conv_dim": [16, 16],
    "conv_kernel": [10, 3],
    "conv_stride": [5, 4],
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
    "classifier_proj_size": 16,
    "tdnn_dim": [16, 16, 16],
    "tdnn_kernel": [3, 3, 1],
    "tdnn_dilation": [1, 1, 1],
    "xvector_output_dim": 16,
}
_WORDS: Final = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 99,
    "max_position_embeddings": 64,
}
_SIGHT: Final = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 32,
    "patch_size": 8,
}
_SWIN: Final = {
    "model_type": "swin",
    "image_size": 64,
    "patch_size": 4,
    "embed_dim": 8,
    "depths": [1, 1, 1, 1],
    "num_heads": [1, 2, 2, 4],
    "window_size": 2,
    "out_features": ["stage1", "stage2", "stage3", "stage4"],
}
_RESNET: Final = {
    "model_type": "resnet",
    "embedding_size": 8,
    "hidden_sizes": [8, 8, 16, 16],
    "depths": [1, 1, 1, 1],
    "out_features": ["stage4"],
}
_DETR: Final = {
    "backbone_config": _RESNET,
    "num_queries": 5,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "num_attention_heads": 8,
    "encoder_attention_heads": 8,
    "decoder_attention_heads": 8,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
}
_SAPIENS: Final = {
    "num_key_value_heads_per_layer": [4, 4],
    "num_key_value_attention_heads": 4,
    "num_first_full_attention_layers": 1,
    "num_last_full_attention_layers": 1,
    "out_features": ["stage2"],
    "out_indices": [2],
    "head_config": {
        "upsample_out_channels": [8, 8],
        "upsample_kernel_sizes": [4, 4],
        "conv_out_channels": [8],
        "conv_kernel_sizes": [1],
    },
}
_POINTS: Final = {
    "encoder_hidden_sizes": [8, 8, 16, 16],
    "decoder_hidden_size": 16,
    "descriptor_decoder_dim": 16,
}
_PARAKEET: Final = {
    "encoder_config": {
        **_WORDS,
        "num_key_value_heads": 4,
        "num_mel_bins": 16,
        "subsampling_conv_channels": 8,
    },
    "decoder_hidden_size": 16,
    "vocab_size": 99,
    "blank_token_id": 98,
}
_SEEN: Final = {"input_ids": (1, 20), "attention_mask": (1, 20), **_IMAGE}
# Four words of a question; then two rows of two cells, each of two words: segment, column, row.
_CELLS: Final = [[0] * 7] * 4 + [
    [1, column, row, 0, 0, 0, 0] for row in (1, 2) for column in (1, 2) for _ in range(2)
]
_LLAVA: Final = {
    "text_config": {"model_type": "llama", **_WORDS},
    "vision_config": {"model_type": "clip_vision_model", **_SIGHT},
    "image_token_index": 98,
    "image_token_id": 98,
}


def _of(
    auto: str,
    kind: str,
    inputs: Shapes,
    settings: Mapping[str, Any] | None = None,
    values: Mapping[str, Any] | None = None,
) -> Representative:
    return Representative(auto, kind, inputs, settings or {}, values or {})


_RECORDS: Final = (
    _of("AutoModel", "bert", _TEXT),
    _of("AutoModel", "vit", _IMAGE),
    _of("AutoModelForPreTraining", "bert", _TEXT),
    _of("AutoModelForCausalLM", "gpt2", _TEXT),
    _of("AutoModelForCausalLM", "llama", _TEXT),
    _of("AutoModelForCausalLM", "gemma3_text", _TEXT),
    _of("AutoModelForCausalLM", "mamba", _TEXT),
    _of("AutoModelForMaskedLM", "roberta", _TEXT),
    _of("AutoModelForSeq2SeqLM", "t5", {**_TEXT, "decoder_input_ids": (1, 8)}),
    _of("AutoModelForSeq2SeqLM", "bart", {**_TEXT, "decoder_input_ids": (1, 8)}),
    _of("AutoModelForSequenceClassification", "distilbert", _TEXT),
    _of("AutoModelForSequenceClassification", "llama", _TEXT),
    _of("AutoModelForTokenClassification", "electra", _TEXT),
    _of("AutoModelForQuestionAnswering", "albert", _TEXT, {"num_labels": 2}),
    _of(
        "AutoModelForTableQuestionAnswering",
        "tapas",
        _TEXT,
        values={"token_type_ids": [_CELLS]},
    ),
    _of(
        "AutoModelForDocumentQuestionAnswering",
        "layoutlm",
        {**_TEXT, "bbox": (1, 12, 4)},
        {"num_labels": 2},
    ),
    _of(
        "AutoModelForVisualQuestionAnswering",
        "blip",
        {**_TEXT, **_IMAGE, "decoder_input_ids": (1, 8)},
        {"text_config": {**_WORDS, "encoder_hidden_size": 32}},
    ),
    _of("AutoModelForVisualQuestionAnswering", "vilt", {**_TEXT, **_IMAGE}),
    _of(
        "AutoModelForMultipleChoice",
        "bert",
        {"input_ids": (1, 3, 12), "attention_mask": (1, 3, 12)},
    ),
    _of("AutoModelForNextSentencePrediction", "bert", _TEXT),
    _of("AutoModelForTextEncoding", "t5", _TEXT),
    _of(
        "AutoModelForDecision",
        "jev",
        {"input_ids": (1, 12)},
        {"text_config": {"model_type": "qwen3", **_WORDS, "head_dim": 8}},
        values={"marks": [[4, 8, 11]], "num_options": [[2] * 3], "question_type_ids": [[0, 1, 2]]},
    ),
    _of("AutoModelForImageClassification", "resnet", _LARGE),
    _of("AutoModelForImageClassification", "vit", _IMAGE),
    _of("AutoModelForZeroShotImageClassification", "clip", {**_TEXT, **_IMAGE}),
    _of("AutoModelForMaskedImageModeling", "vit", _IMAGE, {"encoder_stride": 8}),
    _of("AutoModelForObjectDetection", "detr", _LARGE, _DETR),
    _of("AutoModelForObjectDetection", "yolos", _IMAGE),
    _of(
        "AutoModelForZeroShotObjectDetection",
        "owlvit",
        {**_TEXT, **_IMAGE},
        {"text_config": _WORDS, "vision_config": _SIGHT, "projection_dim": 32},
    ),
    _of(
        "AutoModelForImageSegmentation",
        "detr",
        _LARGE,
        {
            **_DETR,
            "backbone_config": {
                **_RESNET,
                "out_features": ["stage1", "stage2", "stage3", "stage4"],
            },
        },
    ),
    _of("AutoModelForSemanticSegmentation", "segformer", _LARGE),
    _of(
        "AutoModelForInstanceSegmentation",
        "maskformer",
        _LARGE,
        {
            "backbone_config": _SWIN,
            "decoder_config": {"model_type": "detr", **_DETR},
            "fpn_feature_size": 32,
            "mask_feature_size": 32,
            "num_attention_heads": None,
            "num_hidden_layers": None,
        },
    ),
    _of(
        "AutoModelForUniversalSegmentation",
        "mask2former",
        _LARGE,
        {
            "backbone_config": _SWIN,
            "feature_size": 32,
            "mask_feature_size": 32,
            "hidden_dim": 32,
            "encoder_feedforward_dim": 32,
            "dim_feedforward": 32,
            "encoder_layers": 1,
            "decoder_layers": 2,
            "num_attention_heads": 2,
            "num_queries": 5,
        },
    ),
    _of(
        "AutoModelForUniversalSegmentation",
        "eomt",
        _IMAGE,
        {"num_hidden_layers": 3, "num_blocks": 1, "num_queries": 5, "num_upscale_blocks": 1},
    ),
    _of(
        "AutoModelForMaskGeneration",
        "sam",
        {"pixel_values": (1, 3, 32, 32), "input_points": (1, 1, 1, 2)},
        {
            "vision_config": {
                **_SIGHT,
                "output_channels": 16,
                "window_size": 2,
                "global_attn_indexes": [1],
                "mlp_dim": 48,
                "num_pos_feats": 8,
            },
            "prompt_encoder_config": {
                "hidden_size": 16,
                "image_size": 32,
                "patch_size": 8,
                "image_embedding_size": 4,
                "mask_input_channels": 4,
            },
            "mask_decoder_config": {
                "hidden_size": 16,
                "mlp_dim": 32,
                "num_attention_heads": 2,
                "iou_head_hidden_dim": 16,
            },
        },
    ),
    _of("AutoModelForDepthEstimation", "dpt", _IMAGE),
    _of("AutoModelForNormalEstimation", "sapiens2", _IMAGE, _SAPIENS),
    _of("AutoModelForPointmapEstimation", "sapiens2", _IMAGE, _SAPIENS),
    _of(
        "AutoModelForPoseEstimation",
        "vitpose",
        _IMAGE,
        {
            "backbone_config": {
                "model_type": "vitpose_backbone",
                "hidden_size": 32,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "image_size": [32, 32],
                "patch_size": [8, 8],
                "out_indices": [2],
            }
        },
    ),
    _of(
        "AutoModelForImageMatting",
        "vitmatte",
        {"pixel_values": (1, 4, 32, 32)},
        {
            "backbone_config": {
                "model_type": "vitdet",
                "hidden_size": 32,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "image_size": 32,
                "patch_size": 16,
                "num_channels": 4,
                "out_features": ["stage2"],
            },
            "hidden_size": 32,
            "convstream_hidden_sizes": [8, 8, 8],
            "fusion_hidden_sizes": [8, 8, 8, 8],
        },
    ),
    _of(
        "AutoModelForImageToImage",
        "swin2sr",
        {"pixel_values": (1, 3, 16, 16)},
        {
            "image_size": 16,
            "patch_size": 1,
            "embed_dim": 12,
            "depths": [1, 1],
            "num_heads": [2, 2],
            "window_size": 4,
            "num_layers": None,
        },
    ),
    _of("AutoModelForKeypointDetection", "superpoint", {"pixel_values": (1, 3, 32, 32)}, _POINTS),
    _of(
        "AutoModelForKeypointMatching",
        "superglue",
        {"pixel_values": (1, 2, 3, 32, 32)},
        {
            "keypoint_detector_config": {"model_type": "superpoint", **_POINTS},
            "hidden_size": 16,
            "keypoint_encoder_sizes": [8, 16],
            "gnn_layers_types": ["self", "cross"],
            "sinkhorn_iterations": 3,
        },
    ),
    _of("AutoModelForTextRecognition", "pp_ocrv5_mobile_rec", {"pixel_values": (1, 3, 96, 320)}),
    _of("AutoModelForTableRecognition", "slanet", _LARGE, {"max_text_length": 3}),
    _of(
        "AutoModelForVideoClassification",
        "videomae",
        {"pixel_values": (1, 8, 3, 32, 32)},
    ),
    _of("AutoBackbone", "convnext", _IMAGE, {"out_features": ["stage1", "stage2"]}),
    _of("AutoModelForImageTextToText", "git", {**_TEXT, **_IMAGE}),
    _of("AutoModelForImageTextToText", "llava", _SEEN, _LLAVA),
    _of("AutoModelForMultimodalLM", "llava", _SEEN, _LLAVA),
    _of("AutoModelForAudioClassification", "wav2vec2", _SOUND, _WAVES),
    _of("AutoModelForAudioFrameClassification", "wav2vec2", _SOUND, _WAVES),
    _of("AutoModelForAudioXVector", "wav2vec2", _SOUND, _WAVES),
    _of("AutoModelForCTC", "hubert", _SOUND, _WAVES),
    _of(
        "AutoModelForRNNT",
        "parakeet_rnnt",
        {"input_features": (1, 64, 16), "decoder_input_ids": (1, 4)},
        _PARAKEET,
    ),
    _of(
        "AutoModelForTDT",
        "parakeet_tdt",
        {"input_features": (1, 64, 16), "decoder_input_ids": (1, 4)},
        _PARAKEET,
    ),
    _of(
        "AutoModelForSpeechSeq2Seq",
        "whisper",
        {"input_features": (1, 16, 128), "decoder_input_ids": (1, 8)},
    ),
    _of(
        "AutoModelForTextToSpectrogram",
        "speecht5",
        {"input_ids": (1, 12), "decoder_input_values": (1, 8, 16), "speaker_embeddings": (1, 16)},
        {
            **_WAVES,
            "num_mel_bins": 16,
            "speaker_embedding_dim": 16,
            "speech_decoder_prenet_units": 16,
            "speech_decoder_postnet_units": 16,
        },
    ),
    _of(
        "AutoModelForTextToSpectrogram",
        "fastspeech2_conformer",
        {"input_ids": (1, 12)},
        {
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_num_attention_heads": 2,
            "decoder_num_attention_heads": 2,
            "encoder_linear_units": 48,
            "decoder_linear_units": 48,
            "speech_decoder_postnet_units": 16,
            "duration_predictor_channels": 16,
            "energy_predictor_channels": 16,
            "pitch_predictor_channels": 16,
        },
    ),
    _of(
        "AutoModelForTextToWaveform",
        "vits",
        _TEXT,
        {
            "flow_size": 16,
            "spectrogram_bins": 17,
            "upsample_initial_channel": 16,
            "upsample_rates": [4, 2],
            "upsample_kernel_sizes": [8, 4],
            "resblock_kernel_sizes": [3],
            "resblock_dilation_sizes": [[1, 3]],
            "duration_predictor_filter_channels": 16,
            "prior_encoder_num_flows": 2,
            "prior_encoder_num_wavenet_layers": 2,
            "posterior_encoder_num_wavenet_layers": 2,
        },
    ),
    _of(
        "AutoModelForAudioTokenization",
        "dac",
        {"input_values": (1, 1, 320)},
        {
            "encoder_hidden_size": 8,
            "decoder_hidden_size": 32,
            "downsampling_ratios": [2, 4],
            "upsampling_ratios": [4, 2],
            "n_codebooks": 2,
            "codebook_size": 16,
            "hidden_size": 32,
            "hop_length": 8,
        },
    ),
    _of(
        "AutoModelForTimeSeriesPrediction",
        "timesfm",
        {"past_values": (2, 64)},
        {
            "patch_length": 8,
            "context_length": 64,
            "horizon_length": 16,
            "num_hidden_layers": 2,
        },
    ),
)

REPRESENTATIVES: Final[Mapping[str, Representative]] = MappingProxyType(
    {one.name: one for one in _RECORDS}
)
"""By class and type."""
