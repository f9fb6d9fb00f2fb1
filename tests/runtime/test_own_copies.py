"""The device has copies of its own: what users do with their arrays later changes nothing on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from samba_onnx.program.kinds import SymbolKind
from samba_onnx.runtime.device import Device
from tests.runtime.building import (
    FALLBACK,
    FROM,
    INPUT,
    OUTPUT,
    TO,
    WEIGHT,
    Plan,
    build,
    fallback,
    section,
)

X = np.asarray([1, 2, 3, 4], np.float32)
Z = np.asarray([5, -6, 7, -8], np.float32)


def mixed() -> Plan:
    """``z`` is read on both sides, ``x`` and ``w`` by a fallback only, ``b`` is made by one."""
    return Plan(
        [
            section("first (float[4] z) => (float[4] a) { a = Add(z, z) }"),
            fallback(
                "cpu (float[4] a, float[4] x, float[4] z, float[4] w) => (float[4] b) "
                "{ p = Mul(a, x) q = Add(z, w) b = Add(p, q) }"
            ),
            section("second (float[4] b) => (float[4] c) { c = Neg(b) }"),
        ],
        ["x", "z"],
        ["c", "b", "x", "z"],
        [
            ("z", TO, INPUT, 0),
            ("a", FROM, FALLBACK, 1),
            ("b", TO, FALLBACK, 2),
            ("c", FROM, OUTPUT, 2),
        ],
        [("w", WEIGHT)],
        kinds={"w": SymbolKind.WEIGHT},
    )


def results(x: np.ndarray, z: np.ndarray, w: np.ndarray) -> dict[str, np.ndarray]:
    b = 2 * z * x + z + w
    return {"c": -b, "b": b, "x": x, "z": z}


def check(actual: dict[str, np.ndarray], x: np.ndarray, z: np.ndarray, w: np.ndarray) -> None:
    for name, array in actual.items():
        np.testing.assert_array_equal(array, results(x, z, w)[name])


@pytest.mark.parametrize("prepack", [True, False])
@pytest.mark.parametrize("overwritten", ["x", "z", "w", "results"])
def test_arrays_that_are_overwritten_later_change_nothing(
    overwritten: str, prepack: bool, tmp_path: Path
) -> None:
    with build(tmp_path, mixed()) as pef, Device(pef, prepack=prepack) as device:
        arrays = {"x": X.copy(), "z": Z.copy(), "w": np.ones(4, np.float32)}
        device.load({"w": arrays["w"]})
        for _ in range(3):
            first = device.run({"x": arrays["x"], "z": arrays["z"]})
            check(first, X, Z, np.ones(4))
            for array in first.values() if overwritten == "results" else [arrays[overwritten]]:
                array[:] = 99
            check(device.run(), X, Z, np.ones(4))
            arrays |= {"x": X.copy(), "z": Z.copy()}


def test_what_was_written_by_name_is_a_copy(tmp_path: Path) -> None:
    with build(tmp_path, mixed()) as pef, Device(pef) as device:
        device.load({"w": np.ones(4, np.float32)})
        device.run({"x": X, "z": X})
        written, weight = Z.copy(), np.full(4, 3, np.float32)
        device.write("z", written)
        device.write("w", weight)
        written[:], weight[:] = 99, 99
        check(device.run(), X, Z, np.full(4, 3))


def test_what_a_part_of_a_run_answered_is_a_copy(tmp_path: Path) -> None:
    """The rest of the schedule goes on from what the host has, not from what the user made of it."""
    with build(tmp_path, mixed()) as pef, Device(pef) as device:
        device.load({"w": np.ones(4, np.float32)})
        device.run({"x": X, "z": Z}, ["b"], until_call=2)["b"][:] = 99
        check(device.run(outputs=["c"], from_call=2), X, Z, np.ones(4))
