"""Models of Hugging Face configurations, held against what transformers itself makes of them."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from samba_onnx.compiling.torch.hugging_face import from_configuration
from samba_onnx.compiling.torch.porting import analyze_torch
from samba_onnx.errors import ModelError

pytestmark = pytest.mark.slow

SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}
STACKED = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
}
TOKENS = {"input_ids": [1, 128]}
IMAGE = {"pixel_values": [1, 3, 32, 32]}
SPEECH = {"input_features": [1, 80, 100], "decoder_input_ids": [1, 128]}
ROWS: list[tuple[str, dict[str, Any], str, dict[str, list[int]]]] = [
    ("bert", {**SMALL, "vocab_size": 99}, "BertForMaskedLM", TOKENS),
    ("llama", {**SMALL, "vocab_size": 99, "max_position_embeddings": 40}, "LlamaForCausalLM", {"input_ids": [1, 40]}),
    ("roberta", {**SMALL, "max_position_embeddings": 128}, "RobertaModel", {"input_ids": [1, 64]}),
    ("vit", {**SMALL, "image_size": 32, "patch_size": 8}, "ViTForImageClassification", IMAGE),
    ("bart", {**STACKED, "vocab_size": 99}, "BartModel", TOKENS),
    ("t5", {"d_model": 16, "d_ff": 16, "num_layers": 1, "num_heads": 2, "d_kv": 8}, "T5ForConditionalGeneration", {**TOKENS, "decoder_input_ids": [1, 128]}),
    ("whisper", {**STACKED, "max_source_positions": 50}, "WhisperForConditionalGeneration", SPEECH),
    ("wav2vec2", {**SMALL, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2}, "Wav2Vec2ForCTC", {"input_values": [1, 16_000]}),
    ("clip", {"text_config": SMALL, "vision_config": {**SMALL, "image_size": 32, "patch_size": 8}}, "CLIPModel", {"input_ids": [1, 77], **IMAGE}),
]  # fmt: skip


def _write(folder: Path, content: dict[str, Any]) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(content))
    return path


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("nothing may be read from a network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.parametrize(("kind", "settings", "name", "shapes"), ROWS, ids=[row[0] for row in ROWS])
def test_analysis_without_weights_is_the_same(
    tmp_path: Path, kind: str, settings: dict[str, Any], name: str, shapes: dict[str, list[int]]
) -> None:
    content = {"model_type": kind, "architectures": [name], "use_cache": True, **settings}
    path = str(_write(tmp_path, content))
    whole, empty = from_configuration(path), from_configuration(path, weights=False)
    # What draws its own weights when it is built, or has hardly more positions than tokens, needs values.
    values = kind in ("wav2vec2", "llama", "roberta", "clip")
    assert values or all(parameter.is_meta for parameter in empty.module.parameters())
    assert analyze_torch(empty) == analyze_torch(whole)


@pytest.mark.parametrize(("kind", "settings", "name", "shapes"), ROWS, ids=[row[0] for row in ROWS])
def test_class_weights_and_inputs(
    tmp_path: Path, kind: str, settings: dict[str, Any], name: str, shapes: dict[str, list[int]]
) -> None:
    content = {"model_type": kind, "architectures": [name], "use_cache": True, **settings}
    path = _write(tmp_path, content)
    model = from_configuration(str(path))
    own = getattr(transformers, name)(getattr(transformers, name).config_class.from_dict(content))
    assert type(model.module) is type(own)
    assert not model.module.training
    ours, theirs = model.module.state_dict(), own.state_dict()
    assert {key: value.shape for key, value in ours.items()} == {
        key: value.shape for key, value in theirs.items()
    }
    assert {key: list(value.shape) for key, value in model.keywords.items()} == shapes
    with torch.no_grad():
        outputs = model.module(**model.keywords)
    assert "past_key_values" not in outputs
    again = from_configuration(str(tmp_path))
    for key, value in again.keywords.items():
        torch.testing.assert_close(value, model.keywords[key], rtol=0, atol=0)
    for key, value in again.module.state_dict().items():
        torch.testing.assert_close(value, ours[key], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({}, "has no model_type"),
        ({"model_type": "my_own", "auto_map": {"AutoModel": "x.Y"}}, "the model_type 'my_own'"),
        ({"model_type": "bert", "hidden_size": 10, "num_attention_heads": 3}, "cannot build it"),
        ({"model_type": "decision_transformer"}, "takes no example inputs of ours"),
    ],
)
def test_what_cannot_be_built_is_refused_in_a_line(
    tmp_path: Path, content: dict[str, Any], words: str
) -> None:
    with pytest.raises(ModelError, match=words) as caught:
        from_configuration(str(_write(tmp_path, content)))
    assert "\n" not in str(caught.value)
