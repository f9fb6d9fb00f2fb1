"""What a run needs and what it leaves; refusals name who reads what, and what mends it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from samba_onnx.errors import ScheduleError, UsageError
from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.runtime.device import Device
from tests.runtime.building import WEIGHT, Plan, build, fallback, section
from tests.runtime.test_residents import training

X = np.arange(4, dtype=np.float32)
FWD, BCKWD = SectionType.FWD, SectionType.BCKWD


def stateful() -> Plan:
    """A section and a fallback, which read a gradient that nothing writes and an optimizer state."""
    return Plan(
        [
            section("s (float[4] x, float[4] seed) => (float[4] a) { a = Mul(x, seed) }"),
            fallback("c (float[4] a, float[4] momentum) => (float[4] y) { y = Add(a, momentum) }"),
        ],
        ["x"],
        ["y"],
        load=[("momentum", WEIGHT)],
        kinds={"seed": SymbolKind.GRADIENT, "momentum": SymbolKind.OPTIMIZER_STATE},
    )


def test_values_that_are_missing_are_named_with_their_reader_and_the_remedy(tmp_path: Path) -> None:
    with build(tmp_path, stateful()) as pef, Device(pef) as device:
        for values, message in (
            ((), r"section 0 \(s_0\) reads 'seed', which has no value .*: write it first$"),
            (
                ("seed",),
                r"fallback 1 \(c_1\) reads optimizer state 'momentum', which has no value: give it to load\(\), or trace the model with its optimizer; .* type FWD$",
            ),
        ):
            for name in values:
                device.write(name, X)
            with pytest.raises(ScheduleError, match=message):
                device.run({"x": X})
        with pytest.raises(ScheduleError, match=r"^optimizer state 'momentum' has no value: give"):
            device.read("momentum")
        device.load({"momentum": X})
        with pytest.raises(ScheduleError, match=r"fallback 1 .* reads 'a', which .*run section 0"):
            device.run(section_ids=[1])


def test_an_input_that_another_section_overwrites_is_given_in_a_run_of_its_own(
    tmp_path: Path,
) -> None:
    plan = Plan(
        [
            section("s (float[4] x) => (float[4] a) { a = Neg(x) }", type=FWD),
            section("s (float[4] a) => (float[4] y) { y = Abs(a) }", type=BCKWD),
        ],
        ["x"],
        ["y"],
        shared={"x": "place", "a": "place"},
        kinds={"a": SymbolKind.ACTIVATION},
    )
    with build(tmp_path, plan) as pef, Device(pef) as device:
        message = "section 0 .* reads 'x', whose place .*: give it in a run of its own first"
        with pytest.raises(ScheduleError, match=message):
            device.run({"x": X}, section_ids=[0, 1, 0])
        np.testing.assert_array_equal(device.run({"x": X})["y"], X)


def test_outputs_that_there_are_not_or_not_yet(tmp_path: Path) -> None:
    plan = Plan(
        [
            section("s (float[4] x) => (float[4] y) { y = Neg(x) }"),
            section("s (float[4] x) => (float[4] z) { z = Abs(x) }"),
        ],
        ["x"],
        ["y", "z"],
    )
    with build(tmp_path, plan) as pef, Device(pef) as device:
        with pytest.raises(UsageError, match=r"'q' does not exist; .* outputs are 'y', 'z'$"):
            device.run({"x": X}, ["y", "q"])
        with pytest.raises(
            ScheduleError, match=r"^you ask for 'z', which has no value .*section 1"
        ):
            device.run({"x": X}, ["z"], section_ids=[0])


def test_a_later_section_reads_what_an_earlier_one_wrote_under_another_name(
    tmp_path: Path,
) -> None:
    """The update of a weight is the weight, and can be read in the same run."""
    x, weight = np.ones((4, 8), np.float32), np.full((8, 3), 2, np.float32)
    with build(tmp_path, training()) as pef, Device(pef) as device:
        device.load({"weight": weight})
        device.write("weight__grad", weight)
        for step in range(1, 4):
            y = device.run({"x": x}, ["y"], section_types=["OPT", "FWD"], argins={"lr": 0.25})["y"]
            np.testing.assert_array_equal(y, x @ (weight - 0.25 * step * weight))
