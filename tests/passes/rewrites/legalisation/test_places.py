from __future__ import annotations

import numpy as np
import pytest

from tests.passes.rewrites.legalisation.legalising import legalised, refusal

SHORTS = np.arange(24, dtype=np.int16).reshape(2, 3, 4)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_elements_along_an_axis(axis: int) -> None:
    text = f"""g (int16[2,3,4] x) => (int16[a,b,c] y) <int64[2,2,3] i = {{0, -1, 1, 1, 0, -2, 0, 0, 0, 1, 1, 1}}>
{{ y = GatherElements<axis={axis}>(x, i) }}"""
    assert legalised(text, [SHORTS]) == ["Reshape", "Gather", "Reshape"]


@pytest.mark.parametrize(("batches", "rank"), [(0, "a,b,c"), (1, "a")])
def test_elements_by_whole_places(batches: int, rank: str) -> None:
    text = f"""g (int16[2,3,4] x) => (int16[{rank}] y) <int64[2,{2 if batches else 1}] i = {{{"1, -1, 0, 2" if batches else "1, -2"}}}>
{{ y = GatherND<batch_dims={batches}>(x, i) }}"""
    assert legalised(text, [SHORTS])[:2] == ["Reshape", "Gather"]


@pytest.mark.parametrize("dtype", ["bool", "float"])
def test_the_last_of_several_updates_stays(dtype: str) -> None:
    reduction = "none" if dtype == "bool" else "mul"
    indices = "2, 0, -1" if dtype == "bool" else "2, 0, 3"
    text = f"""g ({dtype}[4,2] x, {dtype}[3,2] u) => ({dtype}[4,2] y) <int64[3,1] i = {{{indices}}}>
{{ y = ScatterND<reduction="{reduction}">(x, i, u) }}"""
    kind = np.bool_ if dtype == "bool" else np.float32
    draw = np.random.default_rng(0)
    inputs = [draw.integers(0, 5, shape).astype(kind) for shape in ((4, 2), (3, 2))]
    assert "Concat" in legalised(text, inputs)


@pytest.mark.parametrize("reduction", ["max", "min", "mul"])
def test_updates_along_an_axis_are_combined(reduction: str) -> None:
    text = f"""g (float[3,4] x, float[2,4] u) => (float[3,4] y) <int64[2,4] i = {{0, 1, -1, 0, 1, 2, 0, 1}}>
{{ y = ScatterElements<axis=0, reduction="{reduction}">(x, i, u) }}"""
    draw = np.random.default_rng(0)
    inputs = [draw.standard_normal(shape).astype(np.float32) for shape in ((3, 4), (2, 4))]
    made = legalised(text, inputs)
    assert {"max": "Max", "min": "Min", "mul": "Mul"}[reduction] in made


def test_several_updates_of_one_place_are_combined_in_their_order() -> None:
    text = """g (float[3] x, float[6] u) => (float[3] y) <int64[6] i = {1, 1, -1, 1, 0, 2}>
{ y = ScatterElements<reduction="mul">(x, i, u) }"""
    draw = np.random.default_rng(0)
    inputs = [draw.standard_normal(size).astype(np.float32) for size in (3, 6)]
    assert legalised(text, inputs).count("Mul") == 3


def test_as_many_updates_of_one_place_as_there_may_be_are_combined() -> None:
    text = f"""g (float[3] x, float[16] u) => (float[3] y) <int64[16] i = {{{", ".join("0" * 16)}}}>
{{ y = ScatterElements<reduction="max">(x, i, u) }}"""
    draw = np.random.default_rng(0)
    inputs = [draw.standard_normal(size).astype(np.float32) for size in (3, 16)]
    assert legalised(text, inputs).count("Max") == 16


def test_too_many_updates_of_one_place_stay() -> None:
    text = f"""g (float[3] x, float[20] u) => (float[3] y) <int64[20] i = {{{", ".join("0" * 20)}}}>
{{ y = ScatterElements<reduction="max">(x, i, u) }}"""
    assert refusal(text) == "ScatterElements 'y': it combines 20 updates of one place"


def test_computed_indices_stay() -> None:
    text = "g (int16[3] x, int64[2] i) => (int16[2] y) { y = GatherElements(x, i) }"
    assert refusal(text) == "GatherElements 'y': its indices 'i' is not constant"
