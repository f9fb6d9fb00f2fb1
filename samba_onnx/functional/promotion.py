"""Products of bfloat16 with float32, which torch refuses and SambaFlow computes in float32.

The vendor's manual of SambaTensors: "In instances where an operation involves input SambaTensors of
different data types, SambaFlow will follow the dtype promotion rules that PyTorch uses to do the
computation [...]. For example, when calling samba.add with one input of dtype bfloat16 and the other
input of dtype float32, the bfloat16 SambaTensor will be promoted to float32."

Torch's elementwise functions promote by themselves. The functions of :data:`PROMOTED` do not: they
refuse operands of two types. What torch computes of two types, as a layer norm of bfloat16 with
weights of float32, stays as torch computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from samba_onnx.functional.table import is_in_place

__all__ = ["PROMOTED", "Promotion", "mixes_types", "promoted"]

_NORMS: Final = frozenset({"batch_norm", "group_norm", "instance_norm", "layer_norm"})
"""Normalisations: torch takes weights of float32 for data of bfloat16, and not the reverse."""
_STATISTICS: Final[Mapping[Callable[..., Any], tuple[int, int]]] = MappingProxyType(
    {
        functional.batch_norm: (1, 2),
        functional.instance_norm: (1, 2),
        torch.batch_norm: (3, 4),
        torch.instance_norm: (3, 4),
    }
)
"""Positions of the running statistics that normalisations write while they train."""
_TRAINS: Final = 5
"""Position of the argument that says whether they do, in all four."""

PROMOTED: Final = frozenset(
    {
        # products
        *("__matmul__", "__rmatmul__", "addbmm", "addmm", "addmv", "baddbmm", "bilinear", "bmm"),
        *("chain_matmul", "dot", "einsum", "inner", "linear", "matmul", "mm", "multi_dot", "mv"),
        *("linalg_matmul", "linalg_multi_dot", "linalg_vecdot", "tensordot", "vdot", "vecdot"),
        *("cdist", "cross", "linalg_cross", "lerp", "prelu", "linalg_solve", "solve"),
        *("multi_head_attention_forward", "scaled_dot_product_attention"),
        # convolutions, lookups with weights, and sampling
        *("conv1d", "conv2d", "conv3d", "convolution"),
        *("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        *("embedding_bag", "grid_sample", "grid_sampler"),
        # recurrent layers, also as one operator per direction, and their cells
        *("gru_layer", "lstm_layer", "rnn_layer"),
        *("gru", "gru_cell", "lstm", "lstm_cell", "rnn_relu", "rnn_relu_cell"),
        *("rnn_tanh", "rnn_tanh_cell"),
        # losses with weights of classes, or targets in another type than the predictions
        *("binary_cross_entropy", "cross_entropy", "cross_entropy_loss", "linear_cross_entropy"),
        *("multi_margin_loss", "nll_loss"),
        # writing into a tensor at places
        *("index_add", "index_copy", "index_put", "masked_scatter", "scatter", "scatter_add"),
        *("scatter_reduce", "index_reduce"),
        *_NORMS,
    }
)
"""Names of functions and methods that torch refuses to call with bfloat16 and float32 together."""
_PAIR: Final = frozenset({torch.bfloat16, torch.float32})


def mixes_types(values: Any) -> bool:
    """Return whether there are tensors of bfloat16 and of float32.

    Args:
        values: Tensors and others, nested or not.
    """
    return set(_floating_types(values)) >= _PAIR


def promoted(
    function: Callable[..., Any], args: tuple[Any, ...], keywords: Mapping[str, Any]
) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Return the arguments of a call with bfloat16 as float32, if torch refuses the two together.

    Args:
        function: A function of torch. The arguments of one that promotes by itself, or that writes
            into a tensor of bfloat16, are returned as they are.
        args: Its positional arguments.
        keywords: Its keyword arguments.
    """
    name = getattr(function, "__name__", "").partition(".")[0]
    # Only here is a trailing underscore cut off: ``__matmul__`` has one of another meaning.
    writes = not name.startswith("__") and is_in_place(function)
    if (name.rstrip("_") if writes else name) not in PROMOTED:
        return args, keywords
    # Half and double precision with others stay refused: the manual speaks of no such pair.
    if set(_floating_types((args, keywords))) != _PAIR:
        return args, keywords
    target = args[0] if writes or (name in _NORMS and args) else keywords.get("out")
    if isinstance(target, Tensor) and _type(target) is torch.bfloat16:
        return args, keywords
    wide: tuple[tuple[Any, ...], Mapping[str, Any]] = pytree.tree_map(
        _widened, (args, dict(keywords))
    )
    return wide


class Promotion(TorchFunctionMode):
    """Within this context, torch computes products of bfloat16 with float32 in float32."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call a function with operands that torch takes together; called by torch."""
        return call_promoted(func, args, kwargs or {})


def call_promoted(
    function: Callable[..., Any], args: tuple[Any, ...], keywords: Mapping[str, Any]
) -> Any:
    """Call a function with its operands promoted; running statistics keep place and type.

    Args:
        function: A function of torch.
        args: Its positional arguments.
        keywords: Its keyword arguments.
    """
    wide, named = promoted(function, args, keywords)
    result = function(*wide, **named)
    # A normalisation has written into the wide copies of its statistics.
    if wide is not args and _trains(function, args, keywords):
        for own, copy in _statistics(function, (args, keywords), (wide, named)):
            if own is not copy:
                own.copy_(copy)
    return result


_Call: TypeAlias = tuple[tuple[Any, ...], Mapping[str, Any]]


def _trains(
    function: Callable[..., Any], args: tuple[Any, ...], keywords: Mapping[str, Any]
) -> bool:
    """Return whether a call is one of a normalisation that writes running statistics."""
    if function not in _STATISTICS:
        return False
    if len(args) > _TRAINS:
        return bool(args[_TRAINS])
    # Instance norms compute statistics of the data unless they are told not to.
    return bool(
        keywords.get("training", keywords.get("use_input_stats", "instance" in function.__name__))
    )


def _statistics(
    function: Callable[..., Any], before: _Call, after: _Call
) -> Iterator[tuple[Any, Any]]:
    """Yield the running statistics of a normalisation, each with what was given in its place."""
    for place in _STATISTICS[function]:
        if place < len(before[0]):
            yield before[0][place], after[0][place]
    for key in ("running_mean", "running_var"):
        if key in before[1]:
            yield before[1][key], after[1][key]


def _floating_types(values: Any) -> Iterator[torch.dtype]:
    for leaf in pytree.tree_leaves(values):
        if isinstance(leaf, Tensor) and _type(leaf).is_floating_point:
            yield _type(leaf)


def _type(tensor: Tensor) -> torch.dtype:
    # Not through modes that answer with the type in which a tensor will be read.
    with torch._C.DisableTorchFunction():
        return tensor.dtype


def _widened(leaf: Any) -> Any:
    is_narrow = isinstance(leaf, Tensor) and _type(leaf) is torch.bfloat16
    return leaf.float() if is_narrow else leaf
