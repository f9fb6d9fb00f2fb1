"""Level o1 end to end: fewer sections than at o0, no other number, and a ledger that equals the plan."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import samba_onnx
from models import MODELS
from models.cache import cached_onnx
from samba_onnx.comparing.sample_inputs import input_specs, pef_ranges, random_inputs
from samba_onnx.comparing.verification import compare, run_original
from samba_onnx.errors import UsageError
from samba_onnx.pef.log import render_log
from samba_onnx.report import Report
from tests.rows import others_slow


@pytest.mark.parametrize("name", others_slow(sorted(MODELS), ("gpt2", "lenet", "llama", "unet")))
def test_sections_are_fewer_than_operators_and_more_than_at_o3(name: str) -> None:
    counts = [
        len(samba_onnx.analyze(cached_onnx(name, "tiny"), level=level).sections)
        for level in ("o3", "o1", "o0")
    ]
    assert counts == sorted(counts)


@pytest.mark.parametrize("name", ["gpt2", "resnet50"])
def test_numbers_and_accounting(name: str, tmp_path: Path) -> None:
    """The sections of all levels compute the same; those of o1 are the rules'."""
    path = cached_onnx(name, "tiny")
    results = []
    for level in ("o0", "o1"):
        output = tmp_path / f"{level}.pef"
        with samba_onnx.convert(path, output, level=level, sample=False, trial=False) as pef:
            inputs = random_inputs(input_specs(pef), seed=1, ranges=pef_ranges(pef))
            with samba_onnx.Device(pef, threads=1) as device:
                results.append(device.run(inputs))
                ledger = tuple(device.ledger.transfers)
            graph = pef.manifest.graphs[0]
            assert ledger == graph.load_transfers + graph.run_transfers
            expected = run_original(path, inputs, threads=1)
            assert compare(results[-1], expected, against="original").passed
            manifest = pef.manifest
    assert manifest.level == "o1"
    fused = [section for section in manifest.sections if section.rule]
    assert sum(section.nodes for section in fused) > 0.8 * sum(s.nodes for s in manifest.sections)
    assert all(section.nodes == 1 for section in manifest.sections if not section.rule)
    for key, value in results[0].items():
        # The same operators on the same numbers: what a section is called changes none of them, but how
        # onnxruntime fuses the operators of one may change the last bits of a float32.
        np.testing.assert_allclose(results[1][key], value, rtol=1e-5, atol=1e-5)


def test_the_report_says_what_rules_matched(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text("""
mlp:
    priority: 1
    heuristic: SAFE_GEMM
    pattern:
        up: {op_type: linear, child: act}
        act: {op_type: [relu, gelu, tanh]}
conv: {priority: 2, pattern: {conv: {op_type: conv3d, child: pool}, pool: {op_type: sigmoid}}}
""")
    manifest = samba_onnx.analyze(
        cached_onnx("lenet", "tiny"), level="o1", optimization_rules=tmp_path / "rules.yaml"
    )
    report = Report.from_manifest(manifest)
    unmatched, mlp = report.fusion
    assert (unmatched.rule, unmatched.sections, unmatched.nodes) == ("conv", 0, 0)
    assert (mlp.rule, mlp.source, mlp.sections, mlp.nodes) == ("mlp", "rules.yaml", 2, 5)
    assert mlp.heuristic == "SAFE_GEMM"
    assert any("SAFE_GEMM" in note and "no effect" in note for note in report.notes)
    named = [section for section in report.sections if section.rule == "mlp"]
    assert [section.name.endswith(":mlp") for section in named] == [True, True]
    log = render_log(manifest)
    assert len(re.findall(r"^    rule       mlp$", log, re.MULTILINE)) == 2
    with_defaults = samba_onnx.analyze(
        cached_onnx("lenet", "tiny"),
        level="o1",
        optimization_rules=tmp_path / "rules.yaml",
        default_rules=True,
    )
    assert {s.rule for s in with_defaults.sections} >= {"mlp", "conv_block"}


def test_rules_are_for_o1(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text("r: {priority: 1, pattern: {a: {op_type: relu}}}")
    with pytest.raises(UsageError, match="stated for level o3: they count at level o1"):
        samba_onnx.analyze(cached_onnx("mlp", "tiny"), optimization_rules=tmp_path / "rules.yaml")


def test_manifests_without_fusion_are_as_they_were() -> None:
    manifest = samba_onnx.analyze(cached_onnx("mlp", "tiny"))
    assert manifest.fusion_rules == ()
    assert Report.from_manifest(manifest).fusion == ()


def test_projections_stay_apart_for_rules_that_name_them(tmp_path: Path) -> None:
    """Without such a rule they are one product, which no pattern of three matches."""
    (tmp_path / "rules.yaml").write_text("""
qkv:
    priority: 5
    pattern:
        norm: {op_type: rms_norm, children: [query, key, value]}
        query: {op_type: linear}
        key: {op_type: linear}
        value: {op_type: linear}
""")
    path = cached_onnx("llama", "tiny")
    own = samba_onnx.analyze(path, level="o1", optimization_rules=tmp_path / "rules.yaml")
    fused = [section.operators["MatMul"] for section in own.sections if section.rule]
    assert fused == [3, 3]
    default = samba_onnx.analyze(path, level="o1")
    assert sum(s.operators.get("Split", 0) for s in default.sections) == 2
    assert not any("Split" in section.operators for section in own.sections)
