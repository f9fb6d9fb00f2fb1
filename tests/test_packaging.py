"""The checkout's layout and what pyproject.toml says of it agree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import cast

import onnx
import pytest
import yaml

import samba_onnx
from tests.safety.small_models import relu

ROOT = Path(__file__).parent.parent
ROOMS = {"samba_onnx.passes": ROOT / "passes", "samba_onnx.runtime": ROOT / "runtime"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PROJECT["tool"]["setuptools"]
MOST_UNRELEASED_LINES = 120


def _packages(name: str, folder: Path) -> set[str]:
    inits = [init for init in folder.rglob("__init__.py") if "__pycache__" not in init.parts]
    return {".".join([name, *init.parent.relative_to(folder).parts]) for init in inits}


def test_every_package_is_installed() -> None:
    linked = {folder.name for folder in ROOMS.values()}
    found = {
        name
        for name in _packages("samba_onnx", ROOT / "samba_onnx")
        if name.split(".")[1:2] != [] and name.split(".")[1] not in linked
    }
    found |= {"samba_onnx"}
    for name, folder in ROOMS.items():
        found |= _packages(name, folder)
    command = [sys.executable, "-c", "import setup; print(*setup.packages())"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert sorted(answer.stdout.split()) == sorted(found)


PINNED = {"torch": "2.13.0"}
"""Of torch one version is tested; docs/versions.md says which ones are believed to work."""


def _release(version: str) -> tuple[int, ...]:
    numbers = tuple(map(int, version.split(".")))
    return numbers[: max((i + 1 for i, number in enumerate(numbers) if number), default=0)]


def test_the_lowest_constraints_are_the_floors() -> None:
    """Of all that users install; the tools of developers have no lowest version."""
    extras = PROJECT["project"]["optional-dependencies"]
    required = [*PROJECT["project"]["dependencies"], *extras["torch"], *extras["data"]]
    floors = dict(item.split(">=") for item in required)
    lines = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    needed = {*(item.split(">=")[0] for item in PROJECT["project"]["dependencies"])}
    assert needed <= pins.keys()
    assert {name: pins[name] for name in PINNED} == PINNED
    differing = {
        name: (floors[name], pins[name])
        for name in sorted(floors.keys() & pins.keys() - PINNED.keys())
        if _release(floors[name]) != _release(pins[name])
    }
    assert differing == {}
    page = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    assert [name for name in needed if f"| {name} | {pins[name]} |" not in page] == []


def test_the_changelog_and_the_citation_have_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    unreleased, *released = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert unreleased == "Unreleased"
    dated = [re.fullmatch(r"(\d+\.\d+\.\d+) - (\d{4}-\d\d-\d\d)", heading) for heading in released]
    assert all(dated)
    newest = cast("re.Match[str]", dated[0])
    assert newest[1] == samba_onnx.__version__
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["version"], citation["date-released"].isoformat()) == newest.groups()
    # What is longer wants a release.
    waiting = text.partition("\n## Unreleased\n")[2].partition("\n## ")[0]
    assert waiting.count("\n") < MOST_UNRELEASED_LINES


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="an sdist has no links")
@pytest.mark.parametrize(("name", "folder"), ROOMS.items())
def test_the_link_and_the_mapping_show_the_same_folder(name: str, folder: Path) -> None:
    link = ROOT / name.replace(".", "/")
    if link.is_file():  # as git writes links where the system has none
        assert link.read_text(encoding="utf-8") == f"../{folder.name}"
        return
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


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="an sdist does not know what is tracked")
def test_an_sdist_has_all_that_is_tracked() -> None:
    command = ["git", "-C", str(ROOT), "ls-files"]
    tracked = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    lines = (ROOT / "MANIFEST.in").read_text().splitlines()
    words = [line.split() for line in lines if line and not line.startswith("#")]
    folders = {word for verb, *rest in words if verb == "graft" for word in rest}
    files = {word for verb, *rest in words if verb == "include" for word in rest}
    # What setuptools adds itself: the package, what the project's table names, and the manifest.
    files |= {"LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py"}
    folders |= {"samba_onnx"}
    missing = {name for name in tracked if name.split("/")[0] not in folders | files}
    assert missing == set()
    assert all((ROOT / name).exists() for name in folders | files)


def copy_checkout(place: Path) -> Path:
    """Copy the checkout, without what is not tracked."""
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist")
    shutil.copytree(ROOT, place, symlinks=True, ignore=ignored)
    for name in (".ci", ".github"):
        shutil.copytree(ROOT / name, place / name)
    return place


@pytest.mark.parametrize("installed", [False, True], ids=["bare", "wheel"])
def test_links_that_are_plain_text_files(installed: bool, tmp_path: Path) -> None:
    """As git makes them on Windows, and whoever unpacks an archive there."""
    source = copy_checkout(tmp_path / "source")
    for room in ("passes", "runtime"):
        (source / "samba_onnx" / room).unlink(missing_ok=True)
        (source / "samba_onnx" / room).write_text(f"../{room}", encoding="utf-8")
    place = source
    if installed:
        build = (
            "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
        )
        subprocess.run(
            [sys.executable, "-c", build, str(tmp_path)],
            cwd=source,
            capture_output=True,
            check=True,
        )
        (wheel,) = tmp_path.glob("*.whl")
        place = tmp_path / "site"
        zipfile.ZipFile(wheel).extractall(place)
        assert sorted(item.name.partition("-")[0] for item in place.iterdir()) == [
            "samba_onnx",
            "samba_onnx",  # the package, and what is said of it
        ]
        assert (place / "samba_onnx" / "passes" / "targets" / "operators.toml").is_file()
        assert (place / "samba_onnx/sambaflow/samba/utils/argparser.pyi").is_file()
    onnx.save(relu(), tmp_path / "m.onnx")
    for command in ("targets", "convert m.onnx", "run m.pef --random 0", "verify m.onnx m.pef"):
        done = subprocess.run(
            [sys.executable, "-m", "samba_onnx", *command.split(), "-q"],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(place)}, capture_output=True,
            encoding="utf-8", check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def test_an_unpacked_sdist_is_a_checkout_without_links(tmp_path: Path) -> None:
    source = copy_checkout(tmp_path / "source")
    build = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=source, capture_output=True, check=True
    )
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert not (unpacked / "samba_onnx/passes").exists()
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/test_packaging.py",
    ]
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*words, "tests/cli/test_limits.py", "-m", "not slow"],
        cwd=unpacked, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    code = "import samba_onnx.passes as p, samba_onnx.runtime as r; print(p.__file__, r.__file__)"
    places = subprocess.run(
        [sys.executable, "-c", code], cwd=unpacked, env=environment, capture_output=True, text=True,
        check=True,
    ).stdout.split()  # fmt: skip
    assert places == [str(unpacked / room / "__init__.py") for room in ("passes", "runtime")]
