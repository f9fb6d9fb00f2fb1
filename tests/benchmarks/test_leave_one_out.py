"""Rows left out of the fit: what a row says of itself is not in what is said of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.fidelity_programs import planned
from benchmarks.fidelity_terms import program_terms
from benchmarks.leave_one_out import Compiled, leave_one_out, weight_of_rows
from benchmarks.published import published_row

NAMES = (
    "sn10/gemm/128", "sn10/gemm/1024", "sn10/gemm/4096", "sn10/gemm/6016", "sn10/relu/100000",
    "sn10/relu/100000000", "sn10/relu/1000000000", "sn10/conv2d/320to1280/1", "sn10/conv2d/320to1280/2",
)  # fmt: skip


@pytest.fixture(scope="module")
def compiled() -> list[Compiled]:
    rows = [published_row(name) for name in NAMES]
    return [
        Compiled(row, plan.manifest.target, program_terms(plan))
        for row, plan in ((row, planned(row)) for row in rows)
    ]


def test_a_row_that_is_twice_as_long_is_not_believed_where_it_is_left_out(
    compiled: list[Compiled],
) -> None:
    before = leave_one_out(compiled)
    slow = [
        replace(one, row=replace(one.row, value=one.row.value / 2))
        if one.row.id == "sn10/relu/100000000"
        else one
        for one in compiled
    ]
    after = leave_one_out(slow)
    name = "sn10/relu/100000000"
    assert after[name] == pytest.approx(before[name] / 2, rel=1e-6)
    # Others at the same rate of memory are predicted by a fit that has seen it.
    assert after["sn10/gemm/4096"] > 1.1 * before["sn10/gemm/4096"]


def test_batches_of_one_convolution_are_left_out_together(compiled: list[Compiled]) -> None:
    programs = {one.row.id: one.program for one in compiled}
    assert programs["sn10/conv2d/320to1280/1"] == programs["sn10/conv2d/320to1280/2"]
    assert len(set(programs.values())) == len(NAMES) - 1
    alone = [one for one in compiled if one.row.program != "conv2d"]
    (two,) = [one for one in compiled if one.row.id.endswith("1280/2")]
    with_both = leave_one_out(compiled)
    assert with_both[two.row.id] == pytest.approx(
        leave_one_out([*alone, two])[two.row.id], rel=0.01
    )


def test_what_constants_rest_on(compiled: list[Compiled]) -> None:
    rests = weight_of_rows(compiled)
    _, first, share = rests["sn10", "timing.map_seconds"]
    assert first.startswith("sn10/conv2d/320to1280")
    assert 0 < share <= 1
    assert rests["sn10", "timing.product_efficiency"][0] >= 1
    # No row of these is of another device.
    assert rests["sn30", "timing.fused_efficiency"][0] == 0
