"""Argins: they persist, accept plain numbers, are no transfers, and refuse what does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from samba_onnx.errors import InputError
from samba_onnx.pef.manifest import Argin
from samba_onnx.runtime.device import Device
from tests.runtime.building import (
    FALLBACK,
    FROM,
    INPUT,
    OUTPUT,
    TO,
    Plan,
    build,
    fallback,
    planned,
    section,
)

X = np.arange(4, dtype=np.float32)


def scaled() -> Plan:
    """Argins of three types, read by a section, by a fallback, and by both."""
    return Plan(
        [
            section(
                "s (float[4] x, float rate, bfloat16 half) => (float[4] a) "
                "{ h = Cast<to=1>(half) b = Mul(x, rate) a = Mul(b, h) }"
            ),
            fallback(
                "c (float[4] a, float rate, uint32 count) => (float[4] y) "
                "{ n = Cast<to=1>(count) b = Mul(a, n) y = Add(b, rate) }"
            ),
        ],
        ["x", "rate", "half", "count"],
        ["y"],
        [("x", TO, INPUT, 0), ("a", FROM, FALLBACK, 1)],
        argins=[
            Argin("rate", "tensor(float)", 0.5, (0, 1)),
            Argin("half", "tensor(bfloat16)", 2.0, (0,)),
            Argin("count", "tensor(uint32)", 3.0, (1,)),
        ],
    )


def expected(rate: float = 0.5, half: float = 2, count: int = 3) -> np.ndarray:
    return X * np.float32(rate) * np.float32(half) * np.float32(count) + np.float32(rate)


def test_argins_persist_and_cost_no_transfer(tmp_path: Path) -> None:
    plan = scaled()
    with build(tmp_path, plan) as pef, Device(pef) as device:
        np.testing.assert_array_equal(device.run({"x": X})["y"], expected())
        assert device.ledger.transfers == planned(plan, pef)
        result = device.run({"x": X}, argins={"rate": 0.25, "count": 5})["y"]
        np.testing.assert_array_equal(result, expected(0.25, 2, 5))
        # Among the inputs, too, as numbers or as arrays.
        result = device.run({"half": np.array(4, ml_dtypes.bfloat16), "count": 6})["y"]
        np.testing.assert_array_equal(result, expected(0.25, 4, 6))
        np.testing.assert_array_equal(device.run()["y"], expected(0.25, 4, 6))
        device.write("rate", np.float32(8))
        np.testing.assert_array_equal(device.run()["y"], expected(8, 4, 6))
        assert [float(device.read(name)) for name in ("rate", "half", "count")] == [8, 4, 6]
        assert {move.symbol for move in device.ledger.transfers} == {"x", "a"}


@pytest.mark.parametrize(
    ("argins", "message"),
    [
        ({"q": 1.0}, "argin 'q' does not exist; the argins are: 'rate', 'half', 'count'"),
        ({"rate": "fast"}, r"argin 'rate' is 'fast', expected one number of tensor\(float\)"),
        ({"rate": None}, "argin 'rate' is None"),
        ({"rate": np.ones(1)}, r"argin 'rate' is array\(\[1\.\]\), expected"),
        ({"rate": [[1], [2, 3]]}, r"argin 'rate' is \[\[1\], \[2, 3\]\], expected"),
        ({"rate": np.ones(64)}, "argin 'rate' is a value of type ndarray, expected"),
        ({"rate": 1j}, "argin 'rate' is 1j, expected"),
        ({"count": -1}, r"argin 'count' is -1, expected one number of tensor\(uint32\)"),
        ({"count": 2**32}, "argin 'count' is 4294967296"),
        ({"count": 0.5}, "argin 'count' is 0.5"),
        ({"rate": 1.0, "x": X}, "argin 'x' does not exist"),
    ],
)
def test_refused_argins_change_nothing(
    tmp_path: Path, argins: dict[str, Any], message: str
) -> None:
    with build(tmp_path, scaled()) as pef, Device(pef) as device:
        with pytest.raises(InputError, match=message):
            device.run({"x": X}, argins={"half": 8.0, **argins})
        assert device.ledger.transfers == ()
        np.testing.assert_array_equal(device.run({"x": X})["y"], expected())
        with pytest.raises(InputError, match="'rate' is given twice"):
            device.run({"x": X, "rate": 1.0}, argins={"rate": 1.0})


def test_argins_of_one_region_are_one(tmp_path: Path) -> None:
    plan = Plan(
        [
            section("s (float[4] x, float one) => (float[4] a) { a = Mul(x, one) }"),
            fallback("c (float[4] a, float one) => (float[4] b) { b = Mul(a, one) }"),
            section("s (float[4] b, float two) => (float[4] y) { y = Mul(b, two) }"),
        ],
        ["x", "one", "two"],
        ["y"],
        [
            ("x", TO, INPUT, 0),
            ("a", FROM, FALLBACK, 1),
            ("b", TO, FALLBACK, 2),
            ("y", FROM, OUTPUT, 2),
        ],
        argins=[Argin(name, "tensor(float)", 1.0, ()) for name in ("one", "two")],
        shared={"one": "lr", "two": "lr"},
    )
    with build(tmp_path, plan) as pef, Device(pef) as device:
        np.testing.assert_array_equal(device.run({"x": X}, argins={"two": 2.0})["y"], 8 * X)
        assert device.ledger.run() == planned(plan, pef)


def test_infinity_is_a_number(tmp_path: Path) -> None:
    """A bound on the norm of gradients may be infinite."""
    with build(tmp_path, scaled()) as pef, Device(pef) as device:
        device.run({"x": X}, argins={"rate": float("inf"), "half": 1e300})
        assert np.isinf(device.read("rate"))
        assert np.isinf(device.read("half").astype(np.float32))


@pytest.mark.parametrize(
    "rate", [2, True, np.int8(2), np.uint64(2), np.float16(2), ml_dtypes.bfloat16(2), np.array(2.0)]
)
def test_any_number_sets_a_floating_point_argin(tmp_path: Path, rate: Any) -> None:
    with build(tmp_path, scaled()) as pef, Device(pef) as device:
        y = device.run({"x": X}, argins={"rate": rate})["y"]
        np.testing.assert_array_equal(y, expected(rate=float(rate)))


@pytest.mark.parametrize("count", [0, 2**32 - 1])
def test_the_first_and_the_last_number_of_an_integer_type_fit(tmp_path: Path, count: int) -> None:
    with build(tmp_path, scaled()) as pef, Device(pef) as device:
        device.run({"x": X}, argins={"count": count})
        assert device.read("count") == count


def test_a_model_without_argins_says_so(tmp_path: Path) -> None:
    plan = Plan([section("s (float[4] x) => (float[4] y) { y = Neg(x) }")], ["x"], ["y"])
    with (
        build(tmp_path, plan) as pef,
        Device(pef) as device,
        pytest.raises(InputError, match=r"argin 'rate' does not exist; the argins are: none$"),
    ):
        device.run({"x": X}, argins={"rate": 1.0})


def test_some_argins_are_given_among_the_inputs_and_others_apart(tmp_path: Path) -> None:
    with build(tmp_path, scaled()) as pef, Device(pef) as device:
        y = device.run({"x": X, "count": 5}, argins={"rate": 0.25})["y"]
        np.testing.assert_array_equal(y, expected(0.25, 2, 5))
