"""Ranges of integer inputs: every index inside is one that onnxruntime and torch take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn import functional

from samba_onnx.export.programs.inference import inference_program
from samba_onnx.export.programs.training import export_training
from samba_onnx.program.index_ranges import IndexRange, graph_ranges, index_ranges

HEADER = '<ir_version: 8, opset_import: ["" : 18]> g (float[7, 5] t, int64[4] x) => (float r)'
LOOK_UP = "s = Gather(t, i) r = ReduceSum<keepdims=0>(s)"

GRAPHS: dict[str, tuple[str, IndexRange]] = {
    "rows": (f"i = Identity(x) {LOOK_UP}", IndexRange(-7, 6)),
    "columns": (
        "s = Gather<axis=1>(t, x) r = ReduceSum<keepdims=0>(s)",
        IndexRange(-5, 4),
    ),
    "two tables": (
        "a = Gather(t, x) b = Gather<axis=1>(t, x) c = ReduceSum<keepdims=0>(a) "
        "d = ReduceSum<keepdims=0>(b) r = Add(c, d)",
        IndexRange(-5, 4),
    ),
    "offset": (f"c = Constant<value_int=2>() i = Add(x, c) {LOOK_UP}", IndexRange(-9, 4)),
    "offsets by position": (
        f"c = Constant<value_ints=[0, 1, 2, 3]>() i = Add(c, x) {LOOK_UP}",
        IndexRange(-7, 3),
    ),
    "taken away": (f"c = Constant<value_int=2>() i = Sub(x, c) {LOOK_UP}", IndexRange(-5, 8)),
    "taken from": (f"c = Constant<value_int=6>() i = Sub(c, x) {LOOK_UP}", IndexRange(0, 13)),
    "scaled": (f"c = Constant<value_int=3>() i = Mul(x, c) {LOOK_UP}", IndexRange(-2, 2)),
    "divided": (f"c = Constant<value_int=3>() i = Div(x, c) {LOOK_UP}", IndexRange(-21, 20)),
    "negated": (f"i = Neg(x) {LOOK_UP}", IndexRange(-6, 7)),
    "by size": (f"i = Abs(x) {LOOK_UP}", IndexRange(-6, 6)),
    "twice": (f"i = Add(x, x) {LOOK_UP}", IndexRange(-3, 3)),
    "running sum": (f"c = Constant<value_int=0>() i = CumSum(x, c) {LOOK_UP}", IndexRange(-1, 1)),
    "axis": (
        "c = Constant<value_ints=[0]>() a = Gather(x, c) s = CumSum(t, a) "
        "r = ReduceSum<keepdims=0>(s)",
        IndexRange(-2, 1),
    ),
    "converted": (f"f = Cast<to=1>(x) g = Floor(f) i = Cast<to=6>(g) {LOOK_UP}", IndexRange(-7, 6)),
    "from the end by hand": (
        f"z = Constant<value_int=0>() n = Constant<value_int=7>() l = Less(x, z) w = Add(x, n) "
        f"i = Where(l, w, x) {LOOK_UP}",
        IndexRange(0, 6),
    ),
    "joined": (
        f"c = Constant<value_ints=[1]>() i = Concat<axis=0>(c, x) {LOOK_UP}",
        IndexRange(-7, 6),
    ),
    "elements": (
        "a = Constant<value_ints=[1]>() i = Unsqueeze(x, a) s = GatherElements<axis=1>(t, i) "
        "r = ReduceSum<keepdims=0>(s)",
        IndexRange(-5, 4),
    ),
    "tuples": (
        "a = Constant<value_ints=[1]>() i = Unsqueeze(x, a) j = Concat<axis=1>(i, i) "
        "s = GatherND(t, j) r = ReduceSum<keepdims=0>(s)",
        IndexRange(-5, 4),
    ),
    "written": (
        "a = Constant<value_ints=[1]>() i = Unsqueeze(x, a) u = Constant<value_floats=[1., 2., 3., 4.]>()"
        " v = Unsqueeze(u, a) s = ScatterElements<axis=0>(t, i, v) r = ReduceSum<keepdims=0>(s)",
        IndexRange(-7, 6),
    ),
    "in a branch": (
        "k = Constant<value = bool {1}>() r = If (k) <then_branch = y () => (float o) "
        "{ s = Gather(t, x) o = ReduceSum<keepdims=0>(s) }, else_branch = n () => (float p) "
        "{ p = ReduceSum<keepdims=0>(t) }>",
        IndexRange(-7, 6),
    ),
}


def parsed(body: str) -> onnx.ModelProto:
    """Return a model with a float table of 7 rows and 5 columns and four integers as inputs."""
    return onnx.shape_inference.infer_shapes(onnx.parser.parse_model(f"{HEADER} {{ {body} }}"))


def run(model: onnx.ModelProto, integers: Any) -> None:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    table = np.ones((7, 5), np.float32)
    session.run(None, {"t": table, "x": np.asarray(integers, np.int64)})


@pytest.mark.parametrize("name", GRAPHS)
def test_range_of_graph(name: str) -> None:
    body, expected = GRAPHS[name]
    model = parsed(body)
    assert graph_ranges(ir.from_proto(model).graph) == {"x": expected}
    run(model, [expected.lowest, expected.highest, 0, 0])
    run(model, expected.draw((4,), np.random.default_rng(1)))


@pytest.mark.parametrize(
    "name", ["rows", "columns", "two tables", "offset", "taken from", "elements"]
)
@pytest.mark.parametrize("step", [-1, 1])
def test_range_is_not_narrower_than_needed(name: str, step: int) -> None:
    body, legal = GRAPHS[name]
    beyond = legal.lowest - 1 if step < 0 else legal.highest + 1
    with pytest.raises(Exception, match=r"(?i)out of"):
        run(parsed(body), [beyond] * 4)


@pytest.mark.parametrize(
    "body",
    [
        "f = Cast<to=1>(x) r = ReduceSum<keepdims=0>(f)",
        f"c = Constant<value_int=7>() z = Constant<value_int=0>() d = Equal(x, z) "
        f"i = Cast<to=7>(d) {LOOK_UP}",
        f"l = Constant<value_int=-7>() h = Constant<value_int=6>() i = Clip(x, l, h) {LOOK_UP}",
        f"c = Constant<value_int=7>() i = Mod(x, c) {LOOK_UP}",
    ],
)
def test_no_range_where_every_integer_is_legal(body: str) -> None:
    model = parsed(body)
    assert graph_ranges(ir.from_proto(model).graph) == {}
    run(model, [-50, 0, 1, 50])


def test_draw_has_both_ends_and_what_is_next_to_zero() -> None:
    for seed in range(20):
        drawn = IndexRange(-1000, 999).draw((2, 8), np.random.default_rng(seed))
        assert {-1000, -1, 0, 999} <= set(drawn.flat)
        assert drawn.min() >= -1000
        assert drawn.max() <= 999
        assert len(set(drawn.flat)) > 8
    scalars = {int(IndexRange(0, 9).draw((), np.random.default_rng(seed))) for seed in range(20)}
    assert {0, 9} <= scalars <= set(range(10))


def test_draw_of_a_range_without_an_end_stays_near_the_other_end() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (int64[4] a, int64[4] b) => (int64[4] r) '
        "{ r = Div(a, b) }"
    )
    ranges = graph_ranges(ir.from_proto(model).graph)
    assert list(ranges) == ["b"]
    assert ranges["b"].lowest == 1
    assert ranges["b"].draw((100,), np.random.default_rng(0)).max() <= 1000


class Losses(nn.Module):
    """Looks up tokens, positions with an offset and a type, and classifies."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(1000, 4), nn.Embedding(66, 4)
        self.types, self.head = nn.Embedding(2, 4), nn.Linear(4, 10)

    def forward(self, ids: Any, positions: Any, types: Any, mask: Any, label: Any) -> Any:
        hidden = self.tokens(ids) + self.positions(positions + 2) + self.types(types - 1)
        scores = (hidden * mask.unsqueeze(-1)).mean(1)
        return functional.cross_entropy(self.head(scores), label)


