"""What values and sections cost: bytes, arithmetic operations and modelled seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from samba_onnx.facts.dtypes import plain_name
from samba_onnx.passes.planning.flops import node_flops
from samba_onnx.passes.planning.products import is_product, product_size, renames
from samba_onnx.passes.planning.sizes import value_bytes
from samba_onnx.passes.sharding.collectives import collective
from samba_onnx.pef.target_summary import TargetSummary
from samba_onnx.pef.timing import SectionTime, TimingFigures

__all__ = ["Cost", "cost", "node_dtype", "node_flops", "value_bytes"]


def node_dtype(node: ir.Node) -> str:
    """Return the data type that a node computes in, as the target's peak figures name it.

    Args:
        node: A node with inferred types.

    Returns:
        The type of its first floating-point operand or result (``bfloat16``, ``float32``), else of
        its first typed operand or result (``int64``); empty where no type is known. A product of bfloat16
        that returns float32 reads it through Casts, and is one in ``bfloat16`` all the same: the device
        adds up in float32 anyway.
    """
    if is_product(node) and all(map(_is_widened, filter(None, node.inputs))):
        return "bfloat16"
    types = [
        value.dtype
        for value in (*node.inputs, *node.outputs)
        if value is not None and value.dtype is not None
    ]
    for dtype in types:
        if dtype.is_floating_point():
            return plain_name(dtype.name)
    return plain_name(types[0].name) if types else ""


def _is_widened(value: ir.Value) -> bool:
    producer = value.producer()
    return (
        producer is not None
        and producer.op_type == "Cast"
        and producer.inputs[0] is not None
        and producer.inputs[0].dtype == ir.DataType.BFLOAT16
    )


@dataclass(frozen=True)
class Cost:
    """What one execution of a section costs."""

    flops: int
    bytes: int
    """Read and written in off-chip memory."""
    time: SectionTime
    """The parts of the modelled time."""

    @property
    def seconds(self) -> float:
        """Modelled time of one execution."""
        return self.time.seconds


def cost(
    nodes: Iterable[ir.Node], traffic: Mapping[str, Sequence[int]], target: TargetSummary
) -> Cost:
    """Return the modelled cost of a section.

    Args:
        nodes: The section's nodes in the order in which they run.
        traffic: Bytes of each value that one execution reads or writes, by tier of off-chip memory.
        target: The device's figures. A data type without a published peak counts at the slowest
            published one.

    Returns:
        The cost. Compute, on-chip traffic and off-chip traffic go on at the same time. An exchange
        between RDUs has no time of its own: the values are on their way, which the transfer counts. Nor
        has a section that only renames elements: whoever reads them computes other addresses.
    """
    nodes = tuple(nodes)
    flops = [node_flops(node) for node in nodes]
    moved = sum(map(sum, traffic.values()))
    only_addresses = target.timing is not None and all(renames(node) for node in nodes)
    if only_addresses or collective(nodes) is not None:
        return Cost(sum(flops), moved, SectionTime())
    timing = target.timing
    return Cost(
        flops=sum(flops),
        bytes=moved,
        time=SectionTime(
            launch=0.0 if timing is None else timing.launch_seconds,
            compute=_compute_seconds(nodes, flops, target),
            on_chip=0.0 if timing is None else _on_chip_seconds(nodes, target),
            off_chip=target.traffic_seconds(traffic),
            fill=0.0 if timing is None else timing.fill_seconds * _longest_path(nodes),
        ),
    )


def _compute_seconds(
    nodes: Sequence[ir.Node], flops: Sequence[int], target: TargetSummary
) -> float:
    """Return the time of a section's arithmetic."""
    slowest = min(target.peak_flops.values(), default=0.0)
    share = _product_efficiency(nodes, target)
    ideal: dict[str, float] = {}
    for node, operations in zip(nodes, flops, strict=True):
        if operations:
            name = node_dtype(node)
            needed = _peak_operations(node, operations, share, target.timing)
            ideal[name] = ideal.get(name, 0.0) + needed
    peaks = {name: target.peak_flops.get(name, slowest) for name in ideal}
    times = (needed / peaks[name] for name, needed in ideal.items() if peaks[name] > 0)
    return sum(times, start=0.0)


def _product_efficiency(nodes: Sequence[ir.Node], target: TargetSummary) -> float:
    """Return the share of its peak rate that the products of a section reach."""
    timing = target.timing
    if timing is None:
        return 1.0
    products = [node for node in nodes if is_product(node)]
    if len(products) != 1:
        return timing.tuned_efficiency if timing.tuned else timing.fused_efficiency
    values = (*products[0].inputs, *products[0].outputs)
    size = sum(value_bytes(value) or 0 for value in values if value is not None)
    streamed = size > target.tier("sram").bytes
    return timing.product_efficiency * (timing.streamed_share if streamed else 1.0)


def _peak_operations(
    node: ir.Node, operations: int, share: float, timing: TimingFigures | None
) -> float:
    """Return how many operations the device could have done at peak rate in the time of a node."""
    if timing is None:
        return float(operations)
    one_by_one = operations / timing.vector_efficiency
    if not is_product(node):
        return one_by_one
    size = product_size(node)
    filled = operations if size is None else max(size.filled_flops(timing), operations)
    return min(filled / share, one_by_one)


def _on_chip_seconds(nodes: Sequence[ir.Node], target: TargetSummary) -> float:
    """Return the time in which on-chip memory passes every operand and result once."""
    moved = sum(
        value_bytes(value) or 0
        for node in nodes
        for value in (*node.inputs, *node.outputs)
        if value is not None
    )
    return moved / target.tier("sram").bytes_per_second


def _longest_path(nodes: Sequence[ir.Node]) -> int:
    """Return the operators on the longest path through a section; ``nodes`` in topological order."""
    depths: dict[ir.Value, int] = {}
    longest = 0
    for node in nodes:
        before = max((depths.get(v, 0) for v in node.inputs if v is not None), default=0)
        depths.update(dict.fromkeys(node.outputs, before + 1))
        longest = max(longest, before + 1)
    return longest
