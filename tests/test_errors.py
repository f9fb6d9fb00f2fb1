"""What an error is about can be read from its fields, not only from its text."""

from __future__ import annotations

import copy
import os
from pathlib import Path

import onnx
import pytest

from samba_onnx import errors
from samba_onnx.errors import (
    InvalidModelError,
    ModelError,
    ModelFileError,
    PefFormatError,
    SambaError,
    TargetError,
)
from samba_onnx.loading import load_model
from samba_onnx.passes.targets import load_target
from samba_onnx.pef.reader import load_pef

CLASSES = [
    item
    for item in vars(errors).values()
    if isinstance(item, type) and issubclass(item, SambaError)
]


def invalid(tmp_path: Path) -> Path:
    path = tmp_path / "invalid.onnx"
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    )
    node = proto.graph.node[0]
    node.name, node.op_type = "act", "Rleu"
    path.write_bytes(proto.SerializeToString())
    return path


def test_a_node_of_a_file_is_named_in_fields(tmp_path: Path) -> None:
    path = invalid(tmp_path)
    with pytest.raises(InvalidModelError) as info:
        load_model(path)
    error = info.value
    assert (error.path, error.node, error.operator) == (str(path), "act", "Rleu")
    assert str(error).startswith(f"{path}: node 'act' (Rleu): version 17 of operator set ai.onnx")


def test_files_that_cannot_be_used_are_named_in_fields(tmp_path: Path) -> None:
    for load, name, kind in (
        (load_model, "missing.onnx", ModelFileError),
        (load_model, ".", ModelFileError),
        (load_pef, "missing.pef", PefFormatError),
    ):
        with pytest.raises(kind) as info:
            load(tmp_path / name)
        assert info.value.path == os.fspath(tmp_path / name)
    path = tmp_path / "own.toml"
    path.write_text('extends = "sn40l"\n[unsupported.Rleu]\nnote = "it does not exist"\n')
    with pytest.raises(TargetError) as target:
        load_target(path)
    assert (target.value.path, target.value.operator) == (str(path), "Rleu")


def test_the_innermost_place_is_kept() -> None:
    error = ModelError("it is wrong", node="inner").within("node 'outer'", node="outer")
    assert (str(error), error.node, error.path) == ("node 'outer': it is wrong", "inner", None)
    placed = error.within("a.onnx", path=Path("a.onnx"))
    assert (str(placed), placed.path) == ("a.onnx: node 'outer': it is wrong", "a.onnx")
    assert error.path is None


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_keeps_its_fields(kind: type[SambaError]) -> None:
    error = kind("a sentence", path="p", node="n", operator="o", location="model.py:1")
    for other in (error, copy.copy(error)):
        assert (other.path, other.node, other.operator) == ("p", "n", "o")
        assert (other.location, str(other)) == ("model.py:1", "a sentence")
