"""What a section has to do, before any rate says how long that takes: its operations and its bytes.

A time follows from these terms and the figures of a target alone. So other efficiencies and bandwidths can be
tried, as when they are fitted to published times, without a program being compiled again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import onnx_ir as ir

from samba_onnx.passes.sharding.collectives import exchanges
from samba_onnx.passes.timing.maps import crossing_maps, positions
from samba_onnx.passes.timing.matrix_products import (
    is_product,
    node_dtype,
    product_size,
    renames,
    widened_for,
)
from samba_onnx.passes.timing.node_work import node_flops, value_bytes
from samba_onnx.passes.timing.traffic import traffic_seconds
from samba_onnx.pef.stage_records import SectionTime
from samba_onnx.pef.target_summary import TargetSummary, TimingFigures
from samba_onnx.program.dataflow import reads
from samba_onnx.program.repetition import repetition

__all__ = ["Arithmetic", "SectionTerms", "section_terms"]

_OVERFLOW: Final = 0.025
"""By which share operands and result exceed on-chip memory where all of a product is executed in pieces."""


@dataclass(frozen=True)
class Arithmetic:
    """The arithmetic of one operator."""

    dtype: str
    """The type that it computes in, as the target's peak figures name it."""
    operations: int
    filled: int = 0
    """What the device could have done in the time of a product at its best, with sizes rounded up to granules and
    some units idle; 0 for an operator that goes through elements."""

    def at_peak(self, share: float, timing: TimingFigures | None) -> float:
        """Return how many operations the device could have done at peak rate in the time of these.

        Args:
            share: What products reach of the peak rate.
            timing: Figures of the device; None for one that is modelled at peak rate.
        """
        if timing is None:
            return float(self.operations)
        # A product of few rows would leave most of a granule empty: going through elements is faster then.
        one_by_one = self.operations / timing.vector_efficiency
        return min(self.filled / share, one_by_one) if self.filled else one_by_one


@dataclass(frozen=True)
class SectionTerms:
    """What one call of a section has to do."""

    flops: int
    """Operations of all its operators."""
    traffic: Mapping[str, tuple[int, ...]]
    """Bytes of each value that it reads or writes in off-chip memory, by tier."""
    executed: bool
    """Whether it is a program of its own: no exchange between RDUs, and more than other names of elements."""
    arithmetic: tuple[Arithmetic, ...] = ()
    """By operator."""
    alone: bool = False
    """Whether it is one product and nothing else but other names of elements."""
    streamed: float = 0.0
    """How much of that product is executed in pieces, since operands and result exceed on-chip memory: up to 1."""
    on_chip: int = 0
    """Bytes that its operators pass through on-chip memory."""
    path: int = 0
    """Operators on its longest path, with all steps of bodies."""
    maps: int = 0
    """Maps that its convolutions read or write in off-chip memory, each of them by itself."""
    positions: int = 0
    """Places of maps that the first image passes, of all convolutions on the longest path of these."""

    @property
    def bytes(self) -> int:
        """Bytes that it reads and writes in off-chip memory."""
        return sum(map(sum, self.traffic.values()))

    def time(self, target: TargetSummary) -> SectionTime:
        """Return the modelled time of one call: compute, on-chip and off-chip traffic go on at the same time.

        Args:
            target: The device's figures, with the memory, granules and units that the terms were found for. A
                data type without a published peak counts at the slowest published one.

        Returns:
            The parts of the time. An exchange between RDUs has none of its own: the values are on their way,
            which the transfer counts. Nor has a section that only renames elements: whoever reads them
            computes other addresses.
        """
        timing = target.timing
        if not self.executed:
            return SectionTime()
        off_chip = traffic_seconds(target, self.traffic)
        if timing is None:
            return SectionTime(compute=self._compute_seconds(target), off_chip=off_chip)
        kept = timing.tuned_traffic if timing.tuned else 1.0
        return SectionTime(
            launch=timing.launch_seconds,
            compute=self._compute_seconds(target),
            on_chip=self.on_chip / target.tier("sram").bytes_per_second,
            off_chip=kept * (off_chip + timing.map_seconds * self.maps),
            fill=timing.fill_seconds * self.path + timing.position_seconds * self.positions,
        )

    def _compute_seconds(self, target: TargetSummary) -> float:
        slowest = min(target.peak_flops.values(), default=0.0)
        share = self._product_efficiency(target.timing)
        ideal: dict[str, float] = {}
        for one in self.arithmetic:
            needed = one.at_peak(share, target.timing)
            ideal[one.dtype] = ideal.get(one.dtype, 0.0) + needed
        peaks = {name: target.peak_flops.get(name, slowest) for name in ideal}
        # One after the other: the same units compute all types.
        times = (needed / peaks[name] for name, needed in ideal.items() if peaks[name] > 0)
        return sum(times, start=0.0)

    def _product_efficiency(self, timing: TimingFigures | None) -> float:
        """Return the share of its peak rate that the products of the section reach."""
        if timing is None:
            return 1.0
        # A product with the chip to itself; else the slowest stage of a pipeline sets the pace of all.
        if self.alone:
            return timing.product_efficiency * (1 - self.streamed * (1 - timing.streamed_share))
        return timing.tuned_efficiency if timing.tuned else timing.fused_efficiency


