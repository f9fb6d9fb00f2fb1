from __future__ import annotations

import pytest
import torch

from tests.export.operators.harness import check_operator

aten = torch.ops.aten

_INDICES = torch.tensor([3, 1, 1, 0, 3, 5, 3, 2])
_OFFSETS = torch.tensor([0, 2, 2, 7])


@pytest.mark.parametrize("padding", [-1, 3])
@pytest.mark.parametrize("by_frequency", [False, True])
def test_gradients_of_rows_are_added_up(padding: int, by_frequency: bool) -> None:
    gradient = torch.randn(2, 4, 5)
    indices = _INDICES.reshape(2, 4)
    check_operator(
        aten.embedding_dense_backward.default, gradient, indices, 6, padding, by_frequency
    )


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("padding", [-1, 3])
@pytest.mark.parametrize("last", [False, True])
def test_bags(mode: int, padding: int, last: bool) -> None:
    weight = torch.randn(6, 5)
    offsets = torch.cat([_OFFSETS, torch.tensor([8])]) if last else _OFFSETS
    # torch leaves all but the first result to its own backward, in a form that depends on the mode.
    check_operator(
        aten._embedding_bag.default,
        weight,
        _INDICES,
        offsets,
        False,
        mode,
        False,
        None,
        last,
        padding,
        ignore=(1, 2, 3),
    )


def test_weighted_bags() -> None:
    weight, weights = torch.randn(6, 5), torch.randn(8)
    arguments = (weight, _INDICES, _OFFSETS, False, 0, False, weights)
    check_operator(aten._embedding_bag.default, *arguments, ignore=(1, 2, 3))


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("padding", [-1, 3])
def test_gradients_of_bags(mode: int, padding: int) -> None:
    weight = torch.randn(6, 5)
    bags = aten._embedding_bag(weight, _INDICES, _OFFSETS, False, mode, padding_idx=padding)
    inside = torch.tensor([0, 0, 2, 2, 2, 2, 2, 3])
    check_operator(
        aten._embedding_bag_dense_backward.default,
        torch.randn(4, 5),
        _INDICES,
        inside,
        bags[2],
        bags[3],
        6,
        False,
        mode,
        None,
        padding,
    )


@pytest.mark.parametrize("padding", [-1, 3])
def test_gradients_of_the_weights_in_bags(padding: int) -> None:
    inside = torch.tensor([0, 0, 2, 2, 2, 2, 2, 3])
    gradient, weight = torch.randn(4, 5), torch.randn(6, 5)
    check_operator(
        aten._embedding_bag_per_sample_weights_backward.default,
        gradient,
        weight,
        _INDICES,
        _OFFSETS,
        inside,
        0,
        padding,
    )
