"""Every part of a section's time by hand, on figures that are powers of two, and what must hold of any."""

from __future__ import annotations

import itertools
from dataclasses import replace

import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samba_onnx.passes.targets import load_target
from samba_onnx.passes.timing.matrix_products import product_size
from samba_onnx.passes.timing.section_terms import section_terms
from samba_onnx.passes.timing.traffic import tier_seconds
from samba_onnx.pef.stage_records import SectionTime, Term
from samba_onnx.pef.target_summary import LaunchOrigin, TargetSummary, TimingFigures
from tests.passes.planning.plan_samples import figures, parse

TIMING = TimingFigures(
    host_launch_seconds=2.0**-8,
    device_launch_seconds=2.0**-12,
    product_efficiency=0.5,
    fused_efficiency=0.25,
    tuned_efficiency=0.375,
    streamed_share=0.75,
    vector_efficiency=2.0**-6,
    fill_seconds=2.0**-20,
    granule=32,
    compute_units=64,
    product_units=8,
    operator_units=1,
    tile_bytes=2**20,
    wide_bytes=2**24,
)
ONE = "g (float[256,256] a, float[256,256] b) => (float[256,256] y) { y = MatMul (a, b) }"
TWO = """g (float[256,256] a, float[256,256] b) => (float[256,256] y) <float[256,256] c> {
    c = MatMul (a, b)
    y = MatMul (c, b)
}"""
WORK = 2.0 * 256**3
PEAK = 2.0**40


def device(sram: int = 1 << 30, **changes: object) -> TargetSummary:
    known = figures(sram=sram)
    tiers = tuple(
        replace(tier, wide_bytes_per_second=2.0**36, narrow_bytes_per_second=2.0**34)
        if tier.name == "hbm"
        else tier
        for tier in known.tiers
    )
    return replace(known, tiers=tiers, timing=replace(TIMING, **changes))


def time(text: str, target: TargetSummary, sizes: tuple[int, ...] = ()) -> SectionTime:
    return section_terms(list(parse(text).graph), {"hbm": sizes}, target).time(target)


def test_one_product_has_the_chip_to_itself() -> None:
    whole = time(ONE, device())
    assert whole.compute == WORK / PEAK / 0.5
    assert (whole.launch, whole.fill) == (2.0**-12, 2.0**-20)
    assert whole.on_chip == 3 * 4 * 256**2 / 2.0**50
    assert whole.seconds == 2.0**-12 + WORK / PEAK / 0.5 + 2.0**-20


def test_operands_that_exceed_the_chip_are_computed_in_pieces() -> None:
    assert time(ONE, device(sram=2**19)).compute == WORK / PEAK / 0.5 / 0.75
    assert time(ONE, device(sram=3 * 4 * 256**2)).compute == WORK / PEAK / 0.5


def test_what_has_no_operands_is_one_operator_and_unknown_sizes_count_nothing() -> None:
    text = "g () => (float[4] y) { y = RandomNormal <shape = [4]> () }"
    assert time(text, device()).fill == 2.0**-20
    unknown = "g (float[n] a) => (float[n] y) { y = Relu (a) }"
    assert time(unknown, device()).on_chip == 0


def test_products_that_share_a_section_wait_for_the_slowest() -> None:
    assert time(TWO, device()).compute == 2 * WORK / PEAK / 0.25
    assert time(TWO, device(tuned=True)).compute == 2 * WORK / PEAK / 0.375
    assert time(TWO, device()).fill == 2 * 2.0**-20


def test_a_product_beside_other_operators_shares_the_chip() -> None:
    text = """g (float[256,256] a, float[256,256] b) => (float[256,256] y) <float[256,256] c> {
        c = MatMul (a, b)
        y = Relu (c)
    }"""
    assert time(text, device()).compute == WORK / PEAK / 0.25 + 256**2 / PEAK * 2**6
    # Other names of its elements are no operator.
    renamed = text.replace("Relu", "Transpose")
    assert time(renamed, device()).compute == WORK / PEAK / 0.5


def test_a_product_is_rounded_up_to_granules_and_to_the_units_of_the_device() -> None:
    small = "g (float[33,32] a, float[32,32] b) => (float[33,32] y) { y = MatMul (a, b) }"
    (node,) = parse(small).graph
    size = product_size(node)
    assert size is not None
    assert size.granules(32) == 2
    # Two granules would keep two of 64 units busy; one element after the other is quicker here.
    flops = 2 * 33 * 32 * 32
    assert size.filled_flops(TIMING) == 64 * 2 * 32**3
    assert time(small, device()).compute == flops / PEAK * 2**6
    slow = device(vector_efficiency=2.0**-12)
    assert time(small, slow).compute == 64 * 2 * 32**3 / PEAK / 0.5


