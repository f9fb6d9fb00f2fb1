"""``compare``: every value, the first wrong one, wrong usage."""

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


def test_the_first_wrong_value_is_the_answer(
    samba_port: SambaPort, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = onnx.load(model)
    trace = 'File "/home/me/net.py", line 12, in forward\n    return tanh(c)\n'
    proto.graph.node[4].metadata_props.add(key="pkg.torch.onnx.stack_trace", value=trace)
    onnx.save(proto, model)
    good, bad, document = tmp_path / "good.pef", tmp_path / "bad.pef", tmp_path / "c.json"
    samba_onnx.convert(model, good).close()
    with_pass(monkeypatch, BROKEN["Tanh"])
    samba_onnx.convert(model, bad).close()
    result = samba_port("compare", model, good, "--json", document)
    assert (result.status, result.err) == (0, "")
    assert "of 13 values of the original compared, all within the tolerance" in result.out
    assert "folded, fused or removed" in result.out
    schema = json.loads((DOCS / "values.schema.json").read_text())
    jsonschema.validate(json.loads(document.read_text()), schema)
    result = samba_port("compare", model, bad, "--json", document)
    assert (result.status, result.err) == (1, "")
    assert "beyond the tolerance, first d of Tanh at net.py:12" in result.out
    assert "the error begins here" in result.out
    answer = json.loads(document.read_text())
    jsonschema.validate(answer, schema)
    assert (answer["first"]["name"], answer["first"]["location"]) == ("d", "net.py:12")
    assert not answer["passed"]
    assert samba_port("compare", model, bad, "--rtol", 10, "-q").status == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("{model}",), "Missing argument"),
        (("{model}", "missing.pef"), "missing.pef"),
        (("{model}", "{mixed}"), "compare takes the model that the PEF was converted from"),
        (("{model}", "{mixed}", "--json", "{mixed}"), "overwrite"),
        (("{model}", "{mixed}", "--atol", "-1"), "--atol"),
    ],
)
def test_wrong_usage(
    samba_port: SambaPort, mixed: Path, model: Path, arguments: tuple[str, ...], words: str
) -> None:
    result = samba_port("compare", *(text.format(mixed=mixed, model=model) for text in arguments))
    assert (result.status, result.out) == (2, "")
    assert len(result.err.splitlines()) == 1
    assert words in result.err


def test_inputs_come_from_files(samba_port: SambaPort, model: Path, tmp_path: Path) -> None:
    samba_onnx.convert(model, tmp_path / "net.pef", dims={"n": 2}).close()
    np.save(tmp_path / "x.npy", np.ones((2, 8), np.float32))
    options = ("--input", f"x={tmp_path / 'x.npy'}", "--threads", 1)
    result = samba_port("compare", model, tmp_path / "net.pef", *options)
    assert result.status == 0
    assert "Run on the inputs given." in result.out


def test_a_factory_is_compared_layer_by_layer(samba_port: SambaPort, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    factory, pef, document = (
        "tests.cli.factories:positional",
        tmp_path / "f.pef",
        tmp_path / "f.json",
    )
    assert samba_port("convert", factory, "-o", pef).status == 0
    result = samba_port("compare", factory, pef, "--json", document)
    assert (result.status, result.err) == (0, "")
    assert "3 of 3 values of the original compared, all within the tolerance" in result.out
    answer = json.loads(document.read_text())
    jsonschema.validate(answer, json.loads((DOCS / "values.schema.json").read_text()))
    assert "layer (Linear)" in {value["node"] for value in answer["values"]}
    refused = samba_port("compare", factory, pef, "--rtol", 1)
    assert (refused.status, refused.out) == (2, "")
    assert "are for ONNX models" in refused.err
