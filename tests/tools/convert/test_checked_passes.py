"""``convert`` of PyTorch models compares first: refusals, mismatches, what cannot be compared."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import torch

from samba_onnx.export.operators import registry
from samba_onnx.export.programs import optimizers
from samba_onnx.pef import load_pef
from tests.cli.conftest import SambaPort
from tests.comparing.eager.planted import (
    LINE,
    REFUSED,
    Hopeless,
    absent_update,
    batch,
    net,
    wrong_number,
    wrong_update,
)

HERE = "tests.comparing.eager.planted"


@pytest.fixture(autouse=True)
def paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a command put the working folder on the path without consequences."""
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("exported") / "net.pt2"
    torch.export.save(torch.export.export(net().eval(), batch()), path)
    return path


@pytest.fixture(params=["factory", "training", "archive"])
def command(request: pytest.FixtureRequest, archive: Path, tmp_path: Path) -> list[object]:
    """What converts the same net in three ways."""
    sources: dict[str, list[object]] = {
        "factory": [f"{HERE}:factory"],
        "training": [f"{HERE}:training_factory", "--train"],
        "archive": [archive],
    }
    return ["convert", *sources[request.param], "-o", tmp_path / "deep" / "m.pef"]


def refused(samba_port: SambaPort, command: list[object], folder: Path, pattern: str) -> None:
    """Expect one line on stderr, the exit status of bad input, and nothing written."""
    result = samba_port(*command)
    assert (result.status, result.out) == (2, "")
    (line,) = result.err.splitlines()
    assert line.startswith("samba-port convert: error: ")
    assert re.search(pattern, line), line
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("operator", list(REFUSED))
def test_refused_operators(
    samba_port: SambaPort,
    command: list[object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    operator: str,
) -> None:
    monkeypatch.setitem(registry._TABLE, "silu", REFUSED[operator])
    pattern = rf"FWD part.*refuses operator {operator} at {LINE};.*{operator}"
    refused(samba_port, command, tmp_path, pattern)


def test_wrong_numbers(
    samba_port: SambaPort,
    command: list[object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(registry._TABLE, "silu", wrong_number)
    refused(samba_port, command, tmp_path, rf"aten\.silu\.default at {LINE}")


@pytest.mark.parametrize("operator", list(REFUSED))
def test_refused_operators_of_the_backward(
    samba_port: SambaPort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operator: str
) -> None:
    monkeypatch.setitem(registry._TABLE, "silu_backward", REFUSED[operator])
    command = ["convert", f"{HERE}:training_factory", "--train", "-o", tmp_path / "m.pef"]
    refused(samba_port, command, tmp_path, rf"BCKWD part.*refuses operator {operator} at {LINE};")


def test_refused_operators_of_the_optimizer(
    samba_port: SambaPort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizers, "adam_update", absent_update)
    command = ["convert", f"{HERE}:training_factory", "--train", "-o", tmp_path / "m.pef"]
    refused(samba_port, command, tmp_path, "OPT part.*refuses operator Swirl, node 'net__")


def test_wrong_numbers_of_the_optimizer(
    samba_port: SambaPort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizers, "adam_update", wrong_update)
    command = ["convert", f"{HERE}:training_factory", "--train", "-o", tmp_path / "m.pef"]
    refused(samba_port, command, tmp_path, "step 1 of AdamW in the exported graph .* 'net__layer__")
    assert samba_port(*command, "--no-check", "-q").status == 0


def noted(samba_port: SambaPort, path: Path, sentence: str) -> None:
    """Expect a sentence in the PEF and in what ``inspect`` says of it."""
    with load_pef(path) as pef:
        assert any(sentence in note for note in pef.manifest.notes), pef.manifest.notes
    shown = samba_port("inspect", path)
    assert shown.status == 0
    assert sentence in " ".join(shown.out.split())
    document = json.loads(samba_port("inspect", path, "--json", "-").out)
    assert any(sentence in note for note in document["notes"])


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (
            ["hopeless_factory"],
            "not compared with eager torch: torch itself fails on the given inputs",
        ),
        (["hopeless_factory"], "carries no reference sample: torch itself fails on the given"),
        (["hopeless_training_factory", "--train"], "torch itself fails on the given inputs"),
        (["clumsy_factory"], "compared with eager torch on values of its own for 'target'"),
        (["clumsy_training_factory", "--train"], "torch on values of its own for 'target'"),
        (
            ["dropping_factory", "--train"],
            "compared with eager torch with the rates of all dropouts",
        ),
    ],
)
def test_what_is_not_comparable_gets_a_note(
    samba_port: SambaPort, tmp_path: Path, source: list[str], sentence: str
) -> None:
    factory, *options = source
    path = tmp_path / "m.pef"
    result = samba_port("convert", f"{HERE}:{factory}", *options, "-o", path)
    assert result.status == 0
    assert sentence in " ".join(result.out.split())
    noted(samba_port, path, sentence)


def test_archives_that_are_not_comparable_get_a_note(samba_port: SambaPort, tmp_path: Path) -> None:
    x, _ = batch()
    for module, target, sentence in (
        (Hopeless(0.0).eval(), [0, 2], "torch itself fails on the given inputs"),
        (net().eval(), [0, 7], "compared with eager torch on values of its own for 'target'"),
    ):
        program = torch.export.export(module, (x, torch.tensor(target)))
        torch.export.save(program, tmp_path / "net.pt2")
        assert samba_port("convert", tmp_path / "net.pt2", "-q").status == 0
        noted(samba_port, tmp_path / "net.pef", sentence)


def test_what_is_compared_needs_no_note(samba_port: SambaPort, command: list[object]) -> None:
    result = samba_port(*command)
    assert result.status == 0
    assert "eager torch" not in result.out