def test_other_operators_go_through_elements() -> None:
    text = "g (float[1024] a) => (float[1024] y) { y = Relu (a) }"
    assert time(text, device()).compute == 1024 / PEAK * 2**6


def test_the_three_largest_narrow_values_share_a_rate_and_all_values_another() -> None:
    wide = device()
    assert time(ONE, wide, (2**24, 2**20)).off_chip == (2**24 + 2**20) / 2**36
    assert time(ONE, wide, (2**20,)).off_chip == 2.0**-14
    assert time(ONE, wide, (2**20,) * 3).off_chip == 3 * 2.0**-14
    # More of them are in other channels, until these are as busy as all together.
    assert time(ONE, wide, (2**20,) * 12).off_chip == 3 * 2.0**-14
    assert time(ONE, wide, (2**20,) * 24).off_chip == 24 * 2.0**20 / 2**36
    # A value in all channels does not make the others quicker.
    assert time(ONE, wide, (2**24, *[2**23] * 3)).off_chip == 3 * 2.0**23 / 2**34
    assert time(ONE, figures(), (2**24,)).off_chip == 2.0**-16


VALUES = st.lists(st.integers(0, 2 * TIMING.wide_bytes), max_size=8)
TIERS = st.sampled_from([load_target(name).summary for name in ("sn10", "sn30:4tiles", "sn40l")])


@given(target=TIERS, sizes=VALUES, more=st.integers(0, 2 * TIMING.wide_bytes))
def test_one_more_value_never_takes_less_time(
    target: TargetSummary, sizes: list[int], more: int
) -> None:
    for tier in target.tiers:
        before = tier_seconds(tier, sizes, TIMING.wide_bytes)
        assert tier_seconds(tier, [*sizes, more], TIMING.wide_bytes) >= before
        assert tier_seconds(tier, [*reversed(sizes)], TIMING.wide_bytes) == before


@given(target=TIERS, sizes=VALUES, place=st.integers(0, 7), more=st.integers(0, 2**24))
def test_more_bytes_of_a_value_never_take_less_time(
    target: TargetSummary, sizes: list[int], place: int, more: int
) -> None:
    """But for the one slope that is published, where they make it lie in more channels."""
    if place >= len(sizes):
        return
    larger = [*sizes]
    larger[place] += more
    if sizes[place] < TIMING.wide_bytes and larger[place] > 0.8 * TIMING.wide_bytes:
        return
    for tier in target.tiers:
        before = tier_seconds(tier, sizes, TIMING.wide_bytes)
        assert tier_seconds(tier, larger, TIMING.wide_bytes) >= before


def test_what_only_renames_elements_takes_no_time() -> None:
    text = "g (float[8,4] a) => (float[4,8] y) { y = Transpose (a) }"
    assert time(text, device(), (2**20, 2**20)) == SectionTime()
    assert time(text, figures(), (2**20,)).seconds > 0


def test_a_launch_comes_from_where_it_is_said_to() -> None:
    assert time(ONE, device(launch=LaunchOrigin.HOST)).launch == 2.0**-8
    assert time(ONE, figures()) == SectionTime(compute=WORK / PEAK, on_chip=0.0, off_chip=0.0)


def test_the_dominant_term_is_the_longest() -> None:
    assert SectionTime(launch=3, compute=2, off_chip=1).dominant is Term.LAUNCH
    assert SectionTime(launch=1, compute=2, off_chip=3).dominant is Term.OFF_CHIP
    assert SectionTime().dominant is Term.LAUNCH


SIZES = st.integers(min_value=1, max_value=400)


@settings(max_examples=60, deadline=None)
@given(rows=SIZES, depth=SIZES, columns=SIZES, more=SIZES, bytes_=st.integers(0, 2**26))
def test_more_work_never_takes_less_time(
    rows: int, depth: int, columns: int, more: int, bytes_: int
) -> None:
    def product(rows: int, depth: int, columns: int) -> str:
        sizes = f"float[{rows},{depth}] a, float[{depth},{columns}] b"
        return f"g ({sizes}) => (float[{rows},{columns}] y) {{ y = MatMul (a, b) }}"

    base = time(product(rows, depth, columns), device(), (bytes_,)).seconds
    assert time(product(rows + more, depth, columns), device(), (bytes_,)).seconds >= base
    assert time(product(rows, depth + more, columns), device(), (bytes_,)).seconds >= base
    assert time(product(rows, depth, columns + more), device(), (bytes_,)).seconds >= base
    assert time(product(rows, depth, columns), device(), (2 * bytes_,)).seconds >= base or (
        bytes_ < TIMING.wide_bytes and 2 * bytes_ > 0.8 * TIMING.wide_bytes
    )


