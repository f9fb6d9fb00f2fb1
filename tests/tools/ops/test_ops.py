"""``samba-port ops``."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from samba_onnx.passes.targets import available_targets, load_target
from samba_onnx.passes.targets.markdown import operator_table_markdown
from samba_onnx.passes.targets.named_limits import LIMITS
from tests.cli.conftest import SambaPort

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("target", available_targets())
def test_ops_lists_every_row(samba_port: SambaPort, target: str) -> None:
    result = samba_port("ops", "--target", target)
    assert (result.status, result.err) == (0, "")
    first = {line.split()[0] for line in result.out.splitlines() if line.strip()}
    profile = load_target(target)
    assert {row.name for row in profile.rows} <= first
    assert {row.name for row in profile.unsupported} <= first


def test_ops_of_some_operators(samba_port: SambaPort) -> None:
    result = samba_port("ops", "Gemm", "Loop", "-q")
    assert result.out == "sn40l: 1 operators run on the RDU, 1 are known not to\n"


def test_ops_suggests_a_name(samba_port: SambaPort) -> None:
    result = samba_port("ops", "Softmx")
    assert (result.status, result.out) == (2, "")
    assert "did you mean Softmax" in result.err


def test_ops_as_json(samba_port: SambaPort) -> None:
    document = json.loads(samba_port("ops", "--json", "-").out)
    jsonschema.validate(document, json.loads((DOCS / "operators.schema.json").read_text()))
    rows = {row["operator"]: row for row in document["operators"]}
    assert len(rows) == len(load_target("sn40l").rows)
    reshape = {operand["name"]: operand for operand in rows["Reshape"]["operands"]}
    assert reshape["shape"]["static"]


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ("min = 1", "at least 1"),
        ("max = 2.5", "at most 2.5"),
        ("min = 0, max = 3", "at least 0 and at most 3"),
        ("", "any number"),
    ],
)
def test_ops_says_what_an_attribute_may_be(
    samba_port: SambaPort, tmp_path: Path, bounds: str, words: str
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'extends = "sn40l"\nname = "mine"\n[operators.Elu]\n'
        'full = ["float32"]\nsource = "a test"\n'
        f"attributes.alpha = {{ {bounds} }}\n"
    )
    (row,) = json.loads(samba_port("ops", "Elu", "--target", path, "--json", "-").out)["operators"]
    assert row["attributes"] == {"alpha": words}
    assert f"alpha: {words}" in samba_port("ops", "Elu", "--target", path).out


def test_ops_describes_limits_in_words(samba_port: SambaPort) -> None:
    listed = json.loads(samba_port("ops", "--json", "-").out)["operators"]
    for row, shown in zip(load_target("sn40l").rows, listed, strict=True):
        assert shown["limits"] == [LIMITS[name].description for name in row.limits]
    assert any(row["limits"] for row in listed)


def test_ops_as_markdown(samba_port: SambaPort) -> None:
    result = samba_port("ops", "--target", "sn30", "--markdown")
    assert result.out == operator_table_markdown(load_target("sn30"))
    assert samba_port("ops", "--markdown", "Conv").status == 2
    assert samba_port("ops", "--markdown", "--json", "-").status == 2
