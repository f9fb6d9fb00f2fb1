"""Seeded inputs: reproducible, typed, and harmless where integers index or divide."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import samba_onnx
from samba_onnx.comparing import sample_inputs
from samba_onnx.comparing.sample_inputs import (
    InputRanges,
    input_specs,
    pef_ranges,
    random_inputs,
)
from samba_onnx.errors import ModelLimitError, UsageError
from samba_onnx.facts.dtypes import ELEMENT_TYPES
from samba_onnx.program.index_ranges import IndexRange
from samba_onnx.program.intervals import Interval

FLOAT = "tensor(float)"


def test_same_seed_same_values_and_streams_are_independent() -> None:
    one, two, other = (
        random_inputs({"a": (FLOAT, (size,)), "b": (FLOAT, (5,))}, seed)
        for size, seed in ((4, 3), (400, 3), (4, 4))
    )
    np.testing.assert_array_equal(one["b"], two["b"])
    assert not np.array_equal(one["b"], other["b"])
    assert not np.array_equal(one["a"], one["b"][:4])


def test_values_are_pinned() -> None:
    """A stored sample must stay reproducible: these figures may never change."""
    specs = {name: (f"tensor({kind})", shape) for name, kind, shape, _ in PINNED}
    arrays = random_inputs(specs, seed=3, ranges=RANGES)
    for name, kind, shape, values in PINNED:
        assert arrays[name].dtype == (object if kind == "string" else dtype_of(kind))
        assert arrays[name].shape == shape
        numbers = arrays[name].reshape(-1).tolist()
        assert numbers == (values if kind == "string" else pytest.approx(values, rel=1e-6))


RANGES = InputRanges(
    {"i": IndexRange(-9, 99)},
    {"f": Interval(0), "g": Interval(-math.inf, -1.0), "h": Interval(2, 3), "k": Interval(0)},
)
PINNED: list[tuple[str, str, tuple[int, ...], list[Any]]] = [
    ("x", "float", (3,), [2.41715, 0.1427626, -0.5126867]),
    ("d", "double", (2,), [0.01755360, -0.5100444]),
    ("i", "int64", (6,), [83, -1, 52, 99, -9, 0]),
    ("k", "int32", (8,), [1, 1, 1, 0, 0, 0, 0, 0]),
    ("q", "int8", (2, 4), [1, 101, 21, 0, 1, -98, 52, -102]),
    ("m", "bool", (4, 1), [True, True, True, False]),
    ("n", "bool", (2, 3), [True, True, True, True, False, False]),
    ("s", "string", (4,), ["alpha", "Beta 2", "gamma-delta", "Beta 2"]),
    ("c", "complex64", (2,), [-1.097137 - 1.518069j, -1.292567 - 1.590908j]),
    ("f", "float", (2,), [1.570110, 0.2199159]),
    ("g", "double", (2,), [-1.376121, -1.561709]),
    ("h", "float16", (2,), [2.683594, 2.087891]),
]


def dtype_of(kind: str) -> np.dtype[Any]:
    return ELEMENT_TYPES[kind].numpy


def test_floats_are_standard_normal() -> None:
    x = random_inputs({"x": ("tensor(double)", (100_000,))}, seed=1)["x"]
    # Standard errors are 0.003 for the mean and 0.002 for the deviation: five of each.
    assert abs(x.mean()) < 0.016
    assert abs(x.std() - 1) < 0.012


@pytest.mark.parametrize("kind", ["tensor(int64)", "tensor(uint8)", "tensor(int4)"])
def test_integers_that_nothing_is_known_of_never_hide_a_row(kind: str) -> None:
    rows = random_inputs({"m": (kind, (50, 7))}, seed=2)["m"].astype(np.int64)
    assert set(np.unique(rows)) == {0, 1}
    assert (rows[:, 0] == 1).all()
    assert random_inputs({"n": (kind, ())}, seed=2)["n"].astype(np.int64) == 1


@pytest.mark.parametrize("shape", [(50, 7), (4, 1), (1, 2), (2, 1, 1, 8)])
def test_masks_of_truth_values_are_neither_all_true_nor_all_false(shape: tuple[int, ...]) -> None:
    for seed in range(20):
        mask = random_inputs({"m": ("tensor(bool)", shape)}, seed)["m"]
        assert mask.any()
        assert not mask.all()
        if shape[-1] > 1:
            assert mask[..., 0].all()


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_single_truth_value_is_both_among_neighbouring_seeds(shape: tuple[int, ...]) -> None:
    values = [random_inputs({"m": ("tensor(bool)", shape)}, seed)["m"].item() for seed in range(4)]
    assert values == [True, False, True, False]


@pytest.mark.parametrize("element", ["int8", "uint8", "int4", "uint4", "int2", "uint2"])
def test_small_integers_of_a_graph_that_was_looked_at_are_quantised_numbers(element: str) -> None:
    kind = f"tensor({element})"
    rows = random_inputs({"q": (kind, (200, 20))}, seed=3, ranges=InputRanges())["q"].astype(
        np.int64
    )
    limits = ml_dtypes.iinfo(np.dtype(getattr(ml_dtypes, element, element)))
    assert {int(limits.min), int(limits.max), 0} <= set(np.unique(rows).tolist())
    assert 0.15 < (rows[:, 1:] == 0).mean() < 0.5


def test_integers_with_a_range_are_drawn_from_all_of_it_with_its_edges() -> None:
    ranges = {"i": IndexRange(-1000, 999), "c": IndexRange(0, 9), "k": IndexRange(1, 5)}
    specs = dict.fromkeys((*ranges, "m"), ("tensor(int32)", (4, 64)))
    drawn = random_inputs(specs, seed=1, ranges=InputRanges(ranges))
    assert {-1000, -1, 0, 999} <= set(drawn["i"].reshape(-1).tolist())
    assert len(np.unique(drawn["i"])) > 150
    assert set(np.unique(drawn["c"]).tolist()) == set(range(10))
    assert set(np.unique(drawn["k"]).tolist()) == {1, 2, 3, 4, 5}
    assert set(np.unique(drawn["m"]).tolist()) == {0, 1}
    assert {array.dtype for array in drawn.values()} == {np.dtype(np.int32)}


@pytest.mark.parametrize(
    "interval", [Interval(0), Interval(-1, 1), Interval(1), Interval(-math.inf, 0.5)]
)
@pytest.mark.parametrize("element", ["float", "double", "float16", "bfloat16"])
def test_floats_with_a_range_lie_in_it(interval: Interval, element: str) -> None:
    specs = {"x": (f"tensor({element})", (50, 20))}
    x = random_inputs(specs, seed=1, ranges=InputRanges(floats={"x": interval}))["x"]
    numbers = x.astype(np.float64)
    assert interval.low <= numbers.min() < numbers.max() <= interval.high
    assert numbers.std() > 0.4


@pytest.mark.parametrize("level", ["o0", "o3"])
def test_a_pef_shows_the_ranges_of_its_inputs_across_sections(level: str, tmp_path: Path) -> None:
    """One section adds to the indices; another one, which looks them up, states the table."""
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (int64[8] i, float[8,3] x, bool[8] b) => '
        "(float[8,3] y, bool[8] c) <int64 three = {3}> "
        "{ k = Add(i, three) r = Gather(table, k) l = Log(x) y = Add(r, l) c = Not(b) }"
    )
    table = np.random.default_rng(0).standard_normal((70, 3)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(table, "table"))
    with samba_onnx.convert(
        model, tmp_path / "m.pef", level=level, sample=False, trial=False
    ) as pef:
        ranges = pef_ranges(pef)
        assert ranges.integers == {"i": IndexRange(-73, 66)}
        assert ranges.floats["x"].low >= 0
        specs = input_specs(pef)
        assert specs["b"] == ("tensor(bool)", (8,))
        indices = np.concatenate([random_inputs(specs, seed, ranges)["i"] for seed in range(9)])
    assert {-73, -1, 0, 66} <= set(indices.tolist())
    assert len(np.unique(indices)) > 30


def test_constants_that_the_pef_keeps_outside_of_its_stages_show_ranges_too(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (int64[2000] i, float[2000] x) => '
        "(float[2000,3] y, float[2000] z) "
        "{ k = Add(i, offsets) y = Gather(table, k) s = Add(x, ones) z = Sqrt(s) }"
    )
    constants = {
        "offsets": np.arange(2000) % 7,
        "table": np.zeros((90, 3), np.float32),
        "ones": np.ones(2000, np.float32),
    }
    model.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in constants.items())
    with samba_onnx.convert(model, tmp_path / "m.pef", sample=False, trial=False) as pef:
        assert all(pef.symbol(name).stored for name in ("offsets", "ones"))
        ranges = pef_ranges(pef)
    assert ranges.integers == {"i": IndexRange(-90, 83)}
    assert ranges.floats == {"x": Interval(-1)}


@pytest.mark.parametrize("kind", sorted(ELEMENT_TYPES))
def test_every_type_has_its_shape_empty_and_scalar_too(kind: str) -> None:
    for shape in ((2, 3), (), (0, 4)):
        array = random_inputs({"x": (f"tensor({kind})", shape)}, seed=0)["x"]
        assert isinstance(array, np.ndarray)
        assert (array.shape, array.dtype) == (shape, dtype_of(kind))


def test_texts_are_of_any_shape_and_may_be_empty() -> None:
    texts = random_inputs({"x": ("tensor(string)", (9, 9)), "y": ("tensor(string)", ())}, seed=0)
    assert {"", "a"} < set(texts["x"].reshape(-1).tolist())
    assert (texts["y"].shape, texts["y"].dtype) == ((), object)


def test_what_is_no_tensor_or_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"input 'x' has type seq\(tensor\(float\)\)"):
        random_inputs({"x": ("seq(tensor(float))", ())}, seed=0)
    monkeypatch.setattr(sample_inputs, "LIMIT_BYTES", 64)
    assert list(random_inputs({"x": (FLOAT, (4, 2)), "y": (FLOAT, (8,))}, seed=0)) == ["x", "y"]
    with pytest.raises(ModelLimitError, match=r"input 'y' of shape \[3, 3\] .* than 64 bytes"):
        random_inputs({"x": (FLOAT, (4, 2)), "y": (FLOAT, (3, 3))}, seed=0)


def test_ranges_of_one_graph_go_before_those_of_another() -> None:
    one = InputRanges({"i": IndexRange(0, 1)}, {"x": Interval(0)})
    other = InputRanges(
        {"i": IndexRange(0, 9), "j": IndexRange(2, 3)}, {"x": Interval(1), "y": Interval(2)}
    )
    assert one.or_else(other) == InputRanges(
        {"i": IndexRange(0, 1), "j": IndexRange(2, 3)}, {"x": Interval(0), "y": Interval(2)}
    )
