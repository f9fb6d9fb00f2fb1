from __future__ import annotations

from dataclasses import replace

import onnx
import onnx_ir as ir
from hypothesis import given
from hypothesis import strategies as st

from samba_onnx.passes.targets import load_target
from samba_onnx.passes.timing.launches import (
    ON_CPU,
    Launchable,
    launchable,
    launched,
    with_launches,
)
from samba_onnx.pef.stage_records import SectionTime
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


def test_an_exchange_behind_a_fallback_begins_a_program() -> None:
    """What computed its values ran on the CPU: nothing on the RDU streams into it, and it is launched."""
    half = section("a", units=500)
    assert launched([ON_CPU, EXCHANGE, half, EXCHANGE, half, half], TARGET) == (
        *(False, True, False, False, False, True),
    )
    assert launched([EXCHANGE, half], TARGET) == (True, False)


def test_a_program_may_fill_the_chip() -> None:
    assert TARGET.timing is not None
    units, room = TARGET.timing.compute_units, TARGET.tier("sram").bytes
    part = section("a", units // 2, room // 2)
    rest = section("a", units - units // 2, room - room // 2)
    assert launched([part, EXCHANGE, rest], TARGET) == (True, False, False)
    more = replace(rest, units=rest.units + 1), replace(rest, sram_bytes=rest.sram_bytes + 1)
    assert all(launched([part, EXCHANGE, one], TARGET) == (True, False, True) for one in more)


def test_what_is_not_launched_has_the_rest_of_its_time() -> None:
    time = SectionTime(launch=4.0, compute=2.0, fill=1.0)
    record = replace(detector().sections[0], time=time, seconds=time.seconds)
    untimed = replace(record, time=None)
    own, joined, host = with_launches([record, record, untimed], [True, False, False])
    assert (own, host) == (record, untimed)
    assert joined == replace(record, time=replace(time, launch=0.0), seconds=3.0)


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
    assert not launchable(record, nodes, LOOPED).exchanges


@given(st.lists(st.sampled_from("abc"), max_size=20))
def test_a_looped_schedule_has_never_more_launches(kinds: list[str]) -> None:
    stages = [section(kind) for kind in kinds]
    assert sum(launched(stages, LOOPED)) <= sum(launched(stages, TARGET))