def test_a_value_that_becomes_wide_is_read_in_less_time() -> None:
    """The one slope down: it lies in all channels then, as it is published."""
    narrow, wide = (time(ONE, device(), (size,)).off_chip for size in (2**23, 2**24))
    assert wide < narrow


@settings(max_examples=200)
@given(
    target=TIERS, size=st.integers(1000, 2**31), others=st.lists(st.integers(0, 2**31), max_size=3)
)
def test_time_has_no_cliff_over_the_size_of_a_value(
    target: TargetSummary, size: int, others: list[int]
) -> None:
    assert target.timing is not None
    for tier in target.tiers:
        before = tier_seconds(tier, [size, *others], target.timing.wide_bytes)
        after = tier_seconds(tier, [size + size // 1000, *others], target.timing.wide_bytes)
        assert after == pytest.approx(before, rel=0.02)


def test_no_published_size_is_next_to_a_cliff() -> None:
    """One element more made a ReLU three times faster, and a product of 4 % more rows took twice as long."""
    target = load_target("sn10").summary
    for elements in (240_000_000, 300_000_000):
        text = "g (bfloat16[{0}] a) => (bfloat16[{0}] y) {{ y = Relu (a) }}"
        one, more = (
            time_of_values(text.format(n), target, (2 * n, 2 * n)) for n in (elements, elements + 1)
        )
        assert more == pytest.approx(one, rel=1e-6)
    rows = range(6976, 7296, 8)
    text = "g (bfloat16[{0},{0}] a, bfloat16[{0},{0}] b) => (bfloat16[{0},{0}] y) {{ y = MatMul (a, b) }}"
    times = [time_of_values(text.format(n), target, (2 * n * n,) * 3) for n in rows]
    assert times == sorted(times)
    assert all(b / a < 1.12 for a, b in itertools.pairwise(times))
    assert times[-1] / times[0] > 1.3


def test_a_mapping_by_hand_moves_a_part_of_the_bytes() -> None:
    by_hand = device(tuned=True, tuned_traffic=0.5)
    assert time(ONE, by_hand, (2**20,)).off_chip == 2.0**20 / 2**34 / 2
    assert time(ONE, device(tuned_traffic=0.5), (2**20,)).off_chip == 2.0**20 / 2**34


def time_of_values(text: str, target: TargetSummary, sizes: tuple[int, ...]) -> float:
    return section_terms(list(parse(text).graph), {"ddr": sizes}, target).time(target).seconds


# 2**20 multiply-adds on a device of 2**40 operations a second.
PRODUCT = "g (float[64,256] a, float[256,64] b) => (float[64,64] y) { y = MatMul (a, b) }"


def seconds(nodes: list[ir.Node], target: TargetSummary) -> float:
    return section_terms(nodes, {}, target).time(target).seconds


def test_seconds_are_the_longer_of_arithmetic_and_traffic() -> None:
    nodes = list(parse(PRODUCT).graph)
    busy = section_terms(nodes, {"hbm": [2**20]}, figures())
    assert (busy.flops, busy.bytes) == (2**21, 2**20)
    assert busy.time(figures()).seconds == 2.0**-19
    waiting = section_terms(nodes, {"hbm": [2**22], "ddr": [2**20]}, figures())
    assert waiting.bytes == 5 * 2**20
    assert waiting.time(figures()).seconds == 2.0**-18 + 2.0**-10


def test_each_data_type_has_its_own_peak() -> None:
    half = list(parse(PRODUCT.replace("float[", "bfloat16[")).graph)
    assert seconds(half, figures()) == 2.0**-20
    # No figure for int32: the slowest one counts.
    whole = list(parse(PRODUCT.replace("float[", "int32[")).graph)
    assert seconds(whole, figures()) == 2.0**-19
    assert seconds([], figures()) == 0


def test_arithmetic_in_several_data_types_adds_up() -> None:
    nodes = [*parse(PRODUCT).graph, *parse(PRODUCT.replace("float[", "bfloat16[")).graph]
    assert seconds(nodes, figures()) == 2.0**-19 + 2.0**-20


def test_arithmetic_takes_no_time_on_a_device_without_a_peak_and_long_on_a_slow_one() -> None:
    nodes = list(parse(PRODUCT).graph)
    for peaks in ({}, {"float32": 0.0}):
        assert seconds(nodes, replace(figures(), peak_flops=peaks)) == 0
    slow = replace(figures(), peak_flops={"float32": 1.0})
    assert seconds(nodes, slow) == 2**21
