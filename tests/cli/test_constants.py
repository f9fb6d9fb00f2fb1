"""``--constant``: an input that no run gives any more, through all commands."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import samba_onnx
from samba_onnx.comparing.verification import run_original
from samba_onnx.errors import InputError
from tests.cli.conftest import SambaPort

TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
detector (float[batch, samples] sound, int64 rate, bool[1] loud) => (float[batch, m] y)
<float[4, 3] narrow = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, float[2, 3] wide = {1, -2, 3, -4, 5, -6}> {
  high = Constant <value_int = 16000> ()
  is_high = Equal(rate, high)
  h = Tanh(sound)
  e = If (is_high) <then_branch = t () => (float[b, k] o) { o = MatMul(h, narrow) },
                    else_branch = f () => (float[b, k] o) { o = MatMul(h, wide) }>
  y = If (loud) <then_branch = l () => (float[b, k] p) { p = Exp(e) },
                 else_branch = q () => (float[b, k] p) { p = Neg(e) }>
}
"""
FIXED = ("--constant", "rate=16000", "--constant", "loud=false")
SIZES = ("--dim", "batch=2", "--dim", "samples=4")


@pytest.fixture
def detector(tmp_path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "detector.onnx")
    return tmp_path / "detector.onnx"


def inputs(rate: int = 16000) -> dict[str, Any]:
    sound = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    return {"sound": sound, "rate": np.array(rate), "loud": np.array([False])}


def test_all_runs_on_the_rdu_and_commands_give_the_original_its_constants(
    samba_port: SambaPort, detector: Path, tmp_path: Path
) -> None:
    pef, report = tmp_path / "d.pef", tmp_path / "d.json"
    result = samba_port(
        *("convert", detector, "-o", pef, *SIZES, *FIXED),
        *("--json", report, "--fail-on-fallback", "--annotated", tmp_path / "where.onnx"),
    )
    assert (result.status, result.err) == (0, "")
    assert "fixed as constants: " in result.out
    document = json.loads(report.read_text())
    assert document["coverage"]["cpu_nodes"] == 0
    assert document["fixed_inputs"] == [
        {"name": "rate", "type": "tensor(int64)", "shape": [], "value": "16000"},
        {"name": "loud", "type": "tensor(bool)", "shape": [1], "value": "[false]"},
    ]
    assert [each["name"] for each in document["graphs"][0]["inputs"]] == ["sound"]
    for command in (
        ("verify", detector, pef),
        ("verify", detector, pef, "--engine", "reference"),
        ("verify", pef),
        ("compare", detector, pef),
        ("reduce", detector, pef),
        ("diff", pef, detector),
        ("analyze", detector, *SIZES, *FIXED, "--fail-on-fallback"),
        ("run", pef, "--random", 0),
    ):
        result = samba_port(*command)
        assert (result.status, result.err) == (0, ""), command
    # Without the constants it is another conversion.
    assert samba_port("diff", pef, detector, "--constant", "rate=16000").status == 1


