"""Spatial mapping for the session: what compiling, tracing and running of many mini-batches needs.

Programs compile with the inputs of one mini-batch, and trace and run with those of all of them, one
after the other along the first dimension (the vendor's logistic regression, ``test_spatial``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from torch.utils import _pytree as pytree

from samba_onnx.errors import GraphMismatchError, UsageError
from samba_onnx.pef.manifest import Graph, Manifest, Symbol
from samba_onnx.sessions.arguments import MAPPINGS, SPATIAL
from samba_onnx.sessions.traced import TracedGraph, empty_output
from samba_onnx.tensor import SambaTensor
from samba_onnx.tensor.inputs import tensors_of

_MOST: Final = 2**31 - 1


def spatial_batches(options: Mapping[str, Any]) -> int:
    """Return the mini-batches of a run that settings ask for.

    Args:
        options: Settings of a compilation; ``mapping`` and ``num_spatial_batches`` count.

    Returns:
        1 or more in spatial mapping, 0 in section mapping.

    Raises:
        UsageError: There is no such mapping or number, or section mapping is to have several.
    """
    mapping = checked_mapping(options.get("mapping") or MAPPINGS[0])
    given = options.get("num_spatial_batches")
    count = 1 if given is None else given
    # bool is an int for Python, and nobody means 1 by True.
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= _MOST:
        raise UsageError(f"num_spatial_batches is {given!r}; give a number from 1 on")
    if mapping == SPATIAL:
        return count
    if count > 1:
        raise UsageError(
            f"num_spatial_batches is {count}, but mapping is {mapping!r}, whose runs take one batch: "
            "give mapping 'spatial', too, or leave num_spatial_batches out"
        )
    return 0


def checked_mapping(mapping: Any) -> str:
    """Return the name of a mapping in lower case.

    Args:
        mapping: As a user gave it.

    Raises:
        UsageError: There is no such mapping.
    """
    name = str(mapping).lower()
    if name not in MAPPINGS:
        raise UsageError(f"mapping is {mapping!r}; give one of {', '.join(MAPPINGS)}")
    return name


def refuse_other_mapping(mapping: str, graph: Graph, path: object) -> None:
    """Refuse to trace for spatial mapping what was compiled for section mapping.

    The other way round the PEF decides: section mapping is what programs give that say nothing.

    Args:
        mapping: What the user asks for.
        graph: The graph of the PEF.
        path: Where the PEF is, for messages.

    Raises:
        UsageError: There is no such mapping, or the PEF was compiled for the other one.
    """
    if checked_mapping(mapping) == SPATIAL and not graph.spatial_batches:
        raise UsageError(
            f"{path} was compiled for mapping 'section', but trace_graph was given 'spatial': "
            "compile with mapping 'spatial' and num_spatial_batches, too (on a command line "
            "--mapping spatial --num-spatial-batches N), or trace without"
        )


def refuse_batch_dimensions(inputs: Any) -> None:
    """Refuse inputs whose mini-batches do not lie along their first dimension.

    Args:
        inputs: Named tensors, as a model is compiled with.

    Raises:
        UsageError: One states another ``batch_dim``.
    """
    for tensor in tensors_of(inputs):
        if tensor.batch_dim not in (None, 0):
            raise UsageError(
                f"input {tensor.sn_name!r} has batch_dim {tensor.batch_dim}; in spatial mapping "
                "mini-batches follow each other along dimension 0: make that the batch's, and "
                "transpose inside forward"
            )


def one_mini_batch(inputs: Any, graph: Graph, manifest: Manifest) -> Any:
    """Return inputs as a model was compiled with them, of those of one mini-batch or of all.

    Args:
        inputs: Named tensors, nested in tuples, lists and dicts.
        graph: What was compiled; in section mapping all is left as it is.
        manifest: Its PEF's manifest.

    Raises:
        GraphMismatchError: An input holds another number of mini-batches than was compiled.
    """
    if not graph.spatial_batches:
        return inputs
    symbols = {symbol.name: symbol for symbol in manifest.symbols if symbol.batch_shape is not None}

    def cut(value: Any) -> Any:
        symbol = symbols.get(value.sn_name) if isinstance(value, SambaTensor) else None
        return value if symbol is None else _mini_batch(value, symbol, graph.spatial_batches)

    return pytree.tree_map(cut, inputs)


def with_all_mini_batches(
    traced: TracedGraph, inputs: Any, graph: Graph, manifest: Manifest
) -> TracedGraph:
    """Return a trace of one mini-batch with the tensors that runs are given and return.

    Args:
        traced: The trace of :func:`one_mini_batch`.
        inputs: The user's inputs.
        graph: What was compiled; in section mapping the trace stays as it is.
        manifest: Its PEF's manifest.
    """
    if not graph.spatial_batches:
        return traced
    symbols = {symbol.name: symbol for symbol in manifest.symbols if symbol.batch_shape is not None}
    outputs = tuple(
        empty_output(symbols[output.sn_name]) if output.sn_name in symbols else output
        for output in traced.outputs
    )
    tensors = tuple(dict.fromkeys(tensors_of(inputs)))
    return dataclasses.replace(traced, inputs=tensors, outputs=outputs)


def _mini_batch(tensor: SambaTensor, symbol: Symbol, batches: int) -> SambaTensor:
    shape = tuple(tensor.shape)
    # With one mini-batch both shapes are the same, and the other branch serves as well.
    if shape == symbol.batch_shape and shape != symbol.shape:
        return tensor
    if shape != symbol.shape:
        raise GraphMismatchError(
            f"input {symbol.name!r} has shape {list(shape)}, but a run of this PEF takes {batches} "
            f"mini-batches of {list(symbol.batch_shape or ())} in one tensor: give "
            f"{list(symbol.shape or ())}, or compile for another batch_size or num_spatial_batches"
        )
    made = SambaTensor(shape=symbol.batch_shape, dtype=tensor.dtype, name=tensor.sn_name)
    if tensor.has_data:
        # Values too, where there are any: the first mini-batch stands for all of them.
        plain = tensor.torch().detach()
        first = plain.narrow(0, 0, symbol.batch_shape[0]) if symbol.batch_shape else plain[0]
        made = SambaTensor(first, name=tensor.sn_name)
    made.requires_grad_(tensor.requires_grad)
    return made
