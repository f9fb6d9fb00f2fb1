"""Which operators of a graph that is differentiated are taken apart, and into what."""

from __future__ import annotations

import functools
from typing import Any, Final

import torch
from torch import Tensor
from torch._decomp import core_aten_decompositions, decomposition_table

import samba_onnx.export.operators  # noqa: F401  fills the table
from samba_onnx.export.operators.registry import find

aten = torch.ops.aten

# Their backward needs a comparison only, which decomposition brings to light.
_ALWAYS_DECOMPOSED: Final = frozenset({"threshold_backward"})


@functools.cache
def decompositions() -> dict[Any, Any]:
    """Return the decompositions to trace with: none of what can be written in ONNX as it is."""
    core = core_aten_decompositions()
    table = {}
    for target, decomposition in decomposition_table.items():
        if not isinstance(target, torch._ops.OpOverload):
            continue
        namespace, _, name = target._schema.name.partition("::")
        if name not in _ALWAYS_DECOMPOSED and find(namespace, name, target._overloadname):
            continue
        if target in core or name.endswith(("_backward", "_backward_data")):
            table[target] = decomposition
    # What batch normalisation becomes below stays whole.
    for target in (
        aten._native_batch_norm_legit.default,
        aten._native_batch_norm_legit_functional.default,
        aten._native_batch_norm_legit_no_training.default,
    ):
        table.pop(target, None)
    table[aten.native_batch_norm.default] = _batch_norm
    table[aten._embedding_bag_backward.default] = _embedding_bag_backward
    table[aten._embedding_bag_per_sample_weights_backward.default] = _bag_weights_backward
    return table


def _embedding_bag_backward(
    gradient: Tensor,
    indices: Tensor,
    offsets: Tensor,
    bags: Tensor,
    sizes: Tensor,
    maxima: Tensor,
    rows: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    weights: Tensor | None,
    padding_idx: int = -1,
) -> Tensor:
    """Compute a dense gradient."""
    bags = _bags(indices, offsets, bags)
    dense = aten._embedding_bag_dense_backward.default
    result: Tensor = dense(
        gradient,
        indices,
        bags,
        sizes,
        maxima,
        rows,
        scale_grad_by_freq,
        mode,
        weights,
        padding_idx,
    )
    return result


def _bag_weights_backward(
    gradient: Tensor,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    bags: Tensor,
    mode: int,
    padding_idx: int = -1,
) -> Tensor:
    """Compute the gradient of the weights of a bag's members: what each adds to its bag."""
    bags = _bags(indices, offsets, bags)
    products = (gradient.index_select(0, bags) * weight.index_select(0, indices)).sum(1)
    # Padding adds nothing to its bag.
    return products if padding_idx < 0 else torch.where(indices == padding_idx, 0.0, products)


def _bags(indices: Tensor, offsets: Tensor, bags: Tensor) -> Tensor:
    """Return which bag each index lies in; a fast forward leaves that out."""
    if bags.numel() == indices.numel():
        return bags
    positions = torch.arange(indices.numel(), device=indices.device)
    # As many bags have begun at a position as there are offsets up to it.
    return (positions.unsqueeze(0) >= offsets.unsqueeze(1)).sum(0) - 1


def _batch_norm(
    value: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """Normalise a batch, and say that the running statistics change, which torch's schema hides."""
    if mean is None or variance is None:
        no_stats = aten._native_batch_norm_legit.no_stats
        result: tuple[Tensor, ...] = no_stats(value, weight, bias, training, momentum, eps)
        return result
    operands = (value, weight, bias, mean, variance)
    if not training:
        result = aten._native_batch_norm_legit_no_training.default(*operands, momentum, eps)
        return result
    functional = aten._native_batch_norm_legit_functional.default
    *result, new_mean, new_variance = functional(*operands, training, momentum, eps)
    # In place for now: functionalisation makes results of what is written.
    mean.copy_(new_mean)
    variance.copy_(new_variance)
    return tuple(result)
