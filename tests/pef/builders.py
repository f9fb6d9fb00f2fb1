"""Small PEFs made by hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import onnx
import onnx.helper
import onnx.parser

from samba_onnx.pef import (
    WeightEntry,
    WeightsLayout,
    encode_reference,
    lay_out_weights,
    write_pef,
)
from samba_onnx.pef.manifest import (
    Boundary,
    Call,
    Cause,
    Direction,
    Fallback,
    FallbackNode,
    Graph,
    Manifest,
    Producer,
    ReferenceSample,
    Region,
    Section,
    SourceModel,
    Symbol,
    Transfer,
)
from samba_onnx.pef.target_summary import TargetSummary, Tier
from samba_onnx.program.kinds import SymbolKind

FLOAT = "tensor(float)"
SHAPE = (4, 300)
SAMPLE = np.linspace(-1, 1, 1200, dtype=np.float32).reshape(SHAPE)
WEIGHT = np.linspace(0, 2, 300, dtype=np.float32)
BIAS = np.full((), 0.5, np.float32)


def _symbol(name: str, kind: SymbolKind, shape: tuple[int, ...], region: str = "") -> Symbol:
    size = 4 * int(np.prod(shape))
    return Symbol(name, kind, FLOAT, shape, region=region, bytes=size)


def weights_layout() -> WeightsLayout:
    """Two weights: one of 1200 bytes, one scalar, so that padding is needed in between."""
    return lay_out_weights(
        [WeightEntry("w", FLOAT, (300,), WEIGHT), WeightEntry("b", FLOAT, (), BIAS)]
    )


def manifest(layout: WeightsLayout) -> Manifest:
    """x → [RDU: h = x * w] → [CPU: s = Softsign(h)] → [RDU: y = s + b]."""
    symbols = (
        _symbol("x", SymbolKind.INPUT, SHAPE, "io"),
        dataclasses.replace(
            _symbol("w", SymbolKind.WEIGHT, (300,), "weights"), stored=layout.stored["w"]
        ),
        dataclasses.replace(
            _symbol("b", SymbolKind.WEIGHT, (), "weights"), stored=layout.stored["b"]
        ),
        _symbol("h", SymbolKind.ACTIVATION, SHAPE, "work"),
        _symbol("s", SymbolKind.ACTIVATION, SHAPE, "work"),
        _symbol("y", SymbolKind.OUTPUT, SHAPE, "io"),
    )
    down, up = Direction.HOST_TO_RDU, Direction.RDU_TO_HOST
    graph = Graph(
        "main",
        ("x",),
        ("y",),
        (Call(0, 0), Call(1, 1), Call(2, 2)),
        (
            Transfer("w", 1200, down, Cause.WEIGHT, 1e-5),
            Transfer("b", 4, down, Cause.WEIGHT, 1e-5),
        ),
        (
            Transfer("x", 4800, down, Cause.INPUT, 1e-5, 0),
            Transfer("h", 4800, up, Cause.FALLBACK, 1e-5, 1),
            Transfer("s", 4800, down, Cause.FALLBACK, 1e-5, 2),
            Transfer("y", 4800, up, Cause.OUTPUT, 1e-5, 2),
        ),
        (Boundary(0, 1, ("h",), 4800, 1e-5), Boundary(1, 2, ("s",), 4800, 1e-5)),
    )
    sections = (
        Section(
            0, "mul", "main", "stages/000_FWD.onnx", ("x",), ("h",), ("w",), {"Mul": 1}, flops=1200
        ),
        Section(2, "add", "main", "stages/002_FWD.onnx", ("s",), ("y",), ("b",), {"Add": 1}),
    )
    reason = FallbackNode("soft", "Softsign", "", "operator", "not in the table")
    fallback = Fallback(
        1, "host", "main", "stages/001_cpu.onnx", ("h",), ("s",), (), {"Softsign": 1},
        reasons=(reason,),
    )  # fmt: skip
    target = TargetSummary("toy", (Tier("hbm", 1 << 30, 1e12),), {"float32": 1e12}, 1e10, 1e-6)
    return Manifest(
        Producer("samba-onnx", "0"),
        target,
        SourceModel("toy.onnx", "hand", 20, 3),
        "o3",
        (graph,),
        sections,
        (fallback,),
        symbols,
        (Region("io", 4800, "hbm"), Region("weights", 1200, "hbm"), Region("work", 4800, "hbm")),
        reference=ReferenceSample("main", 0, 1, ("x",), ("y",), (), 1, 1e-5, 1e-6),
    )


def _model(text: str, *external: onnx.TensorProto) -> bytes:
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 20]>\n' + text)
    model.graph.initializer.extend(external)
    return model.SerializeToString(deterministic=True)


def external(name: str, shape: tuple[int, ...], layout: WeightsLayout) -> onnx.TensorProto:
    """An initializer whose content lies in the member of weights."""
    tensor = onnx.TensorProto(name=name, data_type=onnx.TensorProto.FLOAT, dims=shape)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    where = layout.stored[name]
    entries = {"location": "weights.safetensors", "offset": where.offset, "length": where.bytes}
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def stages(layout: WeightsLayout) -> dict[str, bytes]:
    """The three stages' models."""
    return {
        "stages/000_FWD.onnx": _model(
            "mul (float[4,300] x) => (float[4,300] h) { h = Mul(x, w) }",
            external("w", (300,), layout),
        ),
        "stages/001_cpu.onnx": _model(
            "host (float[4,300] h) => (float[4,300] s) { s = Softsign(h) }"
        ),
        "stages/002_FWD.onnx": _model(
            "add (float[4,300] s) => (float[4,300] y) { y = Add(s, b) }",
            external("b", (), layout),
        ),
    }


def answer(x: np.ndarray) -> np.ndarray:
    """What the toy computes."""
    product = x * WEIGHT
    result: np.ndarray = product / (1 + np.abs(product)) + BIAS
    return result


def reference() -> bytes:
    """The member of the reference sample."""
    return encode_reference([{"input": [SAMPLE], "output": [answer(SAMPLE)]}])


def write_toy(path: Path) -> Manifest:
    """Write the toy as a PEF."""
    layout = weights_layout()
    return write_pef(
        path,
        manifest(layout),
        weights=layout,
        stages=stages(layout),
        reference=reference(),
    )
