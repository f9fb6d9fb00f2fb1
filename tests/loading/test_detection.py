"""A wrong file is named for what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from samba_onnx.errors import ModelError
from samba_onnx.loading import load_model
from tests.safety.hostile_files import FILES
from tests.safety.small_models import relu, weight, with_weight

WORDS = {
    "empty": "the file is empty",
    "text": "a text file",
    "html": "a web page",
    "json": "a model in text form",
    "textproto": "a model in text form",
    "onnxtxt": "a model in text form",
    "lfs": "run `git lfs pull`",
    "zeros": "nothing but zero bytes",
    "gguf": "a GGUF file",
    "npy": "a numpy array",
    "tflite": "tf2onnx",
    "ort": "onnxruntime's own format",
    "pickle": "a Python pickle",
    "safetensors": "a safetensors file",
    "torchscript": "torch.onnx.export",
    "pef": "a PEF: use `samba-port inspect`",
    "npz": "a numpy archive",
    "zip": "a zip archive",
    "folder": "this is a folder",
    "missing": "no such file or directory",
    "fifo": "a named pipe",
    "link_to_device": "a device",
    "truncated_40": "truncated",
}
MAKERS = {name: make for name, _, make in FILES}


@pytest.mark.parametrize("name", sorted(WORDS))
def test_the_message_says_what_it_is(name: str, tmp_path: Path) -> None:
    path = MAKERS[name](tmp_path)
    with pytest.raises(ModelError) as caught:
        load_model(path)
    assert str(path) in str(caught.value)
    assert WORDS[name] in str(caught.value)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    """A whole model and no part of it loads; every 7th length is tried."""
    whole = with_weight(weight((5, 5))).SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(whole)
    load_model(path)
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelError):
            load_model(path)


def test_no_single_flipped_byte_does_more_than_be_refused(tmp_path: Path) -> None:
    whole = relu().SerializeToString()
    path = tmp_path / "m.onnx"
    refused = 0
    for position in range(len(whole)):
        for mask in (0x01, 0x80, 0xFF):
            spoiled = bytearray(whole)
            spoiled[position] ^= mask
            path.write_bytes(bytes(spoiled))
            try:
                load_model(path)
            except ModelError as error:
                refused += str(error).isprintable()
    assert refused > len(whole)
