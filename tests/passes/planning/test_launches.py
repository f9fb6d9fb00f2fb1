from __future__ import annotations

from dataclasses import replace

import onnx
import onnx_ir as ir
from hypothesis import given
from hypothesis import strategies as st

from samba_onnx.passes.planning.launches import ON_CPU, Launchable, launchable, launched
from samba_onnx.passes.targets import load_target
from tests.report.samples import detector

TARGET = load_target("sn40l").summary
LOOPED = load_target("sn40l:kernel-looping").summary


def section(kind: str, units: int = 600, sram: int = 1000) -> Launchable:
    return Launchable(True, False, units, sram, kind)


EXCHANGE = replace(section("sum", 0, 0), exchanges=True)


def test_every_program_is_launched() -> None:
    assert launched([section("a"), ON_CPU, section("a"), section("a")], TARGET) == (
        True,
        False,
        True,
        True,
    )


def test_what_an_exchange_joins_is_one_program_where_it_fits() -> None:
    half = section("a", units=500)
    assert launched([half, EXCHANGE, half, EXCHANGE, half], TARGET) == (
        True,
        False,
        False,
        False,
        True,
    )
    large = replace(half, sram_bytes=300_000_000)
    assert launched([large, EXCHANGE, large], TARGET) == (True, False, True)


def test_equal_programs_are_looped_alone_or_in_turns() -> None:
    turns = [section(kind) for kind in "abababcabab"]
    assert launched(turns, LOOPED) == tuple(kind in "AB" or kind == "c" for kind in "ABababcabab")
    assert all(launched(turns, TARGET))
    far = [section(kind) for kind in "abcda"]
    assert all(launched(far, LOOPED))


def test_a_fallback_ends_a_loop() -> None:
    loop = [section("a"), ON_CPU, section("a"), section("b"), section("a")]
    assert launched(loop, LOOPED) == (True, False, True, True, False)


def test_products_of_other_sizes_are_other_programs() -> None:
    """The two of a transformer's block: as many operations, and as many bytes."""
    text = """<ir_version: 9, opset_import: ["": 20]>
    g (float[1,64] x, float[64,256] up, float[256,64] down) => (float[1,64] y)
    { wide = MatMul(x, up) y = MatMul(wide, down) }"""
    nodes = ir.serde.deserialize_model(onnx.parser.parse_model(text)).graph
    for node in nodes:
        node.outputs[0].dtype = ir.DataType.FLOAT
    nodes[0].outputs[0].shape = ir.Shape((1, 256))
    record = detector().sections[0]
    kinds = [launchable(record, [node], LOOPED).kind for node in nodes]
    assert kinds[0] != kinds[1]


@given(st.lists(st.sampled_from("abc"), max_size=20))
def test_a_looped_schedule_has_never_more_launches(kinds: list[str]) -> None:
    stages = [section(kind) for kind in kinds]
    assert sum(launched(stages, LOOPED)) <= sum(launched(stages, TARGET))
