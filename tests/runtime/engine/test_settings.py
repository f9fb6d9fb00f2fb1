"""What users say of an engine is checked before one is made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from samba_onnx.errors import UsageError
from samba_onnx.runtime.engine.protocol import EngineSettings
from samba_onnx.runtime.engine.registry import make_engine
from samba_onnx.runtime.engine.settings import engine_settings, library_paths


def test_settings_are_what_was_said() -> None:
    assert engine_settings(None) == EngineSettings()
    assert engine_settings(2, prepack=False) == EngineSettings(2, prepack=False)
    with pytest.raises(UsageError, match="threads is 0; give 1 or more, or None"):
        engine_settings(0)


def test_libraries_are_absolute_and_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.so").touch()
    monkeypatch.chdir(tmp_path)
    paths = library_paths(["a.so", tmp_path / "a.so"])
    assert paths == (os.path.join(os.getcwd(), "a.so"),)
    assert engine_settings(None, custom_ops=["a.so"]).custom_ops == paths
    assert library_paths("a.so") == library_paths(tmp_path / "a.so") == paths


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for library in (tmp_path, tmp_path / "none.so", ""):
        with pytest.raises(UsageError, match=r"custom-ops library '.*' is no file: give the path"):
            library_paths([library])


def test_the_reference_engine_has_no_libraries(tmp_path: Path) -> None:
    (tmp_path / "a.so").touch()
    settings = engine_settings(None, custom_ops=[tmp_path / "a.so"])
    with pytest.raises(UsageError, match="are for the engine onnxruntime; reference cannot load"):
        make_engine("reference", settings)
    with pytest.raises(UsageError, match="is no library of custom operators for onnxruntime"):
        make_engine("onnxruntime", settings)
