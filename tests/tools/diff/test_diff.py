"""``diff``: PEFs, reports and models against each other."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import onnx
import pytest

import samba_onnx
from tests.cli.conftest import SambaPort

DOCS = Path(__file__).parents[3] / "docs"
GRAPH = "g (float[n, 8] x) => (float[n, 8] y) { a = Relu(x) b = %s(a) y = Neg(b) }"


def _model(folder: Path, operator: str) -> Path:
    text = f'<ir_version: 10, opset_import: ["" : 21]> {GRAPH % operator}'
    path = folder / f"{operator}.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    _model(tmp_path, "Tanh")
    text = GRAPH.replace("%s(a)", "TopLevel.Odd(a)")
    header = '<ir_version: 10, opset_import: ["" : 21, "TopLevel" : 1]>'
    onnx.save(onnx.parser.parse_model(f"{header} {text}"), tmp_path / "Odd.onnx")
    return tmp_path


def test_a_model_is_analyzed_as_the_other_side_was_converted(
    samba_port: SambaPort, folder: Path
) -> None:
    samba_onnx.convert(
        folder / "Tanh.onnx", folder / "a.pef", target="sn30", level="o0", dims={"n": 4}
    ).close()
    result = samba_port("diff", folder / "a.pef", folder / "Tanh.onnx")
    assert (result.status, result.err) == (0, "")
    assert result.out == "a.pef → Tanh.onnx: no figure that counts differs\n"
    larger = samba_port("diff", folder / "a.pef", folder / "Tanh.onnx", "--dim", "n=64")
    # No batch is worse than another one.
    assert (larger.status, larger.out) == (2, "")
    assert "the two are not comparable: sizes x 4x8 → x 64x8; see what moved" in larger.err
    allowed = ("--dim", "n=64", "--allow-different")
    shown = samba_port("diff", folder / "a.pef", folder / "Tanh.onnx", *allowed)
    assert shown.status == 1
    assert "sizes: x 4x8 → x 64x8" in shown.out
    assert "bytes per run" in shown.out
    assert samba_port("diff", folder / "Tanh.onnx", folder / "a.pef", *allowed).status == 0


def test_another_target_is_comparable_where_it_is_asked_for(
    samba_port: SambaPort, folder: Path
) -> None:
    model = folder / "Tanh.onnx"
    for name, options in (("a", {}), ("b", {"target": "sn30"})):
        samba_onnx.convert(model, folder / f"{name}.pef", dims={"n": 4}, **options).close()
    stored = samba_port("diff", folder / "a.pef", folder / "b.pef")
    assert stored.status == 2
    assert "not comparable: target sn40l → sn30; see" in stored.err
    asked = samba_port("diff", folder / "a.pef", model, "--target", "sn30")
    assert asked.status in (0, 1)
    assert "target: sn40l → sn30" in asked.out


def test_a_model_is_analyzed_for_as_many_rdus_as_the_other_side(
    samba_port: SambaPort, folder: Path
) -> None:
    model, pef = folder / "Tanh.onnx", folder / "a.pef"
    samba_onnx.convert(model, pef, dims={"n": 4}, n_chips=2, tensor_parallel="batch").close()
    result = samba_port("diff", pef, model)
    assert result.out == "a.pef → Tanh.onnx: no figure that counts differs\n"


def test_a_model_that_falls_back_is_worse_than_the_report_of_one_that_does_not(
    samba_port: SambaPort, folder: Path
) -> None:
    report = folder / "good.json"
    assert samba_port("analyze", folder / "Tanh.onnx", "--json", report).status == 0
    result = samba_port("diff", report, folder / "Odd.onnx", "--json", folder / "d.json")
    assert (result.status, result.err) == (1, "")
    assert "good.json → Odd.onnx: worse: cpu nodes 0 nodes → 2 nodes" in result.out
    document = json.loads((folder / "d.json").read_text())
    jsonschema.validate(document, json.loads((DOCS / "difference.schema.json").read_text()))
    changes = [(change["change"], change["operator"]) for change in document["fallbacks"]]
    assert changes == [("new", "TopLevel::Odd"), ("new", "Neg")]  # whose type is unknown then
    assert document["worse"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("missing.pef", "{mixed}"), "missing.pef: cannot open this file"),
        (("{mixed}", "{text}"), "text.json: is no report"),
        (("{mixed}",), "Missing argument"),
        (("{mixed}", "{mixed}", "--allow", "-1"), "--allow"),
        (("{mixed}", "{mixed}", "--json", "{mixed}"), "overwrite"),
    ],
)
def test_wrong_usage(
    samba_port: SambaPort, mixed: Path, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    text = tmp_path / "text.json"
    text.write_text('{"headline": 1}')
    result = samba_port("diff", *(one.format(mixed=mixed, text=text) for one in arguments))
    assert (result.status, result.out) == (2, "")
    assert len(result.err.splitlines()) == 1
    assert words in result.err
