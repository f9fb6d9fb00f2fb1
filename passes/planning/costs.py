"""What values and sections cost: bytes, arithmetic operations and modelled seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from samba_onnx.facts.dtypes import ELEMENT_TYPES, plain_name
from samba_onnx.passes.planning.flops import node_flops
from samba_onnx.pef.packing import packed_bytes
from samba_onnx.pef.target_summary import TargetSummary
from samba_onnx.program.dataflow import dimensions

__all__ = ["Cost", "cost", "node_dtype", "node_flops", "value_bytes"]


def value_bytes(value: ir.Value) -> int | None:
    """Return the size of a value in memory.

    Args:
        value: A value of the graph; for an initializer only type and shape are looked at, its
            content is not read.

    Returns:
        Bytes, elements of less than a byte packed (three int4 elements take two bytes); None where
        the type or a dimension is not known, and for strings and values that are no tensors.
    """
    if type(value.type) is ir.SparseTensorType:
        return None
    dtype, shape = value.dtype, dimensions(value)
    if dtype is None and value.const_value is not None:
        dtype = value.const_value.dtype
    element = None if dtype is None else ELEMENT_TYPES.get(dtype.name.lower())
    if element is None or shape is None:
        return None
    sizes = [size for size in shape if isinstance(size, int)]
    return packed_bytes(element, sizes) if len(sizes) == len(shape) else None


def node_dtype(node: ir.Node) -> str:
    """Return the data type that a node computes in, as the target's peak figures name it.

    Args:
        node: A node with inferred types.

    Returns:
        The type of its first floating-point operand or result (``bfloat16``, ``float32``), else of
        its first typed operand or result (``int64``); empty where no type is known.
    """
    types = [
        value.dtype
        for value in (*node.inputs, *node.outputs)
        if value is not None and value.dtype is not None
    ]
    for dtype in types:
        if dtype.is_floating_point():
            return plain_name(dtype.name)
    return plain_name(types[0].name) if types else ""


@dataclass(frozen=True)
class Cost:
    """What one execution of a section costs."""

    flops: int
    bytes: int
    """Read and written in off-chip memory."""
    seconds: float
    """Modelled: the longer of arithmetic at peak rate and off-chip traffic at full bandwidth."""


def cost(nodes: Iterable[ir.Node], traffic: Mapping[str, int], target: TargetSummary) -> Cost:
    """Return the modelled cost of a section.

    Args:
        nodes: The section's nodes.
        traffic: Bytes that one execution reads and writes, by tier of off-chip memory.
        target: The device's figures. A data type without a published peak counts at the slowest
            published one.

    Returns:
        The cost; the tiers are taken one after another, arithmetic at the same time.
    """
    flops: dict[str, int] = {}
    for node in nodes:
        operations = node_flops(node)
        if operations:
            name = node_dtype(node)
            flops[name] = flops.get(name, 0) + operations
    slowest = min(target.peak_flops.values(), default=0.0)
    compute = 0.0
    for name, operations in flops.items():
        peak = target.peak_flops.get(name, slowest)
        compute += operations / peak if peak > 0 else 0.0
    memory = 0.0
    for name, moved in traffic.items():
        memory += moved / target.tier(name).bytes_per_second
    return Cost(
        flops=sum(flops.values()), bytes=sum(traffic.values()), seconds=max(compute, memory)
    )
