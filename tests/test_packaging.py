"""The checkout's layout and what pyproject.toml says of it agree."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import samba_onnx

ROOT = Path(__file__).parent.parent
ROOMS = {"samba_onnx.passes": ROOT / "passes", "samba_onnx.runtime": ROOT / "runtime"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PROJECT["tool"]["setuptools"]


def _packages(name: str, folder: Path) -> set[str]:
    inits = [init for init in folder.rglob("__init__.py") if "__pycache__" not in init.parts]
    return {".".join([name, *init.parent.relative_to(folder).parts]) for init in inits}


def test_every_package_is_listed() -> None:
    linked = {folder.name for folder in ROOMS.values()}
    found = {
        name
        for name in _packages("samba_onnx", ROOT / "samba_onnx")
        if name.split(".")[1:2] != [] and name.split(".")[1] not in linked
    }
    found |= {"samba_onnx"}
    for name, folder in ROOMS.items():
        found |= _packages(name, folder)
    assert sorted(SETUPTOOLS["packages"]) == sorted(found)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="an sdist has no links")
@pytest.mark.parametrize(("name", "folder"), ROOMS.items())
def test_the_link_and_the_mapping_show_the_same_folder(name: str, folder: Path) -> None:
    link = ROOT / name.replace(".", "/")
    assert link.is_symlink()
    assert link.resolve() == folder
    assert (ROOT / SETUPTOOLS["package-dir"][name]).resolve() == folder


@pytest.mark.parametrize("name", ["passes", "runtime"])
def test_a_room_refuses_its_generic_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    with pytest.raises(ImportError, match=rf"samba_onnx\.{name}"):
        __import__(name)


def test_public_names_exist_and_are_listed() -> None:
    assert sorted(samba_onnx.__all__) == samba_onnx.__all__
    assert dir(samba_onnx) == samba_onnx.__all__
    for name in samba_onnx.__all__:
        assert getattr(samba_onnx, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Convert'"):
        samba_onnx.Convert  # noqa: B018  the access is the test


@pytest.mark.parametrize("statement", ["import samba_onnx", "import samba_onnx.cli"])
def test_importing_loads_neither_torch_nor_onnxruntime(statement: str) -> None:
    code = f"{statement}; import sys; print({{'torch', 'onnx', 'onnxruntime'}} & set(sys.modules))"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "set()"
