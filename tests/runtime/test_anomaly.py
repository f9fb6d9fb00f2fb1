"""Which values are anomalies: of every type that may hold one, and of none that may not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from samba_onnx.errors import AnomalyError
from samba_onnx.runtime.device import Device
from tests.runtime.building import Plan, build, fallback, section


def activation(body: str) -> Plan:
    """An activation between two sections."""
    return Plan(
        [
            section(f"s (float[4] x) => (float[4] a) {{ {body} }}"),
            section("s (float[4] a) => (float[4] y) { y = Tanh(a) }"),
        ],
        ["x"],
        ["y"],
    )


def test_negative_infinities_beside_finite_numbers_are_a_mask(tmp_path: Path) -> None:
    x = np.array([0, 1, 0, 4], np.float32)
    with build(tmp_path, activation("a = Log(x)")) as pef, Device(pef) as device:
        y = device.run({"x": x}, detect_anomaly=True)["y"]
        np.testing.assert_allclose(y, [-1, 0, -1, np.tanh(np.log(4))], rtol=1e-6)


@pytest.mark.parametrize(
    ("x", "numbers"),
    [
        ([1, 0, 2, 3], "0 NaN and 1 infinite"),
        ([1, 0, -0.0, 3], "0 NaN and 2 infinite"),
        ([-0.0, np.nan, 1, 1], "1 NaN and 1 infinite"),
    ],
)
def test_anything_else_is_no_mask(tmp_path: Path, x: list[float], numbers: str) -> None:
    with (
        build(tmp_path, activation("a = Reciprocal(x)")) as pef,
        Device(pef) as device,
        pytest.raises(AnomalyError, match=f"section 0 .* made 'a' with {numbers} numbers"),
    ):
        device.run({"x": np.array(x, np.float32)}, detect_anomaly=True)


def test_values_that_hold_no_numbers_are_passed_over(tmp_path: Path) -> None:
    """Sequences, texts, integers and truth values."""
    plan = Plan(
        [
            fallback(
                "c (float[2] x, string[1] t) => (seq(float[2]) q, string[1] u, int64 n, bool[2] b)"
                " { q = SequenceConstruct(x) u = Identity(t) n = SequenceLength(q) "
                "b = Greater(x, x) }"
            )
        ],
        ["x", "t"],
        ["q", "u", "n", "b"],
    )
    x = np.array([1, np.inf], np.float32)
    with build(tmp_path, plan) as pef, Device(pef) as device:
        results = device.run({"x": x, "t": np.array(["a"])}, detect_anomaly=True)
        assert results["n"] == 1
        assert results["u"].tolist() == ["a"]
