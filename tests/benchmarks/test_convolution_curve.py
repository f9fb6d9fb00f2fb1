"""The published curve of convolutions: shapes of its points, and how many modelled times are near them."""

from __future__ import annotations

import pytest

from benchmarks.convolution_curve import HIGH, LOW, Shape, fitted, points, shapes
from benchmarks.fidelity_programs import planned
from benchmarks.published import published_row, published_rows
from samba_onnx.passes.targets import load_target
from samba_onnx.passes.timing.schedule_time import run_time

TARGET = load_target("sn10").summary


def shape_of(name: str) -> Shape:
    row = published_row(name)
    return Shape(**{key: int(size) for key, size in row.sizes.items()})


def test_shapes_are_those_of_three_nets() -> None:
    found = shapes()
    assert len(set(found)) == len(found)
    for one in (
        Shape(3, 64, 7, 2, 224),
        Shape(64, 128, 1, 2, 56),
        Shape(1024, 2048, 1, 2, 14),
        Shape(512, 512, 3, 2, 14),
        Shape(960, 320, 1, 1, 7),
        Shape(24, 144, 1, 1, 56),
    ):
        assert one in found
    assert Shape(3, 64, 7, 2, 224, 2).operations == 2 * 2 * 112**2 * 64 * 3 * 49


def test_a_shape_takes_as_long_as_its_program() -> None:
    name = "sn10/conv2d/576to160/16"
    manifest = planned(published_row(name)).manifest
    whole = run_time(manifest, manifest.graphs[0])
    assert shape_of(name).terms(TARGET).time(TARGET).seconds == pytest.approx(whole.on_rdu)


def test_four_fifths_of_the_curve_are_met() -> None:
    every = points(TARGET)
    alone = [one for one in every if len(one.terms) == len(one.seconds) == 1]
    assert len(alone) == sum(row.series == "sn10/conv2d" for row in published_rows()) == 27
    for chosen, least in ((every, 0.8), (alone, 0.95)):
        ratios = [ratio for one in chosen for ratio in one.ratios(TARGET)]
        assert sum(LOW <= ratio <= HIGH for ratio in ratios) >= least * len(ratios)


def test_a_fit_to_a_half_meets_the_other() -> None:
    every = points(TARGET)
    own = fitted(TARGET, every[::2])
    ratios = [ratio for one in every[1::2] for ratio in one.ratios(own)]
    assert sum(LOW <= ratio <= HIGH for ratio in ratios) >= 0.75 * len(ratios)
