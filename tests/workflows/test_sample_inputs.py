"""Seeded inputs: reproducible, typed, and harmless where integers index or divide."""

from __future__ import annotations

import math
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import samba_onnx
from samba_onnx.errors import ModelLimitError, UsageError
from samba_onnx.program.index_ranges import IndexRange
from samba_onnx.program.intervals import Interval
from samba_onnx.workflows.sample_inputs import InputRanges, pef_ranges, random_inputs, seeded_inputs


def test_same_seed_same_values_and_streams_are_independent() -> None:
    one = random_inputs({"a": (1, (4,)), "b": (1, (5,))}, seed=3)
    two = random_inputs({"a": (1, (400,)), "b": (1, (5,))}, seed=3)
    other = random_inputs({"a": (1, (4,)), "b": (1, (5,))}, seed=4)
    np.testing.assert_array_equal(one["b"], two["b"])
    assert not np.array_equal(one["b"], other["b"])
    assert not np.array_equal(one["a"], one["b"][:4])


def test_values_are_pinned() -> None:
    """A stored sample must stay reproducible: these figures may never change."""
    arrays = random_inputs({"x": (1, (3,)), "i": (7, (6,))}, seed=0)
    np.testing.assert_allclose(arrays["x"], PINNED_FLOATS, rtol=1e-6)
    np.testing.assert_array_equal(arrays["i"], PINNED_INTEGERS)


PINNED_FLOATS = [1.117622, -1.3871249, -0.4265716]
PINNED_INTEGERS = [1, 0, 1, 1, 1, 1]


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
    values = [random_inputs({"m": ("tensor(bool)", shape)}, seed)["m"].item() for seed in (6, 7)]
    assert values == [True, False]


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
        "{ k = Add(i, three) r = Gather(table, k) y = Add(r, x) c = Not(b) }"
    )
    table = np.random.default_rng(0).standard_normal((70, 3)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(table, "table"))
    with samba_onnx.convert(model, tmp_path / "m.pef", level=level, sample=False) as pef:
        assert pef_ranges(pef).integers == {"i": IndexRange(-73, 66)}
        indices = np.concatenate([seeded_inputs(pef, seed)["i"] for seed in range(9)])
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
    with samba_onnx.convert(model, tmp_path / "m.pef", sample=False) as pef:
        assert all(pef.symbol(name).stored for name in ("offsets", "ones"))
        ranges = pef_ranges(pef)
    assert ranges.integers == {"i": IndexRange(-90, 83)}
    assert ranges.floats == {"x": Interval(-1)}


@pytest.mark.parametrize("kind", sorted(set(TensorProto.DataType.values()) - {0, 25, 26, 27, 28}))
def test_every_type_has_its_shape_empty_and_scalar_too(kind: int) -> None:
    text = f"tensor({TensorProto.DataType.Name(kind).lower()})"
    for shape in ((2, 3), (), (0, 4)):
        by_number = random_inputs({"x": (kind, shape)}, seed=0)["x"]
        by_text = random_inputs({"x": (text, shape)}, seed=0)["x"]
        assert isinstance(by_number, np.ndarray)
        assert by_number.shape == shape
        assert by_number.dtype == by_text.dtype
        np.testing.assert_array_equal(by_number, by_text)


def test_what_is_no_tensor_or_too_large_is_refused() -> None:
    with pytest.raises(UsageError, match=r"input 'x' has type seq\(tensor\(float\)\)"):
        random_inputs({"x": ("seq(tensor(float))", ())}, seed=0)
    with pytest.raises(ModelLimitError, match="input 'x' of shape"):
        random_inputs({"x": (1, (1 << 30, 2))}, seed=0)
