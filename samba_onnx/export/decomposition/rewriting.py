"""Operators that are written with others before a graph is differentiated.

Either because their own backward operator cannot be written in ONNX, or because a dropout inside
takes its mask from the graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from samba_onnx.export.decomposition import fake_quantization, linear_systems, recurrent_stacks
from samba_onnx.export.decomposition.dropout import Draw, dropout, dropped
from samba_onnx.export.decomposition.grid_sampling import grid_sampler
from samba_onnx.export.decomposition.margin_losses import multi_margin_loss, multilabel_margin_loss
from samba_onnx.export.decomposition.segments import segment_reduce

aten = torch.ops.aten

Rewriting: TypeAlias = Callable[..., Any]
"""Called with the operator's own arguments."""

_SPARSE: Final = 4
"""Position of the argument of ``embedding`` that says whether its gradient is sparse."""
_NARROW: Final = (torch.float16, torch.bfloat16)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    draw: Draw | None = None,
) -> Tensor:
    """Compute scaled dot-product attention; names and meaning are torch's.

    Narrow types are computed in float32, as torch does. A row without anything to attend to gives
    zeros and has no gradient.

    Args:
        query: (..., heads, L, E).
        key: (..., heads, S, E).
        value: (..., heads, S, Ev).
        attn_mask: True or a number to add, broadcast to (..., heads, L, S).
        dropout_p: Not read: the rate is the draw's.
        is_causal: Whether position i attends to positions up to i only.
        scale: Factor of the scores; 1/sqrt(E) when None.
        enable_gqa: Whether several heads of the query share one of key and value.
        draw: Mask of the dropout on attention weights, if there is one.

    Returns:
        (..., heads, L, Ev), of the query's type.
    """
    dtype = query.dtype
    if dtype in _NARROW:
        query, key, value = query.float(), key.float(), value.float()
        if attn_mask is not None and attn_mask.dtype == dtype:
            attn_mask = attn_mask.float()
    if enable_gqa:
        key, value = _shared(key, query), _shared(value, query)
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    scores = (query * factor) @ key.transpose(-2, -1)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    alive = None if attn_mask is None or is_causal else _attends(attn_mask)
    if attn_mask is not None:
        scores = _masked(scores, attn_mask, alive)
    weights = torch.softmax(scores, -1)
    if draw is not None:
        weights = dropout(draw, weights)
    result = weights @ value
    return (result if alive is None else torch.where(alive, result, 0.0)).to(dtype)


def _shared(tensor: Tensor, query: Tensor) -> Tensor:
    """Repeat every head of key or value for all heads of the query that share it."""
    times = query.shape[-3] // tensor.shape[-3]
    return tensor if times == 1 else tensor.repeat_interleave(times, dim=-3)


def _attends(attn_mask: Tensor) -> Tensor:
    """Return which rows attend to anything."""
    open_ = attn_mask if attn_mask.dtype == torch.bool else attn_mask != float("-inf")
    return open_.any(-1, keepdim=True)


def _masked(scores: Tensor, attn_mask: Tensor, alive: Tensor | None) -> Tensor:
    """Mask scores, finite everywhere in a row without anything to attend to."""
    if attn_mask.dtype == torch.bool:
        return torch.where(attn_mask, scores, torch.finfo(scores.dtype).min)
    assert alive is not None
    return scores + torch.where(alive, attn_mask, 0.0)


def _weight_norm(direction: Tensor, magnitude: Tensor, dim: int = 0) -> Tensor:
    axes = [axis for axis in range(direction.dim()) if axis != dim % direction.dim()]
    norm = (direction * direction).sum(axes, keepdim=True).sqrt()
    return direction * (magnitude / norm)


