"""Spatial mapping is planned for graphs that are on the RDU in whole, and fit on its chip at once."""

from __future__ import annotations

import contextlib
from typing import Any

import onnx_ir as ir
import pytest

from samba_onnx.errors import OutOfDeviceMemoryError, UsageError
from samba_onnx.passes.planning.partitioning import partition
from samba_onnx.passes.planning.plan import GraphPlan, plan
from samba_onnx.passes.planning.roles import Roles
from samba_onnx.passes.targets import load_target
from samba_onnx.program.kinds import SymbolKind
from tests.passes.planning.plan_samples import LATENCY, LINK, named, parse, placement, target

TEXT = """g (float[2,4] x, float[4] w, float rate) => (float[2,4] y, float mean, float[4] new)
{ y = Mul (x, w)  mean = ReduceSum <keepdims=0> (y)  new = Sub (w, rate) }"""


def sample(text: str = TEXT) -> ir.Model:
    return named(parse(text))


def roles(model: ir.Model, batches: int = 3, **fields: Any) -> Roles:
    x, w, rate = model.graph.inputs
    y, mean, new = model.graph.outputs
    kept = {w: SymbolKind.WEIGHT, new: SymbolKind.WEIGHT}
    regions = {"new": "w", **fields.pop("regions", {})}
    options = {"argins": frozenset([rate]), "regions": regions, "spatial_batches": batches}
    return Roles((x, rate), (y, mean), kept, **(options | fields))


def planned(model: ir.Model, roles: Roles, cpu: tuple[str, ...] = (), **sizes: int) -> GraphPlan:
    homes = placement(model, cpu)
    groups = partition(model, homes)
    whole = target(**sizes)
    return plan(model, groups, whole, graph_name="g", weight_names=(), placement=homes, roles=roles)


def test_inputs_and_outputs_hold_all_mini_batches() -> None:
    model = sample()
    found = planned(model, roles(model))
    shapes = {s.name: (s.shape, s.batch_shape, s.bytes) for s in found.symbols}
    assert shapes == {
        "x": ((6, 4), (2, 4), 96),
        "rate": ((), None, 4),
        "w": ((4,), None, 16),
        "y": ((6, 4), (2, 4), 96),
        "mean": ((3,), (), 12),
        "new": ((4,), None, 16),
    }
    assert found.graph.spatial_batches == 3
    moves = [(move.symbol, move.bytes, move.seconds) for move in found.graph.run_transfers]
    assert moves == [(n, b, LATENCY + b / LINK) for n, b in (("x", 96), ("y", 96), ("mean", 12))]
    assert {region.name: region.bytes for region in found.regions}["x"] == 96
    # One execution streams one mini-batch; the weight is on the chip.
    assert sum(section.bytes for section in found.sections) == 32 + 32 + 4


def test_section_mapping_is_as_ever() -> None:
    model = sample()
    found = planned(model, roles(model, batches=0))
    assert all(symbol.batch_shape is None for symbol in found.symbols)
    assert [move.bytes for move in found.graph.run_transfers] == [32, 32, 4]


def test_operators_on_the_cpu_are_named() -> None:
    model = sample()
    message = r"but 1 operators run on the CPU \(ReduceSum\): ReduceSum is not supported"
    with pytest.raises(UsageError, match=message):
        planned(model, roles(model), cpu=("ReduceSum",))


def test_the_most_frequent_operators_on_the_cpu_are_listed() -> None:
    model = sample("""g (float[2,4] x, float[4] w, float rate) => (float[2,4] y, float mean, float[4] new)
    { a = Abs (x)  b = Neg (a)  c = Relu (b)  d = Tanh (c)  e = Tanh (d)
      y = Exp (e)  mean = ReduceSum <keepdims=0> (y)  new = Sub (w, rate) }""")
    on_cpu = ("Abs", "Neg", "Relu", "Tanh", "Exp")
    message = r"but 6 operators run on the CPU \(Tanh, Abs, Neg, Relu\): Abs is not supported"
    with pytest.raises(UsageError, match=message):
        planned(model, roles(model), cpu=on_cpu)


