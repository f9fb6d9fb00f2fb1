"""What a device is filled with before its first run: from the PEF, and by whoever loads."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from samba_onnx.program.kinds import SymbolKind
from samba_onnx.runtime.device import Device
from tests.runtime.building import (
    FROM,
    INPUT,
    OUTPUT,
    TO,
    WEIGHT,
    Plan,
    build,
    fallback,
    planned,
    section,
)

X = np.arange(4, dtype=np.float32)


def test_a_stored_weight_is_known_to_sections_and_fallbacks_from_the_beginning(
    tmp_path: Path,
) -> None:
    """It is copied to the device once, while the PEF is loaded, and never back."""
    plan = Plan(
        [
            section("s (float[4] x, float[4] state) => (float[4] y) { y = Mul(x, state) }"),
            fallback("c (float[4] state) => (float[4] z) { z = Neg(state) }"),
            fallback("c (float[4] state2) => (float[4] v) { v = Abs(state2) }"),
        ],
        ["x"],
        ["y", "z", "v"],
        [("x", TO, INPUT, 0), ("y", FROM, OUTPUT, 0)],
        [("state", WEIGHT), ("state2", WEIGHT)],
        weights={"state": 3 * X, "state2": -2 * X},
        kinds=dict.fromkeys(("state", "state2"), SymbolKind.WEIGHT),
    )
    with build(tmp_path, plan) as pef, Device(pef) as device:
        assert device.ledger.transfers == pef.manifest.graphs[0].load_transfers
        for _ in range(3):
            results = device.run({"x": X})
            assert device.ledger.run() == planned(plan, pef)
            np.testing.assert_array_equal(results["y"], 3 * X * X)
            np.testing.assert_array_equal(results["z"], -3 * X)
            np.testing.assert_array_equal(results["v"], 2 * X)
        np.testing.assert_array_equal(device.read("state2"), -2 * X)


def test_values_are_loaded_in_the_order_of_the_plan_and_others_after_them(tmp_path: Path) -> None:
    """The plan has what a run reads before anything writes it; a new value may be loaded, too."""
    plan = Plan(
        [
            section(
                "s (float[4] b, float[4] c) => (float[4] a, float[4] d) "
                "{ a = Add(b, c) d = Mul(b, c) }"
            )
        ],
        [],
        [],
        load=[("c", WEIGHT), ("b", WEIGHT)],
        kinds=dict.fromkeys("abcd", SymbolKind.BUFFER),
    )
    with build(tmp_path, plan) as pef, Device(pef) as device:
        device.load(dict.fromkeys("dbac", X))
        assert [copy.symbol for copy in device.ledger.transfers] == ["c", "b", "a", "d"]
        np.testing.assert_array_equal(device.read("d"), X)
        device.run()
        np.testing.assert_array_equal(device.read("d"), X * X)
