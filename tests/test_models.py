"""Every example model, end to end: numbers, and a ledger that equals the plan."""

from __future__ import annotations

from pathlib import Path

import pytest

import samba_onnx
from models import MODELS
from models.cache import cached_onnx
from samba_onnx.comparing.sample_inputs import input_specs, pef_ranges, random_inputs
from samba_onnx.comparing.verification import compare, run_original
from tests.rows import others_slow
from tests.versions import needs

TARGETS = ("sn10", "sn30", "sn40l")
QUICK = ("lenet", "lstm")
"""What takes several processes or plans runs on these in the default tests."""


@pytest.mark.parametrize("level", ["o0", "o3"])
@pytest.mark.parametrize("name", sorted(MODELS))
def test_numbers_and_accounting(name: str, level: str, tmp_path: Path) -> None:
    _check(cached_onnx(name, "tiny"), level, tmp_path)


@pytest.mark.parametrize("level", ["o0", "o3"])
@pytest.mark.parametrize("name", sorted(MODELS))
def test_numbers_and_accounting_at_full_size(name: str, level: str, tmp_path: Path) -> None:
    _check(cached_onnx(name, "full"), level, tmp_path)


def _check(path: Path, level: str, tmp_path: Path) -> None:
    for target in TARGETS:
        output = tmp_path / f"{target}.pef"
        with samba_onnx.convert(
            path, output, target=target, level=level, sample=False, trial=False
        ) as pef:
            inputs = random_inputs(input_specs(pef), seed=1, ranges=pef_ranges(pef))
            with samba_onnx.Device(pef, threads=1) as device:
                actual = device.run(inputs)
                ledger = tuple(device.ledger.transfers)
            graph = pef.manifest.graphs[0]
            verification = compare(
                actual, run_original(path, inputs, threads=1), against="original"
            )
            assert verification.passed, verification
            assert ledger == graph.load_transfers + graph.run_transfers
        output.unlink()


@pytest.mark.parametrize("name", others_slow(sorted(MODELS), QUICK))
def test_the_reference_sample_travels_with_the_pef(name: str, tmp_path: Path) -> None:
    with samba_onnx.convert(cached_onnx(name, "tiny"), tmp_path / "m.pef") as pef:
        assert samba_onnx.self_test(pef).passed


@needs("onnx", "1.23")  # the second engine of older ones lacks Gelu, and LSTM in two directions
@pytest.mark.parametrize("name", others_slow(sorted(MODELS), QUICK))
def test_the_second_engine_agrees_with_the_sample_and_with_the_model(
    name: str, tmp_path: Path
) -> None:
    path = cached_onnx(name, "tiny")
    with samba_onnx.convert(path, tmp_path / "m.pef") as pef:
        assert samba_onnx.self_test(pef, engine="reference").passed
        assert samba_onnx.verify(path, pef, engine="reference").passed


@pytest.mark.parametrize("name", sorted(MODELS))
def test_one_section_per_operator_at_o0(name: str) -> None:
    manifest = samba_onnx.analyze(cached_onnx(name, "tiny"), level="o0")
    assert all(section.nodes == 1 for section in manifest.sections)
    assert manifest.sections


def test_what_should_run_on_the_rdu_does() -> None:
    """Architectures of documented operators only convert without any fallback."""
    for name in ("logistic_regression", "mlp", "lenet", "resnet50", "bert", "gpt2", "vit"):
        manifest = samba_onnx.analyze(cached_onnx(name, "tiny"))
        assert manifest.fallbacks == (), name


def test_a_fallback_names_the_line_of_the_model() -> None:
    manifest = samba_onnx.analyze(
        cached_onnx("lstm", "tiny"), no_legalise=("lstm",), placement="strict"
    )
    reasons = [reason for fallback in manifest.fallbacks for reason in fallback.reasons]
    assert {(reason.op_type, reason.code) for reason in reasons} == {("LSTM", "operator")}
    assert all(reason.location.startswith("lstm.py:") for reason in reasons)