def section_terms(
    nodes: Sequence[ir.Node], traffic: Mapping[str, Sequence[int]], target: TargetSummary
) -> SectionTerms:
    """Return what one call of a section has to do.

    Args:
        nodes: The section's nodes in the order in which they run.
        traffic: Bytes of each value that one execution reads or writes, by tier of off-chip memory.
        target: The device's figures.
    """
    flops = [node_flops(node) for node in nodes]
    timing = target.timing
    only_addresses = timing is not None and all(renames(node) for node in nodes)
    moved = {tier: tuple(sizes) for tier, sizes in traffic.items()}
    if only_addresses or exchanges(nodes):
        return SectionTerms(sum(flops), moved, executed=False)
    # Other names take no time, and a product reads bfloat16 itself: neither keeps it from being alone.
    operators = [node for node in nodes if not renames(node) and widened_for(node) is None]
    alone = operators[0] if len(operators) == 1 and is_product(operators[0]) else None
    return SectionTerms(
        flops=sum(flops),
        traffic=moved,
        executed=True,
        arithmetic=tuple(_arithmetic(nodes, timing)),
        alone=alone is not None,
        streamed=0.0 if alone is None else _in_pieces(_bytes(alone) / target.tier("sram").bytes),
        on_chip=sum(_on_chip(node) for node in nodes),
        path=_longest_path(nodes, lambda _: 1),
        maps=crossing_maps(nodes),
        positions=_longest_path(nodes, positions),
    )


def _in_pieces(filled: float) -> float:
    """Return how much of a product is executed in pieces, by its bytes as a share of on-chip memory.

    Published products of 297 MB have the chip, those of 308 MB are in pieces: the step is short, and is none.
    """
    return min(max((filled - 1) / _OVERFLOW, 0.0), 1.0)


def _filled(node: ir.Node, operations: int, timing: TimingFigures | None) -> int:
    """Return the operations in whose time a product is done; 0 for another operator."""
    if timing is None or not is_product(node):
        return 0
    size = product_size(node)
    return operations if size is None else max(size.filled_flops(timing), operations)


def _arithmetic(
    nodes: Iterable[ir.Node], timing: TimingFigures | None, times: int = 1
) -> Iterator[Arithmetic]:
    """Yield the arithmetic of operators that are executed so many times, one after the other.

    A product of a body is one product in each step: those of several steps fill no granules and no compute
    units together, for a step waits for the one before.
    """
    for node in nodes:
        repeated = repetition(node)
        if repeated is not None:
            yield from _arithmetic(repeated.body, timing, times * repeated.steps)
            continue
        operations = node_flops(node)
        if operations:
            filled = _filled(node, operations, timing)
            yield Arithmetic(node_dtype(node), operations * times, filled * times)


def _on_chip(node: ir.Node) -> int:
    """Return the bytes that a node passes through on-chip memory, in all steps where it repeats a body."""
    repeated = repetition(node)
    if repeated is None:
        return _bytes(node)
    return repeated.steps * sum(map(_on_chip, repeated.body))


def _bytes(node: ir.Node) -> int:
    """Return the bytes of all operands and results of a node."""
    values = (*node.inputs, *node.outputs)
    return sum(value_bytes(value) or 0 for value in values if value is not None)


def _longest_path(nodes: Iterable[ir.Node], length: Callable[[ir.Node], int]) -> int:
    """Return the longest path through a section, by the length of every node; ``nodes`` in topological order.

    The pipeline of a body is filled anew in every step, since its first operator needs what the last one makes.
    """
    depths: dict[ir.Value, int] = {}
    longest = 0
    for node in nodes:
        repeated = repetition(node)
        own = (
            length(node)
            if repeated is None
            else repeated.steps * _longest_path(repeated.body, length)
        )
        after = max((depths.get(value, 0) for value in reads(node)), default=0) + own
        depths.update(dict.fromkeys(node.outputs, after))
        longest = max(longest, after)
    return longest
