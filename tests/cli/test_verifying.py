"""``verify``: agreement, disagreement, wrong usage."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from samba_onnx.workflows import verification
from samba_onnx.workflows.verification import OutputComparison, Verification
from tests.cli.conftest import SambaPort

DOCS = Path(__file__).parents[2] / "docs"


def _compared(passed: bool, error: float) -> Verification:
    output = OutputComparison(
        "y", "float32", (4, 32), error, error, 0 if passed else 3, 128, passed
    )
    good = OutputComparison("z", "int64", (2,), 0.0, 0.0, 0, 2, passed=True)
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
    assert samba_port("verify", model, mixed, *options, "-i", model.parent / "i.npz").status == 0
    inputs = seen.pop("inputs")
    assert isinstance(inputs, dict)
    assert sorted(inputs) == ["b", "x"]
    assert seen == {"original": str(model), "rtol": 1e-3, "atol": 0.0, "threads": 2, "seed": 9}


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
