"""Values on their way into a run and out of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from samba_onnx.errors import InputError, UsageError
from samba_onnx.facts.dtypes import tensor_element
from samba_onnx.pef.manifest import Graph, Symbol
from samba_onnx.runtime.elements import Array
from samba_onnx.runtime.inputs import describe, fits, of_width, short_batch
from samba_onnx.sessions.traced import TracedGraph, matches
from samba_onnx.tensor import DEVICE, SambaTensor
from samba_onnx.tensor.arrays import from_array, to_array
from samba_onnx.tensor.marks import Marks, marks_of
from samba_onnx.tensor.native import natively


class FetchedOutput(NamedTuple):
    """An output of a run."""

    symbol: str
    """Name of the graph's output, or else of a place in device memory."""
    marks: Marks
    """Name, region and other marks of the tensor that is returned."""
    computed: bool
    """Whether the graph has it as an output; else it is read when the run is over."""


def fetched_outputs(
    graph: Graph, traced: TracedGraph | None, outputs: Any
) -> tuple[FetchedOutput, ...]:
    """Return what the outputs that a run is asked for mean.

    Args:
        graph: What is run.
        traced: Its tensors; None if it was not traced.
        outputs: Tensors or names, in a collection, a mapping or alone; None for none.

    Raises:
        UsageError: One has no name, or does not exist.
    """
    if outputs is None:
        return ()
    if isinstance(outputs, (torch.Tensor, str)):
        outputs = (outputs,)
    if isinstance(outputs, Mapping):
        outputs = outputs.values()
    return tuple(_fetched(graph, traced, *_output_name(output)) for output in outputs)


def input_arrays(
    graph: Graph,
    traced: TracedGraph | None,
    symbols: Mapping[str, Symbol],
    tensors: Mapping[str, torch.Tensor],
    host_tensors: Mapping[str, torch.Tensor],
) -> dict[str, Array]:
    """Return what the device is given, checked.

    Args:
        graph: What is run.
        traced: Its tensors; None if it was not traced.
        symbols: The inputs that it may be given, by name.
        tensors: What the run was given, by the names of tensors.
        host_tensors: Inputs that only the host has, by symbol; what the run was given counts more.

    Raises:
        InputError: An input does not exist, or has another shape or dtype.
    """
    arrays = {
        name: to_array(tensor)
        for name, tensor in host_tensors.items()
        if name in symbols and name not in tensors
    }
    for name, tensor in tensors.items():
        symbol = symbols.get(traced.symbol(name) if traced else name)
        if symbol is not None:
            arrays[symbol.name] = _checked(tensor, name, symbol)
        # A traced input that the program does not read is ignored; an unknown name is refused.
        elif traced is None or all(tensor.sn_name != name for tensor in traced.inputs):
            listed = ", ".join(f"{s.name!r} {describe(s.type, s.shape)}" for s in symbols.values())
            raise InputError(
                f"input {name!r} does not exist; graph {graph.name!r} has {listed or 'none'}: "
                "name the tensor as the one that was traced"
            )
    return arrays


def output_tensor(output: FetchedOutput, results: Mapping[str, Any]) -> SambaTensor:
    """Return a fresh tensor with the values of an output.

    Args:
        output: What is wanted.
        results: What the device returned, by symbol.

    Raises:
        UsageError: The value is no tensor that torch can hold.
    """
    if output.computed:
        value = results[output.symbol]
        if not hasattr(value, "dtype"):
            raise UsageError(
                f"output {output.marks.name!r} is {type(value).__name__}, which no tensor can "
                "hold: run the PEF with samba_onnx.Device"
            )
        tensor = from_array(value)
    else:
        tensor = DEVICE.store(output.symbol).read(output.symbol)
    return wrapped(tensor, output.marks)


def wrapped(tensor: torch.Tensor, marks: Marks) -> SambaTensor:
    """Return a plain tensor as a SambaTensor, as quickly as possible.

    Args:
        tensor: A leaf that nothing else refers to.
        marks: What the SambaTensor carries.
    """
    # Not by the constructor of SambaTensor, which does more than a fresh output needs.
    leaf: SambaTensor = torch.Tensor._make_subclass(SambaTensor, tensor, False)
    leaf._marks = marks
    return leaf


def _fetched(graph: Graph, traced: TracedGraph | None, name: str, region: str) -> FetchedOutput:
    """What a name among the outputs means."""
    symbol = traced.symbol(name) if traced else name
    marks = marks_of(name, "" if region == name else region)
    if symbol in graph.outputs:
        return FetchedOutput(symbol, marks, computed=True)
    # The symbol first: a region may be shared by several.
    for place in (symbol, region):
        if DEVICE.has(place):
            return FetchedOutput(place, marks, computed=False)
    listed = ", ".join(map(repr, graph.outputs))
    raise UsageError(
        f"output {name!r} does not exist; graph {graph.name!r} has outputs {listed}: ask for what the "
        "last trace_graph returned, for tensors of an earlier trace belong to another PEF"
    )


def _output_name(output: Any) -> tuple[str, str]:
    if isinstance(output, SambaTensor) and output.sn_name:
        return output.sn_name, output.sn_region_name
    if isinstance(output, str):
        return output, output
    raise UsageError(
        f"an output is {type(output).__name__} without a name; give tensors that trace_graph "
        "returned, as in model.output_tensors, or names"
    )


def _checked(tensor: torch.Tensor, name: str, symbol: Symbol) -> Array:
    """A tensor's array, if it fits the symbol; integers of another width are converted."""
    with natively():
        # The usual case, which needs no conversion.
        if matches(symbol, tensor):
            return to_array(tensor)
        array, element = to_array(tensor), tensor_element(symbol.type)
        if element is not None and fits(array.shape, symbol.shape):
            array = of_width(name, array, element.numpy)
        if not matches(symbol, from_array(array)):
            batch = symbol.batch_shape
            parts = "" if batch is None else f", mini-batches of {list(batch)} one after the other"
            raise InputError(
                f"input {name!r} is {tensor.dtype} of shape {list(tensor.shape)}, compiled was "
                f"{describe(symbol.type, symbol.shape)}{parts}: give that shape and dtype, or "
                f"compile for this one{short_batch(tensor.shape, symbol.shape)}"
            )
        return array