def test_the_commands_of_the_manual_run(
    samba_port: SambaPort, detector: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(detector.parent)
    manual = (Path(__file__).parents[2] / "docs" / "commands" / "convert.md").read_text()
    _, _, section = manual.partition("### Inputs that never change\n")
    commands = section.split("```")[1].split("\n")[1:-1]
    assert len(commands) == 3
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "samba-port"
        result = samba_port(*arguments)
        assert (result.status, result.err) == (0, ""), command


def test_a_run_takes_the_value_that_was_fixed_and_no_other(
    samba_port: SambaPort, detector: Path, tmp_path: Path
) -> None:
    pef, outputs = tmp_path / "d.pef", tmp_path / "y.npz"
    assert samba_port("convert", detector, "-o", pef, "--no-sample", *SIZES, *FIXED).status == 0
    expected = run_original(onnx.load(detector), inputs())["y"]
    given = {"with": inputs(), "without": {"sound": inputs()["sound"]}}
    for name, arrays in given.items():
        np.savez(tmp_path / f"{name}.npz", **arrays)
        result = samba_port("run", pef, "--input", tmp_path / f"{name}.npz", "-o", outputs)
        assert (result.status, result.err) == (0, "")
        np.testing.assert_allclose(np.load(outputs)["y"], expected, rtol=1e-6)
        assert samba_port("verify", detector, pef, "-i", tmp_path / f"{name}.npz").status == 0
    np.savez(tmp_path / "other.npz", **inputs(8000))
    for command in (("run", pef), ("verify", detector, pef), ("compare", detector, pef)):
        result = samba_port(*command, "--input", tmp_path / "other.npz")
        assert result.status == 2
        assert (
            "input 'rate' was fixed as a constant when the model was converted, 16000, and is given 8000"
            in result.err
        )
    with samba_onnx.load_pef(pef) as opened, samba_onnx.Device(opened) as device:
        for _ in range(3):  # a repeated run takes another way
            np.testing.assert_allclose(device.run(inputs())["y"], expected, rtol=1e-6)
            with pytest.raises(InputError, match="'rate' was fixed"):
                device.run(inputs(8000))


def test_graphs_for_several_sizes_share_a_constant(
    samba_port: SambaPort, detector: Path, tmp_path: Path
) -> None:
    pef = tmp_path / "d.pef"
    options = ("--dim", "batch=1,2", "--dim", "samples=4", *FIXED)
    assert samba_port("convert", detector, "-o", pef, "--no-sample", *options).status == 0
    assert samba_port("verify", detector, pef).status == 0
    np.savez(tmp_path / "in.npz", **inputs())
    result = samba_port("run", pef, "--input", tmp_path / "in.npz", "-q")
    assert (result.status, result.err) == (0, "")


def test_a_constant_states_the_sizes_of_other_inputs(samba_port: SambaPort, tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]>
    g (float[n, 3] table, float[m, n] x) => (float[m, 3] y) { y = MatMul(x, table) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "g.onnx")
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.save(tmp_path / "t.npy", table)
    option = ("--constant", f"table={tmp_path / 't.npy'}")
    command = ("analyze", tmp_path / "g.onnx", *option, "--json", "-")
    document = json.loads(samba_port(*command, "--dim", "m=2").out)
    assert document["graphs"][0]["inputs"][0]["shape"] == [2, 4]
    assert document["fixed_inputs"][0]["value"] == "[0.0, 1.0, 2.0, 3.0, ...]"
    assert samba_port(*command, "--dim", "n=4", "--input-shape", "table=4,3").status == 0
    result = samba_port(*command, "--dim", "n=5")
    assert (result.status, result.out) == (2, "")
    assert (
        "dimension 'n' is given two sizes, 5 and, by the shape of an input that is fixed"
        in result.err
    )
    result = samba_port(*command, "--input-shape", "table=5,3")
    assert "input 'table' is given two shapes, [5, 3] and, as a constant, [4, 3]" in result.err
    pef = tmp_path / "g.pef"
    assert samba_port("convert", tmp_path / "g.onnx", *option, "--dim", "m=2").status == 0
    assert samba_port("verify", tmp_path / "g.onnx", pef).status == 0
    result = samba_port("diff", pef, tmp_path / "g.onnx")
    assert "give them, too, with --constant table=FILE.npy" in result.err
    assert samba_port("diff", pef, tmp_path / "g.onnx", *option).status == 0


def test_an_input_that_is_an_output_may_be_fixed(samba_port: SambaPort, tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]>
    g (float[2] x, float[2] scale) => (float[2] y, float[2] scale) { y = Mul(x, scale) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "g.onnx")
    result = samba_port("convert", tmp_path / "g.onnx", "--constant", "scale=[2,3]")
    assert (result.status, result.err) == (0, "")
    assert samba_port("verify", tmp_path / "g.onnx", tmp_path / "g.pef").status == 0


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("rate", "expected INPUT=VALUE"),
        ("rate=", "expected INPUT=VALUE"),
        ("=3", "expected INPUT=VALUE"),
        ("rate=fast", "expected INPUT=VALUE"),
        ('rate="16000"', "expected INPUT=VALUE"),
        ("rate=null", "expected INPUT=VALUE"),
        ("rate={}", "expected INPUT=VALUE"),
        ("rate=[1,null]", "expected INPUT=VALUE"),
        ("rate=" + "[" * 5000, "expected INPUT=VALUE"),
        ("rate=" + "9" * 5000, "expected INPUT=VALUE"),
        ("rate=none.npy", "none.npy: cannot open this constant"),
        (
            "speed=1",
            "the model has no input 'speed' to fix as a constant; it has sound, rate, loud",
        ),
        ("rate=1.5", "expected whole numbers"),
        ("loud=1", "expected true or false"),
        ("rate=[1,2]", "has shape [], the constant [2]"),
    ],
)
def test_what_cannot_be_fixed_is_one_line(
    samba_port: SambaPort, detector: Path, option: str, problem: str
) -> None:
    result = samba_port("analyze", detector, "--constant", option)
    assert (result.status, result.out) == (2, "")
    assert problem in result.err
    assert result.err.count("\n") == 1


def test_a_constant_is_given_once_and_not_to_a_module_of_torch(
    samba_port: SambaPort, detector: Path
) -> None:
    result = samba_port("analyze", detector, "--constant", "rate=1", "--constant", "rate=2")
    assert "'rate' is given twice" in result.err
    for command in ("analyze", "convert"):
        result = samba_port(command, "no.such:module", "--constant", "rate=1")
        assert result.status == 2
        assert "--constant is for ONNX models" in result.err


def test_the_report_proposes_what_to_fix(samba_port: SambaPort, detector: Path) -> None:
    result = samba_port("analyze", detector, *SIZES, "--json", "-")
    hints = {
        node["name"]: group["hint"]
        for group in json.loads(result.out)["fallbacks"]
        for node in group["nodes"]
        if group["code"] == "control_flow"
    }
    assert sorted(hints.values()) == [
        "if this input never changes, fix it: --constant loud=VALUE",
        "if this input never changes, fix it: --constant rate=16000",
    ]