def _product(
    value: Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    value = value if dtype is None else value.to(dtype)
    if value.dim() == 0 or value.shape[dim] == 0:
        return value if value.dim() == 0 else value.sum(dim, keepdim) + 1
    slices = value.unbind(dim)
    # Factor by factor: a gradient by quotients would fail at zeros.
    result = slices[0]
    for factor in slices[1:]:
        result = result * factor
    return result.unsqueeze(dim) if keepdim else result


def _bilinear(left: Tensor, right: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    result = torch.einsum("...i,kij,...j->...k", left, weight, right)
    return result if bias is None else result + bias


def _distances(left: Tensor, right: Tensor, p: float = 2.0, mode: int | None = None) -> Tensor:
    return _lengths(left.unsqueeze(-2) - right.unsqueeze(-3), p)


def _distances_of_rows(value: Tensor, p: float = 2.0) -> Tensor:
    rows, others = torch.triu_indices(len(value), len(value), 1, device=value.device)
    return _lengths(value[rows] - value[others], p)


class _Largest(torch.autograd.Function):
    """The largest number of the last axis; each of several has the whole gradient, as in torch."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        result = value.amax(-1)
        ctx.save_for_backward(value, result)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        value, result = ctx.saved_tensors
        return torch.where(value == result.unsqueeze(-1), gradient.unsqueeze(-1), 0.0)


def _lengths(difference: Tensor, p: float) -> Tensor:
    """Return norms over the last axis, whose gradient is zero where they are."""
    if p == 0.0:
        # Zero times the sum gives a gradient, of zeros, as in torch.
        return (difference.detach() != 0).to(difference.dtype).sum(-1) + 0.0 * difference.sum(-1)
    if p == 1.0:
        return difference.abs().sum(-1)
    if p == float("inf"):
        largest = difference.abs()
        is_constant = not (torch.is_grad_enabled() and largest.requires_grad)
        return largest.amax(-1) if is_constant else _Largest.apply(largest)  # type: ignore[no-untyped-call]
    powers = difference * difference if p == 2.0 else difference.abs().pow(p)
    total = powers.sum(-1)
    # A root's gradient is infinite at zero, where torch says zero.
    apart = total > 0
    safe = torch.where(apart, total, 1.0)
    return torch.where(apart, safe.sqrt() if p == 2.0 else safe.pow(1 / p), 0.0)


def _index_fill(value: Tensor, dim: int, index: Tensor, content: Tensor) -> Tensor:
    if value.dim() == 0:
        return torch.where(torch.tensor(index.numel() > 0), content, value)
    size = value.shape[dim]
    # Modulo the size, as negative indices count from the end.
    chosen = (torch.arange(size, device=value.device) == index.reshape(-1, 1) % size).any(0)
    shape = [1] * value.dim()
    shape[dim] = size
    return torch.where(chosen.reshape(shape), content, value)


def _put_where_true(
    value: Tensor, indices: Sequence[Tensor | None], content: Tensor, accumulate: bool = False
) -> Tensor:
    """Write rows one after the other where a mask, the only index, is true."""
    first, mask = next((i, one) for i, one in enumerate(indices) if one is not None)
    behind = value.dim() - first - mask.dim()
    chosen = mask.reshape(*mask.shape, *[1] * behind)
    rows = content.dim() - behind - 1
    if rows >= 0 and content.shape[rows] != 1:
        order = (mask.reshape(-1).cumsum(0) - 1).clamp(0, content.shape[rows] - 1)
        taken = content.index_select(rows, order)
        content = taken.reshape(*taken.shape[:rows], *mask.shape, *taken.shape[rows + 1 :])
    elif rows >= 0:
        ones = [1] * mask.dim()
        content = content.reshape(*content.shape[:rows], *ones, *content.shape[rows + 1 :])
    return torch.where(chosen, value + content if accumulate else content, value)


def _index_put(
    value: Tensor, indices: Sequence[Tensor | None], content: Tensor, accumulate: bool = False
) -> Tensor:
    tensors = [index for index in indices if index is not None]
    if len(tensors) == 1 and tensors[0].dtype == torch.bool and content.numel():
        return _put_where_true(value, indices, content, accumulate)
    result: Tensor = aten.index_put.default(value, indices, content, accumulate)
    return result


def _dense_embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Look up rows; the gradient is dense, with zeros for rows that are not looked up."""
    result: Tensor = aten.embedding.default(weight, indices, padding_idx, scale_grad_by_freq, False)
    return result


def _recurrent(
    function: Callable[..., tuple[Tensor, ...]],
    value: Tensor,
    hx: Any,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout_p: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    *,
    draw: Draw | None = None,
) -> tuple[Tensor, ...]:
    """Compute a stack of recurrent layers with dropout between them; arguments are ATen's."""
    options = {"has_biases": has_biases, "dropout": 0.0, "train": train}
    options |= {"bidirectional": bidirectional, "batch_first": batch_first}
    if draw is None:
        return function(value, hx, params, num_layers=num_layers, **options)
    directions = 2 if bidirectional else 1
    width = len(params) // num_layers
    finals: list[Sequence[Tensor]] = []
    masks: Tensor | None = None
    for layer in range(num_layers):
        if layer:
            # One mask for all layers, which are one site with one stream.
            masks = draw.mask((num_layers - 1, *value.shape)) if masks is None else masks
            value = dropped(draw, value, masks[layer - 1])
        rows = slice(layer * directions, (layer + 1) * directions)
        states = hx[rows] if isinstance(hx, Tensor) else [state[rows] for state in hx]
        weights = params[layer * width : (layer + 1) * width]
        value, *final = function(value, states, weights, num_layers=1, **options)
        finals.append(final)
    return value, *(torch.cat(parts) for parts in zip(*finals, strict=True))


def _reflected(
    value: Tensor, factors: Tensor, other: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    """Multiply by the orthogonal matrix of a QR decomposition, one reflection after the other."""
    if not left:
        return _reflected(value, factors, other.mT, transpose=not transpose).mT
    height, width = value.shape[-2:]
    vectors = value.tril(-1) + torch.eye(height, width, dtype=value.dtype, device=value.device)
    columns = range(factors.shape[-1])
    for column in columns if transpose else reversed(columns):
        vector = vectors[..., column : column + 1]
        factor = factors[..., column, None, None]
        other = other - factor * (vector @ (vector.mT @ other))
    return other


def _linear_cross_entropy(
    value: Tensor,
    matrix: Tensor,
    target: Tensor,
    bias: Tensor | None,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    *_: Any,
) -> tuple[Tensor | None, ...]:
    """Compute a loss of a linear layer at once; its gradients, also results, come by themselves."""
    scores = functional.linear(value, matrix, bias)
    loss = functional.cross_entropy(
        scores,
        target,
        weight,
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )
    return loss, None, None, None


def _linear_cross_entropies(
    value: Tensor,
    matrix: Tensor,
    target: Tensor,
    bias: Tensor | None,
    weight: Tensor | None,
    ignore_index: int,
    *_: Any,
) -> Tensor | None:
    """Compute the loss of every row of a linear layer at once."""
    operands = (value, matrix, target, bias, weight)
    return _linear_cross_entropy(*operands, "none", ignore_index, 0.0)[0]


_RECURRENT: Final = MappingProxyType(
    {
        aten.lstm.input: recurrent_stacks.lstm,
        aten.gru.input: recurrent_stacks.gru,
        aten.rnn_tanh.input: functools.partial(recurrent_stacks.rnn, "tanh"),
        aten.rnn_relu.input: functools.partial(recurrent_stacks.rnn, "relu"),
    }
)


REWRITINGS: Final = MappingProxyType(
    {
        aten._weight_norm.default: _weight_norm,
        aten.prod.dim_int: _product,
        aten.bilinear.default: _bilinear,
        aten.cdist.default: _distances,
        aten.pdist.default: _distances_of_rows,
        aten.det.default: linear_systems.determinant,
        aten.linalg_det.default: linear_systems.determinant,
        aten.slogdet.default: linear_systems.log_determinant,
        aten.linalg_slogdet.default: linear_systems.log_determinant,
        aten.logdet.default: linear_systems.logarithm_of_determinant,
        aten.linalg_solve.default: linear_systems.solve,
        aten.linalg_solve_ex.default: linear_systems.solve_ex,
        aten.linalg_tensorsolve.default: linear_systems.tensorsolve,
        aten.fake_quantize_per_tensor_affine_cachemask.default: fake_quantization.per_tensor,
        aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: (
            fake_quantization.per_tensor_if_enabled
        ),
        aten.fake_quantize_per_channel_affine_cachemask.default: fake_quantization.per_channel,
        aten._fake_quantize_learnable_per_tensor_affine.default: (
            fake_quantization.learnable_per_tensor
        ),
        aten._fake_quantize_learnable_per_channel_affine.default: (
            fake_quantization.learnable_per_channel
        ),
        aten._fused_moving_avg_obs_fq_helper_functional.default: fake_quantization.observed,
        aten.grid_sampler_3d.default: grid_sampler,
        aten.index_fill.int_Tensor: _index_fill,
        aten.index_put.default: _index_put,
        aten.multi_margin_loss.default: multi_margin_loss,
        aten.multilabel_margin_loss.default: multilabel_margin_loss,
        aten.ormqr.default: _reflected,
        aten.resize.default: fake_quantization.resized,
        aten.segment_reduce.default: segment_reduce,
        aten.grid_sampler.default: grid_sampler,
        aten.grid_sampler_2d.default: grid_sampler,
    }
)
"""What is called in the place of an operator."""

_CUSTOM: Final[Mapping[str, Rewriting]] = MappingProxyType(
    {
        "torch_nn::_linear_cross_entropy_batch_chunked": _linear_cross_entropy,
        "torch_nn::_linear_cross_entropy_batch_chunked_no_reduction": _linear_cross_entropies,
    }
)
"""The same for operators that torch defines when they are first called."""


def rewritten(target: object, args: Sequence[Any], draw: Draw | None) -> Rewriting | None:
    """Return what to call in the place of an operator, None if that is itself.

    Args:
        target: An operator of an exported graph.
        args: Its positional operands.
        draw: The mask of a dropout inside it.
    """
    if target is aten.scaled_dot_product_attention.default:
        return functools.partial(attention, draw=draw)
    function = _RECURRENT.get(target)  # type: ignore[call-overload]
    if function is not None and not _is_projected(args):
        return functools.partial(_recurrent, function, draw=draw)
    if target is aten.embedding.default and len(args) > _SPARSE and args[_SPARSE]:
        return _dense_embedding
    custom = _CUSTOM.get(target._schema.name) if isinstance(target, torch._ops.OpOverload) else None
    rewriting: Rewriting | None = REWRITINGS.get(target, custom)  # type: ignore[call-overload]
    return rewriting


def _is_projected(args: Sequence[Any]) -> bool:
    """Return whether a recurrent operator has projections, which have weights of their own."""
    _, _, params, has_biases, num_layers, _, _, bidirectional, _ = args
    width = 4 if has_biases else 2
    return bool(len(params) != width * num_layers * (2 if bidirectional else 1))
