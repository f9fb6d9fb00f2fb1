"""The fit of constants: it finds those that rows were computed with, and terms add up to what plans say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from benchmarks.fidelity_fit import (
    CONSTANTS,
    FOLDER,
    SHARED,
    Constant,
    fitted,
    published_seconds,
    stated,
    with_constants,
)
from benchmarks.fidelity_programs import planned
from benchmarks.fidelity_terms import program_terms
from benchmarks.published import published_row
from samba_onnx.passes.targets import load_target
from samba_onnx.passes.timing.schedule_time import run_time
from samba_onnx.pef.manifest import Cause
from samba_onnx.pef.target_summary import TargetSummary
from tests.benchmarks.test_fidelity_programs import narrow

ROWS = ("sn10/gemm/128", "sn10/gemm/1024", "sn10/gemm/6016", "sn10/relu/1000000000")


@pytest.mark.parametrize(
    ("name", "rdus", "profile"),
    [("sn30/gpt2/o3/1600x6", 1, "sn30:2tiles"), ("sn30/llama-2-7b/token", 2, "sn40l")],
)
def test_terms_take_as_long_as_the_plan_says(name: str, rdus: int, profile: str) -> None:
    plan = planned(replace(narrow(name), rdus=rdus, profile=profile))
    whole = run_time(plan.manifest, plan.manifest.graphs[0])
    terms = program_terms(plan)
    assert terms.seconds(plan.manifest.target) == pytest.approx(whole.on_rdu, 1e-9)
    exchanged = sum(s.flops for s in plan.manifest.sections if s.collective is not None)
    assert terms.flops + exchanged == sum(s.flops for s in plan.manifest.sections)


RING = """
extends = "sn40l"
name = "ring"
[hardware.rdu_link_latency_seconds]
value = 1e-12
evidence = "assumed"
note = "so little that every sum goes round a ring"
"""


@pytest.mark.parametrize(("rdus", "is_ring"), [(2, False), (4, True)])
def test_terms_of_a_prompt_stream_as_the_plan_says(
    rdus: int, is_ring: bool, tmp_path: Path
) -> None:
    row = narrow("sn30/llama-2-7b/prompt")
    sizes = MappingProxyType({**row.sizes, "tokens": 64, "hidden_size": 64})
    profile = "sn40l"
    if is_ring:
        profile = str(tmp_path / "ring.toml")
        Path(profile).write_text(RING)
    plan = planned(replace(row, rdus=rdus, profile=profile, level="o3", sizes=sizes))
    steps = {s.id: s.collective.steps for s in plan.manifest.sections if s.collective is not None}
    assert (max(steps.values()) > 1) is is_ring
    stages = {call.id: call.stage for call in plan.manifest.graphs[0].calls}
    assert any(section.streaming for section in plan.manifest.sections)
    terms = program_terms(plan)
    for target in (plan.manifest.target, slow_links(plan.manifest.target, 1e-3)):
        manifest = replace(plan.manifest, target=target)
        sent = [
            replace(c, seconds=target.exchange_seconds(c.bytes, steps[stages[c.call or 0]]))
            if c.cause is Cause.COLLECTIVE
            else c
            for c in manifest.graphs[0].run_transfers
        ]
        whole = run_time(manifest, replace(manifest.graphs[0], run_transfers=tuple(sent)))
        assert terms.seconds(target) == pytest.approx(whole.on_rdu, 1e-9)


def slow_links(target: TargetSummary, latency: float) -> TargetSummary:
    rate = target.rdu_link_bytes_per_second / 50
    return replace(target, rdu_link_bytes_per_second=rate, rdu_link_latency_seconds=latency)


def test_the_fit_finds_the_constants_that_times_were_made_with() -> None:
    true = {
        "timing.device_launch_seconds": 40e-6,
        "tiers.ddr.wide_bytes_per_second": 60e9,
        "timing.product_efficiency": 0.1,
    }
    rows = []
    for name in ROWS:
        row = published_row(name)
        plan = planned(row)
        terms = program_terms(plan)
        seconds = terms.seconds(with_constants(plan.manifest.target, true))
        rate = row.value * published_seconds(row, terms.flops) / seconds
        rows.append(replace(row, value=rate))
    constants = [Constant((path,), v / 2, 10.0, v / 5, v * 5, "") for path, v in true.items()]
    assert fitted(rows, constants, {}) == pytest.approx(true, rel=0.01)


def test_a_prior_holds_where_rows_say_nothing() -> None:
    (row,) = [replace(published_row("sn10/gemm/128"))]
    constant = Constant(("timing.streamed_share",), 0.4, 0.1, 0.1, 1.0, "")
    assert fitted([row], [constant], {}) == {"timing.streamed_share": 0.4}


@pytest.mark.parametrize("target", CONSTANTS)
def test_files_have_every_constant_of_the_fit(target: str) -> None:
    text = (FOLDER / f"{target}.toml").read_text(encoding="utf-8")
    summary = load_target(target).summary
    paths = [path for constant in CONSTANTS[target] for path in constant.paths]
    for path in (*paths, *SHARED[target]):
        changed = stated(text, path, 0.123, "derived", "why")
        before, after = text.splitlines(), changed.splitlines()
        (line,) = [new for old, new in zip(before, after, strict=True) if old != new]
        assert line == (
            f'{path.rpartition(".")[2]} = {{ value = 0.123, evidence = "derived", note = "why" }}'
        )
        assert with_constants(summary, {path: 0.123}) != summary
    for constant in CONSTANTS[target]:
        assert constant.low <= constant.prior <= constant.high
    with pytest.raises(KeyError, match="nowhere"):
        stated(text, "timing.nowhere", 1.0, "derived", "")
