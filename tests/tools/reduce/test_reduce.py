"""``reduce`` and ``convert --check-passes``: what they write, and what they answer."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import pytest

import samba_onnx
from tests.cli.conftest import SambaPort
from tests.comparing.broken_passes import BROKEN
from tests.comparing.test_value_comparison import net, with_pass

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return net(tmp_path / "net.onnx")


def test_a_part_is_written_that_runs_and_verifies_as_wrong(
    samba_port: SambaPort, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pef, document = tmp_path / "net.pef", tmp_path / "r.json"
    with_pass(monkeypatch, BROKEN["Tanh"])
    samba_onnx.convert(model, pef, dims={"n": 3}).close()
    result = samba_port("reduce", model, pef, "--json", document)
    assert (result.status, result.err) == (1, "")
    assert "1 of 13 nodes show the fault, which begins at d of Tanh" in result.out
    answer = json.loads(document.read_text())
    jsonschema.validate(answer, json.loads((DOCS / "reduction.schema.json").read_text()))
    assert answer["operators"] == {"Tanh": 1}
    assert answer["converts_wrongly"]
    part, inputs = tmp_path / "net.failing.onnx", tmp_path / "net.failing.npz"
    assert (answer["model"], answer["inputs"]) == (str(part), str(inputs))
    # The files are all that a report needs: the same fault, by the commands of everybody.
    samba_onnx.convert(part, tmp_path / "part.pef", sample=False).close()
    arrays = np.load(inputs)
    np.savez(tmp_path / "i.npz", **{n: arrays[n] for n in arrays.files if "/" not in n})
    again = samba_port("verify", part, tmp_path / "part.pef", "-i", tmp_path / "i.npz")
    assert again.status == 1


def test_nothing_is_written_where_nothing_differs(
    samba_port: SambaPort, model: Path, tmp_path: Path
) -> None:
    samba_onnx.convert(model, tmp_path / "net.pef").close()
    before = sorted(tmp_path.iterdir())
    result = samba_port("reduce", model, tmp_path / "net.pef", "--json", "-")
    assert (result.status, result.err) == (0, "")
    answer = json.loads(result.out)
    jsonschema.validate(answer, json.loads((DOCS / "reduction.schema.json").read_text()))
    assert answer["passed"]
    assert sorted(tmp_path.iterdir()) == before


def test_a_guilty_pass_ends_the_conversion(
    samba_port: SambaPort, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = samba_port("convert", model, "--check-passes", "--json", "-")
    assert (result.status, result.err) == (0, "")
    notes = json.loads(result.out)["notes"]
    assert any("the model computed the same" in note for note in notes)
    (tmp_path / "net.pef").unlink()
    with_pass(monkeypatch, BROKEN["Softmax"])
    result = samba_port("convert", model, "--check-passes")
    assert (result.status, result.out) == (1, "")
    (line,) = result.err.splitlines()
    assert line.startswith(
        "samba-port convert: error: pass OtherAttribute changed what the model computes"
    )
    assert f"wrote {tmp_path / 'net.failing.onnx'} and {tmp_path / 'net.failing.npz'}" in line
    assert not (tmp_path / "net.pef").exists()
    part = onnx.load(tmp_path / "net.failing.onnx")
    assert [node.op_type for node in part.graph.node] == ["Softmax"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("{model}",), "Missing argument"),
        (("{model}", "missing.pef"), "missing.pef"),
        (("{model}", "{mixed}"), "compare takes the model that the PEF was converted from"),
        (("{model}", "{mixed}", "-o", "{stem}"), "would overwrite"),
    ],
)
def test_wrong_usage(
    samba_port: SambaPort, mixed: Path, model: Path, arguments: tuple[str, ...], words: str
) -> None:
    stem = model.with_suffix("")
    texts = (text.format(mixed=mixed, model=model, stem=stem) for text in arguments)
    result = samba_port("reduce", *texts)
    assert (result.status, result.out) == (2, "")
    assert len(result.err.splitlines()) == 1
    assert words in result.err
