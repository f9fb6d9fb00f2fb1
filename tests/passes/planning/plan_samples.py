"""Small graphs, a small target and a placement by operator, for the tests of planning."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import onnx.parser
import onnx_ir as ir

from samba_onnx.passes.targets.reasons import Reason, ReasonCode
from samba_onnx.pef.target_summary import TargetSummary, Tier

LATENCY = 2.0**-10
"""Seconds per copy on the test link: a power of two, so that modelled times are exact."""
LINK = 2.0**20
"""Bytes per second of the test link."""

STATIC = {"Reshape": {1}, "Slice": {1, 2, 3, 4}, "Unsqueeze": {1}, "Expand": {1}}


def figures(sram: int = 1 << 30, hbm: int = 1 << 40, ddr: int = 1 << 44) -> TargetSummary:
    """Return hardware figures with round numbers; ``hbm=0`` for a device without it."""
    tiers = [Tier("ddr", ddr, 2.0**30), Tier("sram", sram, 2.0**50)]
    if hbm:
        tiers.append(Tier("hbm", hbm, 2.0**40))
    return TargetSummary(
        name="toy",
        tiers=tuple(tiers),
        peak_flops={"float32": 2.0**40, "bfloat16": 2.0**41},
        link_bytes_per_second=LINK,
        link_latency_seconds=LATENCY,
    )


@dataclass(frozen=True)
class ToyTarget:
    """The part of a target that planning looks at."""

    summary: TargetSummary

    def static_inputs(self, node: ir.Node) -> frozenset[int]:
        return frozenset(STATIC.get(node.op_type, ()))


@dataclass(frozen=True)
class ToySupport:
    evidence: str | None = "documented"
    experimental: bool = False
    reason: Reason | None = None


@dataclass(frozen=True)
class ToyPlacement:
    reasons: Mapping[ir.Node, Reason]
    supports: Mapping[ir.Node, ToySupport]


def target(**sizes: int) -> Any:
    """Return a target with the given bytes per tier, typed loosely as a stand-in for a real one."""
    return ToyTarget(figures(**sizes))


def placement(model: ir.Model, cpu: Collection[str] = ("Cos",)) -> Any:
    """Return a placement that sends the operators named in ``cpu`` to the host."""
    reasons = {
        node: Reason(ReasonCode.OPERATOR, f"{node.op_type} is not supported", "use another")
        for node in model.graph
        if node.op_type in cpu
    }
    supports = {
        node: ToySupport(_evidence(node), node.op_type == "Exp", reasons.get(node))
        for node in model.graph
    }
    return ToyPlacement(reasons, supports)


def _evidence(node: ir.Node) -> str:
    return {"Abs": "observed", "Neg": "assumed"}.get(node.op_type, "documented")


def parse(text: str) -> ir.Model:
    """Return a model from ONNX's text form of a graph, without header."""
    header = '<ir_version: 10, opset_import: ["" : 21, "com.example" : 1]>\n'
    model = ir.from_proto(onnx.parser.parse_model(header + text))
    return model


def operators(groups: Any) -> list[tuple[str, list[str]]]:
    """Return groups as home and operator types, for comparing."""
    return [(group.home.value, [node.op_type for node in group.nodes]) for group in groups]


def named(model: ir.Model) -> ir.Model:
    """Return the model with a name for each node, as the pipeline leaves it."""
    for index, node in enumerate(model.graph):
        node.name = node.name or f"node_{index}"
    return model
