"""Architectures for sound and for series in time."""

from __future__ import annotations

from typing import Final

from tests.architectures.record import Architecture
from tests.architectures.tasks import BATCH, Task

_FAMILY: Final = "audio"
_NO_LABELS: Final = "its head has no labels"
_WAVES: Final = {
    "conv_dim": [16, 16],
    "conv_kernel": [10, 3],
    "conv_stride": [5, 4],
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
    "classifier_proj_size": 16,
    "use_weighted_layer_sum": False,
}
"""Convolutions that take a wave apart."""

ARCHITECTURES: Final = (
    *(
        Architecture(name, _FAMILY, Task.SOUND, _WAVES)
        for name in ("wav2vec2", "hubert", "wavlm", "unispeech", "unispeech-sat")
    ),
    Architecture(
        "data2vec-audio",
        _FAMILY,
        Task.SOUND,
        {**_WAVES, "conv_pos_kernel_size": 5, "num_conv_pos_embeddings": 2},
    ),
    Architecture("sew", _FAMILY, Task.SOUND, {**_WAVES, "squeeze_factor": 2}),
    Architecture("sew-d", _FAMILY, Task.SOUND, {**_WAVES, "squeeze_factor": 2}),
    Architecture(
        "wav2vec2-conformer", _FAMILY, Task.SOUND, {**_WAVES, "conv_depthwise_kernel_size": 5}
    ),
    Architecture(
        "wav2vec2-bert",
        _FAMILY,
        Task.SOUND,
        {
            "feature_projection_input_dim": 16,
            "conv_depthwise_kernel_size": 5,
            "classifier_proj_size": 16,
        },
        inputs={"input_values": None, "input_features": (BATCH, 32, 16)},
    ),
    Architecture(
        "audio-spectrogram-transformer",
        _FAMILY,
        Task.SOUND,
        {"max_length": 32},
        inputs={"input_values": (BATCH, 32, 16)},
    ),
    Architecture("whisper", _FAMILY, Task.SPEECH),
    Architecture(
        "speech_to_text",
        _FAMILY,
        Task.SPEECH,
        {"input_feat_per_channel": 16, "conv_channels": 32},
        inputs={"input_features": (BATCH, 64, 16)},
    ),
    Architecture(
        "moonshine",
        _FAMILY,
        Task.SPEECH,
        {"encoder_num_hidden_layers": 2, "decoder_num_hidden_layers": 2},
        inputs={"input_features": None, "input_values": (BATCH, 1600)},
    ),
    Architecture(
        "speecht5",
        _FAMILY,
        Task.SPEECH,
        {**_WAVES, "conv_dim": [16, 16]},
        inputs={"input_features": None, "input_values": (BATCH, 1600)},
    ),
    Architecture(
        "clap_audio_model",
        _FAMILY,
        Task.FEATURES,
        {
            "depths": [1, 1],
            "num_attention_heads": [2, 4],
            "patch_embeds_hidden_size": 16,
            "hidden_size": 32,
            "window_size": 4,
            "spec_size": 64,
            "num_mel_bins": 16,
            "patch_size": 4,
            "num_hidden_layers": 2,
        },
        model="ClapAudioModel",
        inputs={"pixel_values": None, "input_features": (BATCH, 1, 64, 16)},
        trains=_NO_LABELS,
    ),
    Architecture(
        "lasr_encoder",
        _FAMILY,
        Task.FEATURES,
        inputs={"pixel_values": None, "input_features": (BATCH, 64, 16)},
        trains=_NO_LABELS,
    ),
    Architecture(
        "parakeet_encoder",
        _FAMILY,
        Task.FEATURES,
        {"subsampling_conv_channels": 8},
        inputs={"pixel_values": None, "input_features": (BATCH, 64, 16)},
        trains=_NO_LABELS,
    ),
    Architecture(
        "encodec",
        _FAMILY,
        Task.FEATURES,
        {
            "num_filters": 4,
            "upsampling_ratios": [4, 2],
            "codebook_size": 16,
            "codebook_dim": 32,
            "num_lstm_layers": 1,
            "target_bandwidths": [24.0],
            "hidden_size": 32,
        },
        inputs={"pixel_values": None, "input_values": (BATCH, 1, 320)},
        trains=_NO_LABELS,
        limit="`torch.export` does not get past its choice of how much padding to cut off the sound.",
    ),
    Architecture(
        "univnet",
        _FAMILY,
        Task.FEATURES,
        {
            "model_hidden_channels": 8,
            "kernel_predictor_hidden_channels": 8,
            "model_in_channels": 8,
            "num_mel_channels": 16,
        },
        inputs={
            "pixel_values": None,
            "input_features": (BATCH, 8, 16),
            "noise_sequence": (BATCH, 8, 8),
        },
        trains=_NO_LABELS,
    ),
    Architecture(
        "patchtst",
        "time series",
        Task.FEATURES,
        {
            "context_length": 32,
            "num_input_channels": 3,
            "patch_length": 8,
            "patch_stride": 8,
            "num_targets": 3,
        },
        model="PatchTSTForPrediction",
        inputs={"pixel_values": None, "past_values": (BATCH, 32, 3)},
        trains=_NO_LABELS,
    ),
    Architecture(
        "patchtsmixer",
        "time series",
        Task.FEATURES,
        {"context_length": 32, "num_input_channels": 3, "patch_length": 8, "patch_stride": 8},
        model="PatchTSMixerForPrediction",
        inputs={"pixel_values": None, "past_values": (BATCH, 32, 3)},
        trains=_NO_LABELS,
    ),
    Architecture(
        "decision_transformer",
        "time series",
        Task.FEATURES,
        {"state_dim": 5, "act_dim": 3, "max_ep_len": 128},
        model="DecisionTransformerModel",
        inputs={
            "pixel_values": None,
            "states": (BATCH, 6, 5),
            "actions": (BATCH, 6, 3),
            "rewards": (BATCH, 6, 1),
            "returns_to_go": (BATCH, 6, 1),
            "timesteps": (BATCH, 6),
        },
        trains=_NO_LABELS,
    ),
)
"""Records."""
