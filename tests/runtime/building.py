"""Makes small PEFs from stages written in ONNX's text form."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser

from samba_onnx.facts.dtypes import tensor_element
from samba_onnx.pef.layout import stage_member
from samba_onnx.pef.manifest import (
    Argin,
    Call,
    Cause,
    Direction,
    Fallback,
    Graph,
    Manifest,
    Producer,
    Region,
    Section,
    SourceModel,
    Symbol,
    Transfer,
)
from samba_onnx.pef.packing import packed_bytes
from samba_onnx.pef.reader import Pef, load_pef
from samba_onnx.pef.stage_checks import type_text
from samba_onnx.pef.target_summary import TargetSummary, Tier
from samba_onnx.pef.weights import WeightEntry, lay_out_weights
from samba_onnx.pef.writer import write_pef
from samba_onnx.program.kinds import RESIDENT_KINDS, SectionType, SymbolKind

HEADER = '<ir_version: 10, opset_import: ["" : 21]>\n'
TARGET = TargetSummary(
    name="test",
    tiers=(Tier("sram", 1 << 20, 1e12), Tier("ddr", 1 << 30, 1e11)),
    peak_flops={"float32": 1e12},
    link_bytes_per_second=1e9,
    link_latency_seconds=1e-6,
)
Move = tuple[str, Direction, Cause, int | None]
TO, FROM = Direction.HOST_TO_RDU, Direction.RDU_TO_HOST
INPUT, OUTPUT, FALLBACK = Cause.INPUT, Cause.OUTPUT, Cause.FALLBACK
WEIGHT, CONSTANT, EXPLICIT = Cause.WEIGHT, Cause.CONSTANT, Cause.EXPLICIT


@dataclass
class Piece:
    """One stage: its ONNX text (or model), home and type."""

    text: str | onnx.ModelProto
    on_rdu: bool = True
    type: SectionType = SectionType.FWD
    graph: str = "main"
    seconds: float = 0.0

    @property
    def model(self) -> onnx.ModelProto:
        if isinstance(self.text, onnx.ModelProto):
            return self.text
        return parser.parse_model(HEADER + self.text)


@dataclass
class Plan:
    """A PEF to be written."""

    pieces: Sequence[Piece]
    inputs: Sequence[str]
    outputs: Sequence[str]
    moves: Sequence[Move] = ()
    load: Sequence[tuple[str, Cause]] = ()
    weights: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    """Content of external initializers and of resident stage inputs."""
    kinds: Mapping[str, SymbolKind] = field(default_factory=dict)
    baked: Iterable[str] = ()
    shared: Mapping[str, str] = field(default_factory=dict)
    """Region by symbol, for symbols that do not have one of their own."""
    tier: str = "ddr"
    argins: Sequence[Argin] = ()
    graphs: Mapping[str, tuple[Sequence[str], Sequence[str]]] = field(default_factory=dict)
    """Inputs and outputs of further graphs."""
    target: TargetSummary = TARGET


def section(text: str | onnx.ModelProto, **options: Any) -> Piece:
    return Piece(text, **options)


def fallback(text: str | onnx.ModelProto, **options: Any) -> Piece:
    return Piece(text, on_rdu=False, **options)


def build(folder: Path, plan: Plan) -> Pef:
    """Write the PEF and open it."""
    models = [piece.model for piece in plan.pieces]
    entries = [_entry(name, array) for name, array in plan.weights.items()]
    layout = lay_out_weights(entries)
    for model in models:
        _externalize(model, layout.stored)
    symbols = _symbols(plan, models, layout.stored)
    stages = [
        _stage(n, piece, model)
        for n, (piece, model) in enumerate(zip(plan.pieces, models, strict=True))
    ]
    interfaces = {"main": (plan.inputs, plan.outputs), **plan.graphs}
    graphs = [
        Graph(
            name,
            tuple(inputs),
            tuple(outputs),
            tuple(
                Call(number, stage.id)
                for number, stage in enumerate(s for s in stages if s.graph == name)
            ),
            tuple(_move(plan, symbols, (n, TO, cause, None)) for n, cause in plan.load)
            if name == "main"
            else (),
            tuple(_move(plan, symbols, move) for move in plan.moves) if name == "main" else (),
        )
        for name, (inputs, outputs) in interfaces.items()
    ]
    manifest = Manifest(
        producer=Producer("test", "1"),
        target=plan.target,
        source=SourceModel("model.onnx", "test", 21, 1),
        level="o3",
        graphs=tuple(graphs),
        sections=tuple(stage for stage in stages if isinstance(stage, Section)),
        fallbacks=tuple(stage for stage in stages if isinstance(stage, Fallback)),
        symbols=tuple(symbols.values()),
        regions=_regions(plan, symbols),
        argins=tuple(plan.argins),
    )
    path = folder / "model.pef"
    files = {
        stage.member: model.SerializeToString() for stage, model in zip(stages, models, strict=True)
    }
    write_pef(path, manifest, weights=layout, stages=files)
    return load_pef(path)


def planned(plan: Plan, pef: Pef) -> tuple[Transfer, ...]:
    """Return the transfers of ``plan.moves``."""
    symbols = {symbol.name: symbol for symbol in pef.manifest.symbols}
    return tuple(_move(plan, symbols, move) for move in plan.moves)


def _entry(name: str, array: np.ndarray[Any, Any]) -> WeightEntry:
    number = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    kind = f"tensor({onnx.TensorProto.DataType.Name(number).lower()})"
    return WeightEntry(name, kind, array.shape, array)


def _externalize(model: onnx.ModelProto, stored: Mapping[str, Any]) -> None:
    """Turn stage inputs that are stored, but named ``w...``, into external initializers."""
    kept = []
    for value in model.graph.input:
        if value.name in stored and not value.name.startswith("state"):
            tensor = model.graph.initializer.add(
                name=value.name,
                data_type=value.type.tensor_type.elem_type,
                dims=[d.dim_value for d in value.type.tensor_type.shape.dim],
                data_location=onnx.TensorProto.EXTERNAL,
            )
            place = stored[value.name]
            for key, content in (
                ("location", "weights.safetensors"),
                ("offset", place.offset),
                ("length", place.bytes),
            ):
                tensor.external_data.add(key=key, value=str(content))
        else:
            kept.append(value)
    del model.graph.input[:]
    model.graph.input.extend(kept)


def _symbols(
    plan: Plan, models: Sequence[onnx.ModelProto], stored: Mapping[str, Any]
) -> dict[str, Symbol]:
    symbols: dict[str, Symbol] = {}
    touched: set[str] = set()
    for piece, model in zip(plan.pieces, models, strict=True):
        graph = model.graph
        if piece.on_rdu:
            touched |= {v.name for v in (*graph.input, *graph.output, *graph.initializer)}
    for model in models:
        for value in (*model.graph.input, *model.graph.output):
            shape = _shape(value)
            symbols[value.name] = _symbol(plan, value.name, type_text(value.type), shape, touched)
        for tensor in model.graph.initializer:
            kind = f"tensor({onnx.TensorProto.DataType.Name(tensor.data_type).lower()})"
            symbols[tensor.name] = _symbol(plan, tensor.name, kind, tuple(tensor.dims), touched)
    return {
        name: Symbol(
            name,
            symbol.kind,
            symbol.type,
            symbol.shape,
            symbol.region,
            stored.get(name),
            name in set(plan.baked),
            symbol.bytes,
        )
        for name, symbol in symbols.items()
    }


def _shape(value: onnx.ValueInfoProto) -> tuple[int | str | None, ...] | None:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(
        d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim
    )


def _symbol(
    plan: Plan,
    name: str,
    kind: str,
    shape: tuple[int | str | None, ...] | None,
    touched: set[str],
) -> Symbol:
    element = tensor_element(kind)
    fixed = shape is not None and all(isinstance(size, int) for size in shape)
    size = packed_bytes(element, shape) if element and fixed else None  # type: ignore[arg-type]
    inputs = {*plan.inputs, *(n for given, _ in plan.graphs.values() for n in given)}
    outputs = {*plan.outputs, *(n for _, given in plan.graphs.values() for n in given)}
    part = SymbolKind.ACTIVATION
    if name in plan.weights or name.startswith("w"):
        part = SymbolKind.WEIGHT
    elif name in inputs:
        part = SymbolKind.INPUT
    elif name in outputs:
        part = SymbolKind.OUTPUT
    part = plan.kinds.get(name, part)
    # Residents live on the device, even those that only fallbacks read.
    placed = name in touched or (part in RESIDENT_KINDS and name in plan.kinds)
    region = plan.shared.get(name, name) if placed and size is not None else ""
    return Symbol(name, part, kind, shape, region, bytes=size)


def _stage(number: int, piece: Piece, model: onnx.ModelProto) -> Section | Fallback:
    graph = model.graph
    common: dict[str, Any] = {
        "id": number,
        "name": f"{graph.name}_{number}",
        "graph": piece.graph,
        "member": "",
        "inputs": tuple(value.name for value in graph.input),
        "outputs": tuple(value.name for value in graph.output),
        "weights": tuple(tensor.name for tensor in graph.initializer),
        "operators": dict(Counter(node.op_type for node in graph.node)),
        "type": piece.type,
    }
    stage = Section(**common, seconds=piece.seconds) if piece.on_rdu else Fallback(**common)
    return type(stage)(**{**vars(stage), "member": stage_member(stage)})


def _regions(plan: Plan, symbols: Mapping[str, Symbol]) -> tuple[Region, ...]:
    sizes: dict[str, int] = {}
    for symbol in symbols.values():
        if symbol.region:
            sizes[symbol.region] = max(sizes.get(symbol.region, 0), symbol.bytes or 0)
    return tuple(Region(name, size, plan.tier) for name, size in sizes.items())


def _move(plan: Plan, symbols: Mapping[str, Symbol], move: Move) -> Transfer:
    name, direction, cause, call = move
    symbol = symbols[name]
    element = tensor_element(symbol.type)
    assert element is not None
    assert symbol.shape is not None
    # By hand, and not by the code under test: bits of all elements, rounded up to bytes.
    bits = element.bits * math.prod(int(size or 0) for size in symbol.shape)
    size = -(-bits // 8)
    seconds = plan.target.link_latency_seconds + size / plan.target.link_bytes_per_second
    return Transfer(name, size, direction, cause, seconds, call)


def array(tensor: onnx.TensorProto) -> np.ndarray[Any, Any]:
    return numpy_helper.to_array(tensor)