def test_an_argin_may_stand_before_an_input_that_is_refused() -> None:
    model = sample()
    x, w, rate = model.graph.inputs
    y, mean, new = model.graph.outputs
    kept = {w: SymbolKind.WEIGHT, new: SymbolKind.WEIGHT}
    regions = {"new": "w", "x": "place"}
    values = Roles(
        (rate, x), (y, mean), kept, argins=frozenset([rate]), regions=regions, spatial_batches=3
    )
    with pytest.raises(UsageError, match="tensor 'x' is to share region 'place'"):
        planned(model, values)


def test_all_sections_must_fit_on_the_chip_together() -> None:
    model = sample()
    need = sum(section.sram_bytes for section in planned(model, roles(model)).sections)
    planned(model, roles(model), sram=need)
    with pytest.raises(OutOfDeviceMemoryError, match=f"takes {need:,} bytes of on-chip memory"):
        planned(model, roles(model), sram=need - 1)
    model = sample()
    planned(model, roles(model, batches=0), sram=need - 1)


def test_an_input_of_a_region_of_another_is_refused() -> None:
    model = sample()
    with pytest.raises(UsageError, match="share region 'cache'"):
        planned(model, roles(model, regions={"x": "cache"}))


def test_elements_of_less_than_a_byte_are_refused() -> None:
    model = sample()
    model.graph.inputs[0].type = ir.TensorType(ir.DataType.INT4)
    with pytest.raises(UsageError, match="whole bytes"):
        planned(model, roles(model))


TABLE = """g (float[100,4] x, float[100,4] w, int64[3] places) => (float[3,4] y, float[3,4] z)
{ y = Gather (x, places)  z = Gather (w, places) }"""
"""Rows of an input and of a weight, chosen by indices that are an input, too."""


def table_roles(model: ir.Model, batches: int) -> Roles:
    x, w, places = model.graph.inputs
    kept = {w: SymbolKind.WEIGHT}
    return Roles((x, places), tuple(model.graph.outputs), kept, spatial_batches=batches)


def test_of_a_table_that_is_an_input_rows_of_one_mini_batch_are_streamed() -> None:
    model = sample(TABLE)
    found = planned(model, table_roles(model, 3))
    rows, places = 3 * 4 * 4, 3 * 8
    # Rows of the input, once read and once written; those of the weight are on the chip, and written.
    assert sum(section.bytes for section in found.sections) == rows + places + rows + rows
    alike = planned(model, table_roles(model, 0))
    assert sum(section.bytes for section in alike.sections) == 2 * rows + places + 2 * rows


def test_what_is_between_runs_is_on_the_chip_whole_though_a_section_streams_it() -> None:
    """Of a table a section has rows on the chip, and the graph has all of it there between runs."""
    device = load_target("sn40l")
    most = device.summary.tier("sram").bytes // 4
    for rows, batches, fits in ((most, 3, True), (most + 1, 3, False), (most + 1, 0, True)):
        text = (
            f"g (float[{rows},1] w, int64[3] places) => (float[3,1] z) {{ z = Gather (w, places) }}"
        )
        model = sample(text)
        w, places = model.graph.inputs
        kept = {w: SymbolKind.WEIGHT}
        values = Roles((places,), tuple(model.graph.outputs), kept, spatial_batches=batches)
        homes = placement(model, ())
        known = {"graph_name": "g", "weight_names": ("w",), "placement": homes, "roles": values}
        with contextlib.ExitStack() as stack:
            if not fits:
                message = f"takes {4 * rows:,} bytes of on-chip memory"
                stack.enter_context(pytest.raises(OutOfDeviceMemoryError, match=message))
            found = plan(model, partition(model, homes), device, **known)  # type: ignore[arg-type]
        assert sum(section.sram_bytes for section in found.sections) < 4 * most
