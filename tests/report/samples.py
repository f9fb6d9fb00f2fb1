"""Hand-made manifests: what the compiler would say about a detector with a CPU part."""

from __future__ import annotations

from samba_onnx.pef.dimensions import DynamicDimension
from samba_onnx.pef.host_summary import HostSummary
from samba_onnx.pef.manifest import (
    Boundary,
    Call,
    Cause,
    Direction,
    Fallback,
    FallbackNode,
    Graph,
    Manifest,
    Member,
    Producer,
    Region,
    Section,
    SourceModel,
    Symbol,
    Transfer,
)
from samba_onnx.pef.rewrite_records import PassSummary
from samba_onnx.pef.target_summary import Assumption, TargetSummary, Tier
from samba_onnx.program.kinds import SymbolKind

LATENCY = 10e-6
LINK = 32e9


def seconds(size: int) -> float:
    return LATENCY + size / LINK


def transfer(
    symbol: str, size: int, direction: Direction, cause: Cause, call: int | None
) -> Transfer:
    return Transfer(symbol, size, direction, cause, seconds(size), call)


def target() -> TargetSummary:
    return TargetSummary(
        name="sn40l",
        tiers=(
            Tier("sram", 520_000_000, 400e12),
            Tier("hbm", 64_000_000_000, 1.6e12),
            Tier("ddr", 1_500_000_000_000, 100e9),
        ),
        peak_flops={"bfloat16": 638e12, "float32": 319e12},
        link_bytes_per_second=LINK,
        link_latency_seconds=LATENCY,
        assumptions=(
            Assumption(
                "link.latency", 10e-6, "s", "the vendor gives no figure; a usual value for PCIe"
            ),
        ),
    )


