from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.export.operators.harness import check_operator

aten = torch.ops.aten

# Bounds of the pieces that these functions are made of, and numbers where exponentials overflow.
_EDGES = [-100.0, -20.0, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 6.0, 20.0, 100.0]

_OF_VALUE: list[tuple[Any, tuple[Any, ...]]] = [
    (aten.gelu_backward.default, ()),
    (aten.silu_backward.default, ()),
    (aten.mish_backward.default, ()),
    (aten.hardswish_backward.default, ()),
    (aten.hardsigmoid_backward.default, ()),
    (aten.threshold_backward.default, (0.5,)),
    (aten.hardtanh_backward.default, (-1.0, 3.0)),
    (aten.leaky_relu_backward.default, (0.1, False)),
    (aten.softplus_backward.default, (1.0, 20.0)),
    (aten.softplus_backward.default, (2.0, 5.0)),
    (aten.softshrink_backward.default, (0.5,)),
    (aten.hardshrink_backward.default, (0.5,)),
]


def _values() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.cat([torch.tensor(_EDGES), torch.randn(52, generator=generator) * 3])


def _gradient() -> torch.Tensor:
    return torch.randn(64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("operator", "arguments"), _OF_VALUE, ids=lambda item: str(item))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_slopes_at_values(operator: Any, arguments: tuple[Any, ...], dtype: torch.dtype) -> None:
    check_operator(operator, _gradient().to(dtype), _values().to(dtype), *arguments)


def test_gelu_by_tanh() -> None:
    gradient, values = _gradient(), _values()
    check_operator(aten.gelu_backward.default, gradient, values, approximate="tanh")


@pytest.mark.parametrize("operator", [aten.tanh_backward.default, aten.sigmoid_backward.default])
def test_slopes_at_results(operator: Any) -> None:
    check_operator(operator, _gradient(), _values().sigmoid())


@pytest.mark.parametrize("is_result", [False, True])
@pytest.mark.parametrize("scales", [(1.0, 1.0, 1.0), (0.5, 1.0, 2.0), (1.6732632, 1.050701, 1.0)])
def test_elu(is_result: bool, scales: tuple[float, float, float]) -> None:
    alpha, scale, inner = scales
    values = _values()
    if is_result:
        values = aten.elu(values, alpha, scale, inner)
    check_operator(aten.elu_backward.default, _gradient(), *scales, is_result, values)


def test_log_sigmoid() -> None:
    buffer = torch.exp(-_values().abs())
    check_operator(aten.log_sigmoid_backward.default, _gradient(), _values(), buffer)


@pytest.mark.parametrize("dim", [0, -1])
def test_glu(dim: int) -> None:
    values = _values().reshape(8, 8)
    gradient = _gradient()[:32].reshape((4, 8) if dim == 0 else (8, 4))
    check_operator(aten.glu_backward.default, gradient, values, dim)


def test_prelu() -> None:
    weight = torch.linspace(-1, 1, 8).reshape(1, 8)
    gradient, values = _gradient().reshape(8, 8), _values().reshape(8, 8)
    check_operator(aten._prelu_kernel_backward.default, gradient, values, weight)


@pytest.mark.parametrize("training", [False, True])
def test_rrelu(training: bool) -> None:
    noise = torch.linspace(0.1, 0.4, 64)
    check_operator(
        aten.rrelu_with_noise_backward.default,
        _gradient(),
        _values(),
        noise,
        0.1,
        0.4,
        training,
        False,
    )


@pytest.mark.parametrize("eps", [None, 0.1])
def test_logit(eps: float | None) -> None:
    values = torch.linspace(-0.2, 1.2, 64)
    check_operator(aten.logit_backward.default, _gradient(), values, eps)


def test_dropout() -> None:
    mask = _values() > 0
    check_operator(aten.native_dropout_backward.default, _gradient(), mask, 1.25)
