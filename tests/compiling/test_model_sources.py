"""Which models names stand for, and when one has changed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from samba_onnx.compiling.model_sources import find_models, is_configuration, model_digest
from samba_onnx.errors import UsageError


def _touch(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")


def test_a_folder_stands_for_the_models_below_it(tmp_path: Path) -> None:
    _touch(tmp_path, "b.onnx", "a.pt2", "notes.md", ".hidden/c.onnx", "deep/er/d.onnx")
    _touch(tmp_path, "bert/config.json", "exported/config.json", "exported/model.onnx")
    models = find_models([str(tmp_path)])
    names = [str(Path(model).relative_to(tmp_path)) for model in models]
    assert names == ["a.pt2", "b.onnx", "bert/config.json", "deep/er/d.onnx", "exported/model.onnx"]
    assert is_configuration(str(tmp_path / "bert"))
    assert not is_configuration(str(tmp_path / "deep"))


def test_lists_files_and_factories_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _touch(tmp_path, "a.onnx", "b.onnx")
    Path("list.txt").write_text("# remark\n\nb.onnx\npackage.module:factory\n")
    wanted = ("a.onnx", "b.onnx", "package.module:factory")
    assert find_models(["a.onnx", "list.txt", "b.onnx"]) == wanted
    Path("loop.txt").write_text("loop.txt\n")
    with pytest.raises(UsageError, match="cannot name another"):
        find_models(["loop.txt"])


@pytest.mark.parametrize(
    ("name", "words"),
    [("missing.onnx", "does not exist"), ("x.md", "none of them"), (".", "no model")],
)
def test_a_name_that_stands_for_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    _touch(tmp_path, "x.md")
    with pytest.raises(UsageError, match=words):
        find_models([name])


def test_the_digest_of_a_model_counts_content_external_data_and_settings(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> g (float[4] x) => (float[4] y) { y = Add(x, w) }'
    )
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(4, np.float32), "w"))
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    first = model_digest(str(path), {"level": "o3"})
    assert len(first) == 64
    assert model_digest(str(path), {"level": "o3"}) == first
    assert model_digest(str(path), {"level": "o0"}) != first
    os.utime(tmp_path / "w.bin", ns=(1, 1))
    touched = model_digest(str(path), {"level": "o3"})
    assert touched != first
    model.doc_string = "other"
    onnx.save(model, path)
    assert model_digest(str(path), {"level": "o3"}) not in (first, touched)


def test_the_digest_of_a_factory_counts_its_module_which_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = Path("zoo/nets.py")
    module.parent.mkdir()
    module.write_text("raise SystemExit\n")
    first = model_digest("zoo.nets:a", {})
    assert model_digest("zoo.nets:b", {}) != first
    module.write_text("raise SystemExit()\n")
    assert model_digest("zoo.nets:a", {}) != first
    assert "zoo.nets" not in sys.modules
