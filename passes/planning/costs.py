"""What values and sections cost: bytes, arithmetic operations and modelled seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from samba_onnx.passes.planning.flops import node_flops
from samba_onnx.passes.planning.section_terms import node_dtype, section_terms
from samba_onnx.passes.planning.sizes import value_bytes
from samba_onnx.pef.target_summary import TargetSummary
from samba_onnx.pef.timing import SectionTime

__all__ = ["Cost", "cost", "node_dtype", "node_flops", "value_bytes"]


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
    terms = section_terms(tuple(nodes), traffic, target)
    return Cost(flops=terms.flops, bytes=sum(map(sum, traffic.values())), time=terms.time(target))
