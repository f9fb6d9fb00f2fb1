from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from tests.export.operators.harness import reference, run_model, translate_operator

special = torch.special
aten = torch.ops.aten

# Errors are relative to float64's value, or absolute below one. Rounding of the operand, 6e-8, is
# part of them where a function is steep; onnxruntime's own Exp and Log add 1e-7 each.
_RANGES = [
    (aten.lgamma.default, np.linspace(0.01, 50, 4001), 2e-6),
    (aten.lgamma.default, np.linspace(-9.93, -0.13, 99), 1e-5),
    (aten.digamma.default, np.linspace(0.01, 50, 4001), 2e-6),
    (aten.erfinv.default, np.linspace(-1 + 1e-7, 1 - 1e-7, 4001), 1e-6),
    (aten.special_ndtri.default, np.geomspace(1e-30, 0.999, 4001), 2e-6),
    (aten.special_erfcx.default, np.linspace(-5, 50, 4001), 5e-6),
    (aten.special_i0e.default, np.linspace(-40, 40, 4001), 2e-6),
    (aten.special_i1e.default, np.linspace(-40, 40, 4001), 2e-6),
    (aten.special_i1.default, np.linspace(-20, 20, 4001), 5e-6),
    (aten.special_modified_bessel_k0.default, np.linspace(0.01, 30, 4001), 2e-6),
    (aten.special_modified_bessel_k1.default, np.linspace(0.01, 30, 4001), 2e-6),
]


def _result(operator: Callable[..., object], *arguments: object) -> torch.Tensor:
    expected = reference(operator, arguments, {})  # type: ignore[arg-type]
    model, feed = translate_operator(operator, arguments, {}, expected)  # type: ignore[arg-type]
    return run_model(model, feed)[0]


def _error(got: torch.Tensor, exact: torch.Tensor) -> float:
    return float(((got.double() - exact).abs() / exact.abs().clamp(min=1.0)).max())


@pytest.mark.parametrize(
    ("operator", "points", "tolerance"), _RANGES, ids=lambda item: str(item)[:30]
)
def test_functions_are_near_their_values_in_float64(
    operator: Callable[..., torch.Tensor], points: np.ndarray, tolerance: float
) -> None:
    narrow = torch.from_numpy(points).float()
    assert _error(_result(operator, narrow), operator(narrow.double())) < tolerance


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_derivatives_of_digamma(order: int) -> None:
    narrow = torch.linspace(0.3, 20, 500)
    exact = special.polygamma(order, narrow.double())
    assert _error(_result(aten.polygamma.default, order, narrow), exact) < 3e-6


@pytest.mark.parametrize(
    ("operator", "points"),
    [
        (aten.erfinv.default, [-1.0, 1.0, 2.0, 0.0, float("nan")]),
        (aten.special_ndtri.default, [0.0, 1.0, 0.5, -0.5]),
        (aten.lgamma.default, [0.0, -1.0, -2.0, 1.0, 2.0, float("inf")]),
        (aten.digamma.default, [0.0, -1.0, -3.0, float("nan")]),
        (aten.special_modified_bessel_k1.default, [0.0, -1.0]),
        (aten.frexp.Tensor, [0.0, 1.0, -8.0, 0.3, 1e30, 1e-30, float("inf")]),
    ],
    ids=lambda item: str(item)[:30],
)
def test_poles_and_ends(operator: Callable[..., torch.Tensor], points: list[float]) -> None:
    given = torch.tensor(points)
    expected = reference(operator, (given,), {})  # type: ignore[arg-type]
    assert expected[0] is not None
    torch.testing.assert_close(_result(operator, given), expected[0], equal_nan=True)
