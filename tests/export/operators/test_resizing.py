"""Interpolation, its gradients and pixel shuffling, against torch's own kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.export.operators.harness import check_operator

aten = torch.ops.aten


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


SIZES: list[tuple[tuple[int, ...], list[int]]] = [
    ((2, 3, 5), [10]),
    ((2, 3, 7), [4]),
    ((2, 3, 5), [1]),
    ((2, 3, 5), [5]),
    ((2, 3, 4, 5), [4, 5]),
    ((2, 3, 4, 5), [8, 15]),
    ((2, 3, 4, 5), [4, 10]),
    ((2, 3, 9, 7), [5, 11]),
    ((2, 3, 6, 7), [1, 13]),
    ((1, 2, 1, 5), [3, 5]),
    ((2, 3, 3, 4, 2), [6, 8, 4]),
    ((2, 3, 5, 4, 3), [3, 9, 7]),
]
every_size = pytest.mark.parametrize(("shape", "outputs"), SIZES)
LINEAR = {1: "upsample_linear1d", 2: "upsample_bilinear2d", 3: "upsample_trilinear3d"}


def overload(name: str, backward: bool = False) -> Any:
    return getattr(aten, name + "_backward" * backward).default


def scales_of(shape: tuple[int, ...], outputs: list[int], given: bool) -> list[float | None]:
    """Scale factors that lead to the sizes but are not their quotients."""
    pairs = zip(shape[2:], outputs, strict=True)
    return [(out + 0.3) / size if given else None for size, out in pairs]


@every_size
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("name", ["upsample_nearest", "_upsample_nearest_exact"])
def test_nearest(name: str, shape: tuple[int, ...], outputs: list[int], given: bool) -> None:
    packet = f"{name}{len(outputs)}d"
    scales = scales_of(shape, outputs, given)
    check_operator(overload(packet), normal(*shape), outputs, *scales)
    gradient = normal(*shape[:2], *outputs)
    check_operator(overload(packet, True), gradient, outputs, list(shape), *scales)


@every_size
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("align", [False, True])
def test_linear(shape: tuple[int, ...], outputs: list[int], given: bool, align: bool) -> None:
    packet = LINEAR[len(outputs)]
    scales = scales_of(shape, outputs, given)
    check_operator(overload(packet), normal(*shape), outputs, align, *scales)
    gradient = normal(*shape[:2], *outputs)
    check_operator(overload(packet, True), gradient, outputs, list(shape), align, *scales)


@pytest.mark.parametrize(("shape", "outputs"), [item for item in SIZES if len(item[1]) == 2])
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize(
    "packet",
    [
        "upsample_bicubic2d",
        "_upsample_bilinear2d_aa",
        "_upsample_bicubic2d_aa",
        "_upsample_lanczos2d_aa",
    ],
)
def test_wide_kernels(
    packet: str, shape: tuple[int, ...], outputs: list[int], given: bool, align: bool
) -> None:
    if shape[2] == 1 and packet.endswith("_aa"):
        pytest.skip("torch's kernels with anti-aliasing are wrong for an axis of one element")
    scales = scales_of(shape, outputs, given)
    check_operator(overload(packet), normal(*shape), outputs, align, *scales)
    gradient = normal(*shape[:2], *outputs)
    check_operator(overload(packet, True), gradient, outputs, list(shape), align, *scales)


@pytest.mark.parametrize("factors", [[2.0, 3.0], [1.5, 0.7], None])
def test_whole_forms(factors: list[float] | None) -> None:
    value = normal(2, 3, 6, 5)
    size = None if factors else [7, 9]
    check_operator(aten.upsample_nearest2d.vec, value, size, factors)
    check_operator(aten._upsample_nearest_exact2d.vec, value, size, factors)
    check_operator(aten.upsample_bilinear2d.vec, value, size, False, factors)
    check_operator(aten.upsample_bicubic2d.vec, value, size, True, factors)


def test_the_nearest_element_is_alone() -> None:
    value = torch.tensor([[[1.0, float("inf"), float("nan"), 2.0]]])
    check_operator(aten.upsample_nearest1d.default, value, [8])
    check_operator(aten.upsample_nearest1d.default, value, [6])


def test_bfloat16() -> None:
    value, gradient = normal(2, 3, 4, 5).bfloat16(), normal(2, 3, 7, 9).bfloat16()
    check_operator(aten.upsample_bilinear2d.default, value, [7, 9], False)
    check_operator(aten.upsample_bilinear2d_backward.default, gradient, [7, 9], [2, 3, 4, 5], False)
    check_operator(aten.upsample_nearest2d.default, value, [8, 10])


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
@pytest.mark.parametrize("factor", [2, 3])
def test_pixel_shuffling(lead: tuple[int, ...], factor: int) -> None:
    check_operator(aten.pixel_shuffle.default, normal(*lead, 2 * factor**2, 3, 4), factor)
    check_operator(aten.pixel_unshuffle.default, normal(*lead, 2, 3 * factor, factor), factor)


def test_channel_shuffling() -> None:
    check_operator(aten.channel_shuffle.default, normal(2, 6, 3, 4), 3)
    check_operator(aten.native_channel_shuffle.default, normal(2, 6, 3, 4), 2)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", [0, 1, 2], ids=["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", [0, 1, 2], ids=["linear", "nearest", "cubic"])
def test_sampling_at_positions(mode: int, padding: int, align: bool) -> None:
    value, grid = normal(2, 3, 5, 6), normal(2, 4, 7, 2)
    check_operator(aten.grid_sampler_2d.default, value, grid, mode, padding, align)
    if mode < 2:
        value, grid = normal(2, 3, 4, 5, 6), normal(2, 4, 7, 3, 3)
        check_operator(aten.grid_sampler_3d.default, value, grid, mode, padding, align)
