"""``example``: models to try commands with."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from samba_onnx.tools.example.example import ExampleName
from tests.cli.conftest import SambaPort


@pytest.mark.parametrize(
    "name",
    [
        ExampleName.MLP,
        ExampleName.DETECTOR,
        # They take longer, and differ in nothing that this is about.
        pytest.param(ExampleName.LSTM, marks=pytest.mark.slow),
        pytest.param(ExampleName.TRANSFORMER, marks=pytest.mark.slow),
    ],
)
def test_every_example_goes_the_whole_way(
    samba_port: SambaPort, tmp_path: Path, name: ExampleName
) -> None:
    model = tmp_path / "m.onnx"
    written = samba_port("example", name.value, "-o", model, "--json", tmp_path / "e.json")
    assert (written.status, written.err) == (0, "")
    document = json.loads((tmp_path / "e.json").read_text())
    assert document["bytes"] == model.stat().st_size
    assert len(document["commands"]) == 3
    for command in document["commands"]:
        # As it is printed: what a user pastes.
        assert f"  {command}\n" in written.out
        done = samba_port(*command.split()[1:])
        assert done.status == 0, done.err


def test_one_seed_gives_one_file(samba_port: SambaPort, tmp_path: Path) -> None:
    paths = [tmp_path / f"{place}.onnx" for place in range(3)]
    for path, seed in zip(paths, (0, 0, 1), strict=True):
        assert samba_port("example", "mlp", "-o", path, "--seed", seed).status == 0
    first, same, other = (path.read_bytes() for path in paths)
    assert first == same != other


def test_the_name_of_the_file_is_that_of_the_example(
    samba_port: SambaPort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert samba_port("example", "detector", "-q").out == (
        "wrote detector.onnx: convolutions that find boxes in an image; choosing among them falls back to the CPU\n"
    )
    onnx.checker.check_model("detector.onnx")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("example", "resnet"), "'resnet'"),
        (("example", "mlp", "-o", "{folder}"), "must be a regular file"),
        (("example", "mlp", "-o", "{folder}/m", "--seed", "-1"), "--seed"),
        (("example", "mlp", "-o", "{folder}/m", "--json", "{folder}/m"), "overwrite"),
    ],
)
def test_wrong_use_writes_nothing(
    samba_port: SambaPort, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    result = samba_port(*(text.format(folder=tmp_path) for text in arguments))
    assert (result.status, result.out) == (2, "")
    assert words in result.err
    assert len(result.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
