from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

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
    planned,
    section,
)

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 8)).astype(np.float32)
W = RNG.standard_normal((8, 8)).astype(np.float32)


def one_section() -> Plan:
    return Plan(
        [section("linear (float[4,8] x, float[8,8] w) => (float[4,8] y) { y = MatMul(x, w) }")],
        ["x"],
        ["y"],
        [("x", TO, INPUT, 0), ("y", FROM, OUTPUT, 0)],
        [("w", WEIGHT)],
        {"w": W},
    )


@pytest.mark.parametrize("prepack", [True, False])
def test_one_section(tmp_path: Path, prepack: bool) -> None:
    plan = one_section()
    with build(tmp_path, plan) as pef, Device(pef, prepack=prepack) as device:
        assert device.ledger.transfers == pef.manifest.graphs[0].load_transfers
        result = device.run({"x": X})
        np.testing.assert_allclose(result["y"], X @ W, rtol=1e-5, atol=1e-5)
        assert device.ledger.run() == planned(plan, pef) == pef.manifest.graphs[0].run_transfers
