"""``verify``: agreement, disagreement, wrong usage."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import pytest

import samba_onnx
from samba_onnx.comparing import verification
from samba_onnx.comparing.judge import Verdict
from samba_onnx.comparing.trials import Verification
from tests.cli.conftest import SambaPort

DOCS = Path(__file__).parents[3] / "docs"


def _compared(passed: bool, error: float) -> Verification:
    output = Verdict("y", "float32", (4, 32), error, error, 0 if passed else 3, 128, passed)
    good = Verdict("z", "int64", (2,), 0.0, 0.0, 0, 2, passed=True)
    return Verification("original", (good, output), 1e-4, 1e-5)


@pytest.mark.parametrize(
    ("passed", "error", "status", "headline"),
    [
        (True, 2e-6, 0, "model.pef: 2 outputs agree with the original on onnxruntime"),
        (False, 0.5, 1, "model.pef: 1 of 2 outputs differ from the original on onnxruntime"),
        (False, float("inf"), 1, "model.pef: 1 of 2 outputs differ from the original"),
    ],
)
def test_the_answer_is_the_exit_status(
    samba_port: SambaPort,
    mixed: Path,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    passed: bool,
    error: float,
    status: int,
    headline: str,
) -> None:
    monkeypatch.setattr(verification, "verify", lambda *_, **__: _compared(passed, error))
    result = samba_port("verify", model, mixed)
    assert (result.status, result.err) == (status, "")
    assert result.out.startswith(headline)
    document = json.loads(samba_port("verify", model, mixed, "--json", "-").out)
    jsonschema.validate(document, json.loads((DOCS / "verification.schema.json").read_text()))
    assert document["passed"] == passed
    assert ("run it again with --engine reference" in result.out) == (not passed)
    assert document["advice"] in " ".join(result.out.split())


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ((None, 1.0), "; largest relative error 0; quantised numbers at most 1 step apart"),
        ((2.0, 0.0), "onnxruntime; quantised numbers at most 2 steps apart"),
        ((float("inf"), None), "; largest relative error 2"),
    ],
)
def test_quantised_outputs_are_told_in_steps(
    samba_port: SambaPort,
    mixed: Path,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    steps: tuple[float | None, float | None],
    words: str,
) -> None:
    """An element next to zero that moved by a step has a relative error of its own size, which says nothing."""
    answer = _compared(passed=True, error=2.0)
    outputs = tuple(
        dataclasses.replace(output, steps=step)
        for output, step in zip(answer.outputs, steps, strict=True)
    )
    moved = dataclasses.replace(answer, outputs=outputs)
    monkeypatch.setattr(verification, "verify", lambda *_, **__: moved)
    assert samba_port("verify", model, mixed).out.splitlines()[0].endswith(words)


def test_options_reach_the_comparison(
    samba_port: SambaPort, mixed: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {}

    def verify(original: str, pef: object, **options: object) -> Verification:
        seen.update(options, original=original)
        return _compared(passed=True, error=0.0)

    monkeypatch.setattr(verification, "verify", verify)
    np.savez(model.parent / "i.npz", x=np.ones((4, 16), np.float32), b=np.ones(32, np.float32))
    options = ("--rtol", "1e-3", "--atol", "0", "--threads", 2, "--seed", 9)
    options += ("--engine", "reference", "--custom-ops", "a.so", "--custom-ops", "b.so")
    assert samba_port("verify", model, mixed, *options, "-i", model.parent / "i.npz").status == 0
    inputs = seen.pop("inputs")
    assert isinstance(inputs, dict)
    assert sorted(inputs) == ["b", "x"]
    assert seen == {
        "original": str(model),
        "rtol": 1e-3,
        "atol": 0.0,
        "threads": 2,
        "seed": 9,
        "engine": "reference",
        "custom_ops": ["a.so", "b.so"],
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Missing argument"),
        (("{mixed}",), "no reference sample"),
        (("{mixed}", "{mixed}", "{mixed}"), "3 files"),
        (("{mixed}", "--input", "x=x.npy"), "--input needs MODEL and PEF"),
        (("{model}", "{mixed}", "--rtol", "-1"), "--rtol"),
        (("{model}", "missing.pef"), "missing.pef"),
        (("{mixed}", "--json", "{mixed}"), "overwrite"),
    ],
)
def test_wrong_usage(
    samba_port: SambaPort, mixed: Path, model: Path, arguments: tuple[str, ...], words: str
) -> None:
    result = samba_port("verify", *(text.format(mixed=mixed, model=model) for text in arguments))
    assert (result.status, result.out) == (2, "")
    assert len(result.err.splitlines()) == 1
    assert words in result.err


def test_the_other_engine_answers_by_its_name(samba_port: SambaPort, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]>'
        "g (float[4] x) => (float[4] y, float[4] z) { y = Tanh(x) z = Erf(x) }"
    )
    path, pef = tmp_path / "m.onnx", tmp_path / "m.pef"
    onnx.save(model, path)
    samba_onnx.convert(path, pef).close()
    result = samba_port("verify", path, pef, "--engine", "reference")
    assert (result.status, result.err) == (0, "")
    assert "2 outputs agree with the original on reference" in result.out
    assert "--engine" not in result.out
    assert samba_port("verify", pef, "--engine", "reference").status == 0
    ran = samba_port("run", pef, "--random", "0", "--engine", "reference")
    assert ran.status == 0
    refused = samba_port("run", pef, "--random", "0", "--engine", "tpu")
    assert (refused.status, refused.out) == (2, "")
    assert "engine 'tpu' does not exist; there are onnxruntime, reference" in refused.err


def test_another_version_of_the_model_is_told_from_the_one_that_was_converted(
    samba_port: SambaPort, tmp_path: Path
) -> None:
    """The sentence has both digests, as hashlib computes them; the numbers decide all the same."""
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]>'
        "g (float[4] x) => (float[4] y) <float[1] c = {2.0}> { y = Mul(x, c) }"
    )
    path, pef = tmp_path / "m.onnx", tmp_path / "m.pef"
    onnx.save(model, path)
    samba_onnx.convert(path, pef).close()
    then = hashlib.sha256(path.read_bytes()).hexdigest()
    document = json.loads(samba_port("verify", path, pef, "--json", "-").out)
    assert document["other_version"] == ""

    model.producer_name = "saved anew"
    onnx.save(model, path)
    now = hashlib.sha256(path.read_bytes()).hexdigest()
    same = samba_port("verify", path, pef)
    assert (same.status, same.err) == (0, "")
    words = f"another version of the model that m.pef was converted from: the SHA-256 of m.onnx is {now[:12]}…"
    assert f"{words}, and was {then[:12]}… then" in " ".join(same.out.split())

    model.graph.initializer[0].float_data[0] = 3.0
    onnx.save(model, path)
    other = samba_port("verify", path, pef, "--json", "-")
    assert other.status == 1
    document = json.loads(other.out)
    jsonschema.validate(document, json.loads((DOCS / "verification.schema.json").read_text()))
    assert "another version" in document["other_version"]
    assert document["advice"].startswith("convert the model again")