def detector() -> Manifest:
    """Two sections around a fallback of two nodes with two reasons."""
    first = Section(
        0, "detector_0", "main", "stages/000_FWD.onnx", ("x",), ("scores", "boxes"), ("w", "s"),
        {"Conv": 3, "Relu": 2, "Reshape": 1}, {"Conv": 8_000_000, "Relu": 200_000},
        flops=8_200_000, bytes=900_000, seconds=4e-6, sram_bytes=1_300_000,
    )  # fmt: skip
    cpu = Fallback(
        1, "detector_cpu_1", "main", "stages/001_cpu.onnx", ("scores", "boxes"), ("kept",), (),
        {"NonMaxSuppression": 1, "ai.example::Clip2": 1}, {},
        reasons=(
            FallbackNode(
                "nms", "NonMaxSuppression", "", "operator",
                "sn40l has no NonMaxSuppression: its result depends on the values of its inputs",
                location="detector.py:41",
            ),
            FallbackNode(
                "clip", "Clip2", "ai.example", "domain",
                "ai.example::Clip2 belongs to a custom domain without a function body",
                hint="export the model with a function body for Clip2",
            ),
        ),
        seconds=14e-6,
        unmodelled=1,
    )  # fmt: skip
    last = Section(
        2, "detector_2", "main", "stages/002_FWD.onnx", ("kept",), ("y",), (),
        {"Softmax": 1}, {"Softmax": 1_000}, flops=1_000, bytes=2_000, seconds=1e-9,
        sram_bytes=2_000,
    )  # fmt: skip
    to_rdu, to_host = Direction.HOST_TO_RDU, Direction.RDU_TO_HOST
    graph = Graph(
        name="main",
        inputs=("x",),
        outputs=("y",),
        calls=(Call(0, 0), Call(1, 1), Call(2, 2)),
        load_transfers=(transfer("w", 700_000, to_rdu, Cause.WEIGHT, None),),
        run_transfers=(
            transfer("x", 602_112, to_rdu, Cause.INPUT, 0),
            transfer("scores", 40_000, to_host, Cause.FALLBACK, 1),
            transfer("boxes", 160_000, to_host, Cause.FALLBACK, 1),
            transfer("kept", 2_400, to_rdu, Cause.FALLBACK, 2),
            transfer("y", 2_400, to_host, Cause.OUTPUT, 2),
        ),
        boundaries=(
            Boundary(0, 1, ("scores", "boxes"), 200_000, seconds(40_000) + seconds(160_000)),
            Boundary(1, 2, ("kept",), 2_400, seconds(2_400)),
        ),
    )
    return Manifest(
        producer=Producer("samba-onnx", "0.1.0"),
        target=target(),
        source=SourceModel("detector.onnx", "pytorch 2.13.0", 20, 11),
        level="o3",
        graphs=(graph,),
        sections=(first, last),
        fallbacks=(cpu,),
        symbols=(
            _symbol("x", SymbolKind.INPUT, (1, 3, 224, 224), 602_112, "input.x"),
            _symbol("w", SymbolKind.WEIGHT, (175_000,), 700_000, "weights"),
            Symbol("s", SymbolKind.CONSTANT, "tensor(int64)", (2,), baked=True, bytes=16),
            _symbol("scores", SymbolKind.ACTIVATION, (1, 10_000), 40_000, "activations.0"),
            _symbol("boxes", SymbolKind.ACTIVATION, (1, 10_000, 4), 160_000, "activations.1"),
            _symbol("kept", SymbolKind.ACTIVATION, (100, 6), 2_400, "activations.0"),
            _symbol("y", SymbolKind.OUTPUT, (100, 6), 2_400, "output.y"),
        ),
        regions=(
            Region("input.x", 602_112, "hbm", mutable=True),
            Region("weights", 700_000, "hbm"),
            Region("activations.0", 40_000, "hbm", mutable=True),
            Region("activations.1", 160_000, "hbm", mutable=True),
            Region("output.y", 2_400, "hbm", mutable=True),
        ),
        passes=(
            PassSummary("inline functions", False, 11, 11),
            PassSummary("fold batch normalization", True, 11, 9),
        ),
        dynamic_dimensions=(DynamicDimension("batch", ("x[0]",), "--dim batch=1"),),
        experimental={"Softmax: assumed": 1, "ai.example::Gelu: experimental": 2},
        notes=("2 initializers were equal and are stored once",),
        members=(Member("manifest.json", 2_048, "ab" * 32),),
        host=HostSummary(
            "bench",
            {"float32": 1e11},
            1e10,
            1e10,
            2e-6,
            1e-5,
            (Assumption("host.node_seconds", 2e-6, "s", "a guess"),),
        ),
    )


def all_on_rdu() -> Manifest:
    """One section, nothing on the CPU."""
    section = Section(
        0, "mlp_0", "main", "stages/000_FWD.onnx", ("x",), ("y",), ("w",),
        {"Gemm": 2, "Relu": 1}, {"Gemm": 1_000}, flops=1_000, bytes=5_000, seconds=1e-9,
        sram_bytes=5_000,
    )  # fmt: skip
    graph = Graph(
        name="main",
        inputs=("x",),
        outputs=("y",),
        calls=(Call(0, 0),),
        load_transfers=(),
        run_transfers=(
            transfer("x", 64, Direction.HOST_TO_RDU, Cause.INPUT, 0),
            transfer("y", 16, Direction.RDU_TO_HOST, Cause.OUTPUT, 0),
        ),
    )
    return Manifest(
        producer=Producer("samba-onnx", "0.1.0"),
        target=target(),
        source=SourceModel("mlp.onnx", "", 21, 3),
        level="o3",
        graphs=(graph,),
        sections=(section,),
        fallbacks=(),
        symbols=(
            _symbol("x", SymbolKind.INPUT, (1, 16), 64, "input.x"),
            _symbol("y", SymbolKind.OUTPUT, (1, 4), 16, "output.y"),
        ),
        regions=(Region("input.x", 64, "hbm", True), Region("output.y", 16, "hbm", True)),
    )


def _symbol(name: str, kind: SymbolKind, shape: tuple[int, ...], size: int, region: str) -> Symbol:
    return Symbol(name, kind, "tensor(float)", shape, region, bytes=size)