EXPECTED = {
    "ids": IndexRange(0, 999),
    "positions": IndexRange(-2, 63),
    "types": IndexRange(1, 2),
    "label": IndexRange(0, 9),
}


def examples() -> tuple[torch.Tensor, ...]:
    ones = torch.ones((2, 8), dtype=torch.int64)
    return ones, ones, ones.int(), ones, torch.ones(2, dtype=torch.int64)


@pytest.mark.parametrize("make", [inference_program, lambda *a: export_training(*a).program])
def test_ranges_of_a_module(make: Callable[..., Any]) -> None:
    program = make(Losses(), examples())
    assert index_ranges(program, from_end=False) == EXPECTED
    assert index_ranges(program)["ids"] == IndexRange(-1000, 999)


def test_module_takes_what_its_ranges_say() -> None:
    module = Losses()
    ranges = index_ranges(inference_program(module, examples()), from_end=False)
    for seed in range(3):
        generator = np.random.default_rng(seed)
        arrays = {
            name: torch.from_numpy(ranges[name].draw(shape, generator))
            for name, shape in {
                "ids": (2, 8),
                "positions": (2, 8),
                "types": (2, 8),
                "label": (2,),
            }.items()
        }
        assert module(**arrays, mask=torch.ones(2, 8)).isfinite()
    for name, legal in EXPECTED.items():
        arrays = dict(zip(["ids", "positions", "types", "mask", "label"], examples(), strict=True))
        with pytest.raises(IndexError):
            module(**{**arrays, name: torch.full_like(arrays[name], legal.highest + 1).long()})
