"""What rules of fusion make of small graphs."""

from __future__ import annotations

from pathlib import Path

import onnx.shape_inference
import onnx_ir as ir

from samba_onnx.passes.planning.fusion.patterns import FusionRules
from samba_onnx.passes.planning.fusion.rule_files import read_rules
from samba_onnx.passes.planning.partitioning import Group, partition
from samba_onnx.passes.planning.sectioning import cut
from samba_onnx.passes.targets import load_target
from tests.passes.planning.plan_samples import parse, placement, target

DEFAULT = read_rules(load_target("sn40l").fusion_rules or "")
"""The rules that the targets name."""


def inferred(text: str) -> ir.Model:
    """Return a graph in text form with its shapes."""
    return ir.from_proto(onnx.shape_inference.infer_shapes(ir.to_proto(parse(text))))


def groups(
    text: str, rules: FusionRules = DEFAULT, *, cpu: tuple[str, ...] = ("Cos",), sram: int = 1 << 30
) -> tuple[Group, ...]:
    """Return the sections and fallbacks of a graph at o1."""
    model = inferred(text)
    device = target(sram=sram)
    return cut(partition(model, placement(model, cpu)), device, "o1", rules)


def sections(text: str, rules: FusionRules = DEFAULT, **options: tuple[str, ...]) -> list[str]:
    """Return each stage as rule and operators: ``linear: MatMul Add``; no rule for one of its own."""
    found = groups(text, rules, **options)  # type: ignore[arg-type]
    return [
        f"{group.rule}: {' '.join(node.op_type for node in group.nodes)}".removeprefix(": ")
        for group in found
    ]


def rules(folder: Path, text: str) -> FusionRules:
    """Return rules as a user writes them."""
    path = folder / "rules.yaml"
    path.write_text(text, encoding="utf-8")
    return read_rules(path)
