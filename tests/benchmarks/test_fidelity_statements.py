"""Published statements, computed for narrow programs: against other compilations of them, and by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

import pytest

from benchmarks import fidelity, fidelity_statements
from benchmarks.fidelity_programs import planned
from benchmarks.fidelity_statements import (
    NOT_MODELLED,
    SOURCES,
    Finding,
    Statement,
    bandwidth,
    by_host,
    fusion,
    looping,
    statements,
    table,
    units,
)
from benchmarks.published import PublishedRow, published_figures, published_row
from samba_onnx.passes.timing.schedule_time import run_time
from samba_onnx.pef.manifest import Manifest
from tests.benchmarks.test_fidelity_programs import LLAMA, narrow

RENAMING = ("Reshape", "Transpose")


def token(layers: int = 4) -> PublishedRow:
    sizes: Mapping[str, int | str] = {**LLAMA, "num_hidden_layers": layers, "rows": 16}
    return dataclasses.replace(
        published_row("sn40l/llama/token/llama-3-8b"), sizes=MappingProxyType(sizes), rdus=2
    )


def manifest(row: PublishedRow, target: str = "sn40l", level: str = "o3") -> Manifest:
    return planned(row, target=target, level=level).manifest


def seconds(one: Manifest) -> float:
    return run_time(one, one.graphs[0]).on_rdu


def test_fusion_saves_what_sections_take_apart() -> None:
    apart, fused = manifest(token(), level="o0"), manifest(token())
    assert len(apart.sections) > 2 * len(fused.sections)
    assert fusion(token(), "sn40l") == pytest.approx(seconds(apart) / seconds(fused))
    assert fusion(token(), "sn40l") > 1


def test_launches_by_the_host_are_those_of_a_target_that_has_them() -> None:
    compiled = manifest(token(), "sn40l:host-launch")
    assert by_host(token(), "sn40l") == pytest.approx(
        seconds(compiled) / seconds(manifest(token()))
    )
    assert by_host(token(), "sn40l") > 1


def test_looping_saves_launches_and_nothing_else() -> None:
    each, looped = manifest(token()), manifest(token(), "sn40l:kernel-looping")
    launches = [sum(bool(s.time and s.time.launch) for s in one.sections) for one in (each, looped)]
    assert launches[0] > launches[1]
    timing = each.target.timing
    assert timing is not None
    saved = (launches[0] - launches[1]) * timing.device_launch_seconds
    assert looping(token(), "sn40l") == pytest.approx(1 / (1 - saved / seconds(each)))


def test_a_layer_has_the_bytes_and_the_time_that_one_more_layer_adds() -> None:
    fewer, more = (manifest(token(layers), "sn40l:kernel-looping") for layers in (4, 5))
    moved = [sum(section.bytes for section in one.sections) for one in (fewer, more)]
    added = (moved[1] - moved[0]) / (seconds(more) - seconds(fewer))
    assert bandwidth(token(), "sn40l") == pytest.approx(added / 1.6e12)


def test_units_of_a_layer_are_those_of_its_products_and_other_operators() -> None:
    fewer, more = (manifest(token(layers), "sn40l:kernel-looping") for layers in (4, 5))
    added = [
        sum(
            count * (40 if name in ("MatMul", "Gemm") else 0 if name in RENAMING else 6)
            for section in one.sections
            for name, count in section.operators.items()
        )
        for one in (fewer, more)
    ]
    assert units(token(), "sn40l") == pytest.approx((added[1] - added[0]) / 1040)


def test_a_program_without_layers_has_none() -> None:
    with pytest.raises(ValueError, match="no program is launched again"):
        units(narrow("sn10/gemm/128"), "sn40l")


def test_every_statement_is_computed_or_has_a_reason() -> None:
    names = [figure["id"] for figure in published_figures("statements")]
    assert sorted([*SOURCES, *NOT_MODELLED]) == sorted(names)
    (copy,) = statements("copy")
    assert "0.64 TB/s" in copy.reason
    assert not copy.within
    for source in SOURCES.values():
        assert all(published_row(name) for name in source.rows)


def test_findings_are_within_or_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    gain = Statement("a", "gain", 1.4, 2.0, "x", (Finding("p", 1.4), Finding("q", 2.1)))
    share = Statement("b", "share", 0.9, 0.9, "share", (Finding("p", 0.75),))
    none = Statement("c", "none", 1, 1, "x", reason="nothing of it")
    assert [one.within for one in (gain, share, none)] == [False, True, False]
    lines = table([gain, share, none]).splitlines()
    assert lines[2:6] == [
        "| a: gain | 1.4 to 2, x | p | 1.4 | within |",
        "| | | q | 2.1 | **outside** |",
        "| b: share | 0.9, share | p | 0.75 | within |",
        "| c: none | 1, x | | not computed: nothing of it | |",
    ]
    assert lines[7].endswith("1 of 2; not computed: 1")
    sources = {name: dataclasses.replace(one, rows=()) for name, one in SOURCES.items()}
    monkeypatch.setattr(fidelity_statements, "SOURCES", sources)
    assert [one.id for one in statements("layer/")] == ["layer/units", "layer/bandwidth"]


def test_the_page_has_places_for_both_tables() -> None:
    page = fidelity.PAGE.read_text(encoding="utf-8")
    for begin, end in (
        (fidelity.BEGIN, fidelity.END),
        (fidelity.BEGIN_STATEMENTS, fidelity.END_STATEMENTS),
    ):
        changed = fidelity.placed(page, begin, end, "text")
        assert f"{begin}\ntext\n{end}" in changed
        assert changed.partition(begin)[0] == page.partition(begin)[0]
        assert changed.partition(end)[2] == page.partition(end)[2]
    with pytest.raises(ValueError, match="must have"):
        fidelity.placed(page, "<!-- nowhere -->", fidelity.END, "text")
