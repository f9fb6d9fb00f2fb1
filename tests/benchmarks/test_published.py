"""Published figures: every row has its half by the rule, and a builder that takes its sizes."""

from __future__ import annotations

import inspect

from benchmarks.fidelity_programs import BUILDERS
from benchmarks.published import published_figures, published_row, published_rows


def test_every_judged_row_has_something_that_no_fitted_row_has() -> None:
    fitted = [row for row in published_rows() if row.half == "fitted"]
    judged = [row for row in published_rows() if row.half == "judged"]
    assert {row.half for row in published_rows()} == {"fitted", "judged"}
    programs = {(row.program, row.profile, row.level, *sorted(row.sizes.items())) for row in fitted}
    for row in judged:
        program = (row.program, row.profile, row.level, *sorted(row.sizes.items()))
        assert program not in programs or row.replicas > 1 or "projection" in row.series
    widths = {row.sizes["width"] for row in fitted if row.program == "gpt2"}
    assert widths == {1600}
    assert {row.sizes["model"] for row in fitted if "llama" in row.program} == {"llama-3-8b"}
    # Large exchanges are in prompts alone: without one the link's rate would follow from small ones.
    prompts = [row.id for row in fitted if row.program == "llama_prompt"]
    assert prompts == ["sn40l/llama-3-8b/prompt"]


def test_figures_and_sizes_of_rows() -> None:
    row = published_row("sn30/gpt2/o3/1600x24")
    assert (row.value, row.unit, row.kind, row.level) == (1934, "ms", "T", "o3")
    assert row.sizes == {"width": 1600, "layers": 24, "heads": 25}
    assert published_row("sn30/gpt2/o0/1600x42").value == 11130
    assert published_row("sn40l/llama/token/llama-3-70b").rdus == 8
    for row in published_rows():
        inspect.signature(BUILDERS[row.program]).bind(**row.sizes)
        assert row.low is None or row.low <= row.value <= (row.high or 0)
        assert row.kind in "TPVD"
        assert row.source


def test_statements_and_constants_have_ranges() -> None:
    for table, count in (("statements", 8), ("constants", 14)):
        figures = published_figures(table)
        assert len(figures) == count
        assert all(one["low"] <= one["high"] and one["unit"] for one in figures)
