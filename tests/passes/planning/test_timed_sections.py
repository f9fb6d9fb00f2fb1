"""Sections of a device of which launches, bandwidths and compute units are known."""

from __future__ import annotations

import dataclasses
from typing import Any

import onnx_ir as ir

from samba_onnx.passes.planning.fusion.patterns import (
    FusionRule,
    FusionRules,
    Pattern,
    PatternEntry,
)
from samba_onnx.passes.planning.partitioning import Group, Home
from samba_onnx.passes.planning.sectioning import cut, sram_bytes
from tests.passes.planning.plan_samples import ToyTarget, figures, parse
from tests.passes.timing.test_section_terms import TIMING


def timed(sram: int = 1 << 40, **changes: Any) -> Any:
    timing = dataclasses.replace(TIMING, **changes)
    return ToyTarget(dataclasses.replace(figures(sram=sram), timing=timing))


def chain(*sizes: int) -> list[Group]:
    """Return Relus, one after the other, whose results have so many elements."""
    value = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([4]))
    nodes = []
    for size in sizes:
        nodes.append(ir.node("Relu", [value]))
        value = nodes[-1].outputs[0]
        value.type, value.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([size])
    return [Group(Home.RDU, tuple(nodes))]


def lengths(groups: list[Group], target: Any, level: str = "o3") -> list[int]:
    return [len(group.nodes) for group in cut(groups, target, level)]


def test_a_section_has_no_more_operators_than_there_are_units() -> None:
    assert lengths(chain(*[4] * 5), timed(compute_units=5)) == [5]
    assert len(lengths(chain(*[4] * 5), timed(compute_units=4))) == 2
    assert lengths(chain(4, 4, 8, 4, 8, 4), timed(compute_units=2)) == [2, 2, 2]
    assert lengths(chain(8, 8, 4, 8, 8), timed(compute_units=3)) == [3, 2]
    assert lengths(chain(*[4] * 3), timed(compute_units=2, operator_units=2)) == [1, 1, 1]


def test_one_more_launch_is_weighed_against_what_is_written_and_read_again() -> None:
    """A launch takes as long as 2**28 bytes outside; a value that is cut goes there and back."""
    launch = 2**26
    target = timed(compute_units=4)
    for share, expected in ((0.4, 2), (0.6, 3)):
        large = int(share * launch)
        found = lengths(chain(4, large, large, large, 4, 4), target)
        assert len(found) == expected
        assert max(found) == 4
    assert lengths(chain(4, launch, launch, launch, 4, 4), target) == [1, 4, 1]


def test_a_product_keeps_its_smallest_operand_and_of_the_others_a_tile_is_there() -> None:
    product = "g (float[64,8] x, float[8,4] w) => (float[64,4] y) { y = MatMul (x, w) }"
    nodes = tuple(parse(product).graph)
    assert sram_bytes(nodes, timed(tile_bytes=100)) == 8 * 4 * 4 + 2 * 100
    assert sram_bytes(nodes, timed()) == sum((64 * 8, 8 * 4, 64 * 4)) * 4
    assert sram_bytes(nodes, ToyTarget(figures())) == sum((64 * 8, 8 * 4, 64 * 4)) * 4  # type: ignore[arg-type]


def test_of_a_table_that_is_a_weight_a_tile_is_on_the_chip() -> None:
    text = "g (int64[3] i) => (float[3,4] y) <float[6,4] t> { y = Gather (t, i) }"
    model = parse(text)
    (node,) = model.graph
    table = node.inputs[0]
    assert table is not None
    table.const_value = ir.tensor([[0.0] * 4] * 6, ir.DataType.FLOAT)
    model.graph.initializers["t"] = table
    assert sram_bytes((node,), timed(tile_bytes=50)) == 50 + 3 * 8 + 3 * 4 * 4


def test_unknown_sizes_take_no_memory() -> None:
    (node,) = parse("g (float[n] a) => (float[n] y) { y = Relu (a) }").graph
    assert sram_bytes((node,), timed()) == 0


def test_what_a_rule_joins_is_cut_where_it_does_not_fit() -> None:
    pattern = Pattern({"a": PatternEntry(("Relu",), ("b",)), "b": PatternEntry(("Relu",))})
    rules = FusionRules((FusionRule("pair", 1, (pattern,)),))

    def pieces(target: Any) -> list[int]:
        return [len(group.nodes) for group in cut(chain(4, 4), target, "o1", rules)]

    assert pieces(timed(compute_units=2)) == [2]
    assert pieces(timed(compute_units=1)) == [1, 1]
    assert pieces(timed(sram=32)) == [2]
    assert pieces(timed(sram=31)) == [1, 1]
    assert pieces(ToyTarget(figures(sram=32))) == [2]
