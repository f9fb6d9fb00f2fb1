"""Stochastic rounding: one of two neighbours, with the value as the mean, and the same every time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import pytest
from onnx import ModelProto, parser

from samba_onnx.errors import PefFormatError
from samba_onnx.runtime.engine.lowerings.stochastic_rounds import expand_stochastic_rounds
from samba_onnx.runtime.engine.reference.random_words import random_words
from samba_onnx.runtime.engine.reference.stochastic_round import stochastic_round

HEADER = '<ir_version: 10, opset_import: ["" : 21, "samba" : 1]>\n'
Floats = npt.NDArray[np.float32]
SPECIALS = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2**-133, -(2**-126), 255 * 2**120, 0.15625],
    np.float32,
)
"""Numbers of bfloat16, and what is none."""


def model(size: int | str, stream: int = 0) -> ModelProto:
    rounding = f"samba.StochasticRound<stream={stream}>(x, seed)"
    return parser.parse_model(
        HEADER + f"g (float[{size}] x, int32 seed) => (bfloat16[{size}] y) {{ y = {rounding} }}"
    )


def rounder(size: int | str, stream: int = 0) -> Callable[[Floats, int], Floats]:
    """Return what rounds by onnxruntime, which hands out no bfloat16."""
    proto = model(size, stream)
    expand_stochastic_rounds(proto)
    assert [opset.domain for opset in proto.opset_import] == [""]
    proto.graph.node.add(op_type="Cast", input=["y"], output=["z"]).attribute.add(
        name="to", type=2, i=1
    )
    proto.graph.output[0].name = "z"
    proto.graph.output[0].type.tensor_type.elem_type = 1
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])

    def rounded(x: Floats, seed: int) -> Floats:
        result: Floats = session.run(None, {"x": x, "seed": np.array(seed, np.int32)})[0]
        return result

    return rounded


def neighbours(x: Floats) -> tuple[Floats, Floats]:
    """Return the numbers of bfloat16 on either side, nearer to zero first; twice one of its own."""
    inner = (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    bits = inner.view(np.uint32) + np.uint32(0x10000)
    return inner, np.where(inner == x, inner, bits.view(np.float32))


def values(size: int, seed: int = 0) -> Floats:
    """Return numbers of all magnitudes that float32 has, subnormal ones and powers of two included."""
    generator = np.random.default_rng(seed)
    bits = generator.integers(0, 0x7F7F0000, size, dtype=np.uint32)
    bits[::5] = bits[::5] & 0xFF800000 | generator.integers(0, 3, len(bits[::5]), dtype=np.uint32)
    bits[2::5] = generator.integers(0, 0x00900000, len(bits[2::5]), dtype=np.uint32)
    signs = generator.integers(0, 2, size, dtype=np.uint32) << np.uint32(31)
    return (bits | signs).view(np.float32)


def test_each_result_is_one_of_the_two_neighbours() -> None:
    x = values(1 << 16)
    inner, outer = neighbours(x)
    rounded = rounder(len(x))
    for seed in (0, 1, 2**31 - 1):
        result = rounded(x, seed)
        assert ((result == inner) | (result == outer)).all()
    assert (inner != outer).mean() > 0.9


def test_numbers_of_bfloat16_and_what_is_none_stay() -> None:
    rounded = rounder(len(SPECIALS))
    for seed in range(20):
        result = rounded(SPECIALS, seed)
        np.testing.assert_array_equal(result, SPECIALS)
        assert (np.signbit(result) == np.signbit(SPECIALS)).all()
    numbers = np.random.default_rng(0).standard_normal(4096).astype(ml_dtypes.bfloat16)
    wide = numbers.astype(np.float32)
    np.testing.assert_array_equal(rounder(4096)(wide, 5), wide)


def test_beyond_the_largest_number_it_rounds_to_nearest() -> None:
    largest = np.float32(255 * 2.0**120)
    x = np.array([largest * (1 + 2**-10), -largest * (1 + 2**-10), 3.4e38, -3.4028e38], np.float32)
    expected = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    assert np.isfinite(expected).tolist() == [True, True, False, False]
    for seed in range(20):
        np.testing.assert_array_equal(rounder(4)(x, seed), expected)


@pytest.mark.parametrize("part", [1 / 65536, 0.01, 0.3, 0.5, 0.77, 65535 / 65536])
def test_the_mean_is_the_value(part: float) -> None:
    """Five standard deviations of a binomial: 1 of 1.7 million is further off by chance."""
    size, seeds = 1 << 16, 8
    steps = round(part * 65536)
    x = np.full(size, np.float32(1 + steps * 2**-23))
    up = np.concatenate([rounder(size)(x, seed) > 1 for seed in range(seeds)])
    probability = steps / 65536
    bound = 5 * math.sqrt(probability * (1 - probability) / up.size)
    assert abs(up.mean() - probability) < bound


def test_the_mean_of_one_element_over_many_seeds_is_its_value() -> None:
    """The 64 elements of a small weight, 2,000 times: largest of 64 sums within five deviations."""
    x, draws = values(64, 3), 2000
    x[::5] = np.random.default_rng(1).standard_normal(len(x[::5])).astype(np.float32)
    rounded = rounder(len(x), stream=2)
    inner, outer = neighbours(x)
    moved = np.mean([rounded(x, 977 * seed) == outer for seed in range(draws)], axis=0)
    probability = np.where(inner == outer, 1.0, (x.view(np.uint32) & 0xFFFF) / 65536)
    bound = 5 * np.sqrt(probability * (1 - probability) / draws) + 1e-12
    assert (np.abs(moved - probability) <= bound).all()


def test_seeds_streams_and_places_are_independent() -> None:
    size = 1 << 16
    x = np.full(size, np.float32(1 + 0.4 * 2**-7))
    probability = (int(x.view(np.uint32)[0]) & 0xFFFF) / 65536
    drawn = [rounder(size, stream)(x, seed) > 1 for stream in (0, 1) for seed in (0, 1, 77)]
    scale = math.sqrt(probability * (1 - probability))
    standard = [(one - probability) / scale for one in drawn]
    table = np.corrcoef(standard) - np.eye(len(standard))
    assert np.abs(table).max() * math.sqrt(size) < 5
    for distance in (1, 2, 64, 4096, size // 8, size // 2):
        pairs = standard[0][:-distance] * standard[0][distance:]
        assert abs(pairs.mean()) * math.sqrt(len(pairs)) < 5


@pytest.mark.parametrize("size", [1, 7, 33000])
def test_both_engines_round_the_same(size: int) -> None:
    x = values(size, 7)
    x[: len(SPECIALS)] = SPECIALS[:size]
    for seed, stream in ((0, 0), (5, 3), (-7, 1), (2**31 - 1, 0)):
        rounded = rounder(size, stream)(x, seed)
        np.testing.assert_array_equal(rounded, stochastic_round(x, seed, stream))
        np.testing.assert_array_equal(rounded, rounder(size, stream)(x, seed))


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), (2, 0, 3)])
def test_what_has_no_elements_keeps_its_shape(shape: tuple[int, ...]) -> None:
    result = rounder(",".join(map(str, shape)))(np.zeros(shape, np.float32), 1)
    assert result.shape == shape


def test_all_sixteen_bits_count() -> None:
    """Of a value one unit above its neighbour, one in 65536 moves: those whose word has no upper bit."""
    x = np.full(1 << 20, np.float32(1 + 2**-23))
    rounded = rounder(len(x))(x, 3)
    np.testing.assert_array_equal(rounded > 1, random_words(len(x), 3, 0) < 1 << 16)
    assert 4 < (rounded > 1).sum() < 36  # 16 and five deviations


def test_a_result_has_the_shape_of_its_value_where_none_is_stated() -> None:
    proto = model(4)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    expand_stochastic_rounds(proto)
    assert proto.graph.node[-1].output == ["y"]


def test_what_is_no_rounding_is_refused() -> None:
    def broken(**changes: Any) -> ModelProto:
        proto = model(4)
        for name, value in changes.items():
            proto.graph.node[0].attribute[0].name = name
            proto.graph.node[0].attribute[0].i = value
        return proto

    with pytest.raises(PefFormatError, match="no samba::StochasticRound"):
        expand_stochastic_rounds(broken(other=1))
    for names in ("input", "output"):
        longer = model(4)
        getattr(longer.graph.node[0], names).append("x")
        with pytest.raises(PefFormatError, match="no samba::StochasticRound"):
            expand_stochastic_rounds(longer)
    with pytest.raises(PefFormatError, match=r"impossible shape \(8589934592,\)"):
        expand_stochastic_rounds(model(2**33))
    unknown = model(4)
    unknown.graph.output[0].type.tensor_type.ClearField("shape")
    unknown.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(PefFormatError, match="impossible shape"):
        expand_stochastic_rounds(unknown)
