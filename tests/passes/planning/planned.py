"""Plans of small graphs, each checked against what the PEF's reader and writer demand."""

from __future__ import annotations

import dataclasses
from typing import Any

import onnx.shape_inference
import onnx_ir as ir

from samba_onnx.passes.planning.partitioning import partition
from samba_onnx.passes.planning.plan import GraphPlan, plan
from samba_onnx.passes.planning.sectioning import cut
from samba_onnx.pef.consistency import check_manifest
from samba_onnx.pef.manifest import Cause, Direction, Manifest, Producer, SourceModel, Transfer
from samba_onnx.pef.weights import lay_out_tensors
from samba_onnx.program.kinds import SymbolKind
from tests.passes.planning.plan_samples import LATENCY, LINK, named, parse, placement, target

UP, DOWN = Direction.HOST_TO_RDU, Direction.RDU_TO_HOST


def made(
    text: str, *, level: str = "o3", cpu: tuple[str, ...] = ("Cos",), **options: Any
) -> GraphPlan:
    """Return the plan of a graph in text form, with its shapes inferred."""
    proto = onnx.shape_inference.infer_shapes(ir.to_proto(parse(text)))
    return planned(named(ir.from_proto(proto)), level=level, cpu=cpu, **options)


def planned(
    model: ir.Model, *, level: str = "o3", cpu: tuple[str, ...] = ("Cos",), **options: Any
) -> GraphPlan:
    device = options.pop("device", target())
    homes = placement(model, cpu)
    groups = cut(partition(model, homes), device, level)
    options.setdefault("graph_name", "forward")
    options.setdefault("weight_names", {"w", "b"})
    found = plan(model, groups, device, placement=homes, **options)
    if "earlier" not in options:
        check(found, device)
    return found


def check(found: GraphPlan, device: Any) -> None:
    """Let the reader and writer of PEFs say whether the records agree with each other."""
    kept = [s for s in found.symbols if s.kind in (SymbolKind.WEIGHT, SymbolKind.CONSTANT)]
    layout = lay_out_tensors([(s.name, s.type, s.shape or ()) for s in kept])  # type: ignore[misc]
    stored = {tensor.name: tensor.stored for tensor in layout.tensors}
    check_manifest(
        Manifest(
            producer=Producer("test", "0"),
            target=device.summary,
            source=SourceModel("m", "", 21, 0),
            level="o3",
            graphs=(found.graph,),
            sections=found.sections,
            fallbacks=found.fallbacks,
            symbols=tuple(
                dataclasses.replace(symbol, stored=stored.get(symbol.name))
                for symbol in found.symbols
            ),
            regions=found.regions,
            experimental=found.experimental,
        )
    )


def copy(
    symbol: str, size: int, direction: Direction, cause: Cause, call: int | None = None
) -> Transfer:
    return Transfer(symbol, size, direction, cause, LATENCY + size / LINK, call)


def brief(transfers: tuple[Transfer, ...]) -> list[tuple[str, str, int | None]]:
    short = {UP: "up", DOWN: "down"}
    return [(t.symbol, f"{short[t.direction]} {t.cause}", t.call) for t in transfers]
