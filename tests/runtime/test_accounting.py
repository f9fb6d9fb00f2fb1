"""Bytes are those of the arrays that are copied: a plan with wrong figures is noticed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import samba_onnx
from samba_onnx.errors import PefFormatError, UsageError
from samba_onnx.pef import Pef
from samba_onnx.pef.manifest import Transfer
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.runtime.accounting import check_plan
from samba_onnx.runtime.device import Device
from tests.runtime.building import (
    CONSTANT,
    FALLBACK,
    FROM,
    INPUT,
    OUTPUT,
    TO,
    WEIGHT,
    Plan,
    build,
    fallback,
    section,
)

X = np.arange(6, dtype=np.float32).reshape(2, 3)
HALF = np.ones(5, ml_dtypes.bfloat16)
NIBBLES = np.array([1, -2, 3], ml_dtypes.int4)
STORED = np.arange(3, dtype=np.float32)
BYTES = {
    "x": 24,
    "h": 10,
    "q": 2,
    "y": 24,
    "m": 24,
    "n": 24,
    "z": 24,
    "w": 12,
    "c": 12,
    "state": 12,
}
"""By hand, for every symbol that is copied; three elements of 4 bits share 2 bytes."""


def every_way() -> Plan:
    """A run of which something is copied in each way: at load, in, out, to and from a fallback."""
    return Plan(
        [
            section(
                "f (float[2,3] x, bfloat16[5] h, int4[3] q, float[3] w, float[3] state) "
                "=> (float[2,3] m, float[2,3] y) <float[3] c = {1, 2, 3}> "
                "{ a = Add(x, w) b = Mul(a, c) i = Cast<to=1>(q) g = ReduceSum<keepdims=0>(h) "
                "j = Cast<to=1>(g) k = Add(i, j) l = Add(k, state) y = Add(b, l) m = Neg(y) }"
            ),
            fallback("f (float[2,3] m) => (float[2,3] n) { n = Neg(m) }"),
            section("f (float[2,3] n) => (float[2,3] z) { z = Neg(n) }"),
        ],
        ["x", "h", "q"],
        ["y", "z"],
        [
            ("x", TO, INPUT, 0),
            ("h", TO, INPUT, 0),
            ("q", TO, INPUT, 0),
            ("m", FROM, FALLBACK, 1),
            ("n", TO, FALLBACK, 2),
            ("y", FROM, OUTPUT, 0),
            ("z", FROM, OUTPUT, 2),
        ],
        [("w", WEIGHT), ("c", CONSTANT), ("state", WEIGHT)],
        weights={"w": STORED, "state": STORED},
        kinds={"c": SymbolKind.CONSTANT, "state": SymbolKind.WEIGHT},
    )


FEEDS = {"x": X, "h": HALF, "q": NIBBLES}


def misplan(pef: Pef, names: set[str], extra: int = 4) -> None:
    """Let the manifest state other bytes for symbols, wherever it speaks of them."""

    def moved(transfers: tuple[Transfer, ...]) -> tuple[Transfer, ...]:
        return tuple(
            dataclasses.replace(move, bytes=move.bytes + extra) if move.symbol in names else move
            for move in transfers
        )

    manifest = pef.manifest
    pef.manifest = dataclasses.replace(
        manifest,
        symbols=tuple(
            dataclasses.replace(symbol, bytes=(symbol.bytes or 0) + extra)
            if symbol.name in names
            else symbol
            for symbol in manifest.symbols
        ),
        graphs=tuple(
            dataclasses.replace(
                graph,
                load_transfers=moved(graph.load_transfers),
                run_transfers=moved(graph.run_transfers),
            )
            for graph in manifest.graphs
        ),
    )


def test_plan_and_ledger_agree(tmp_path: Path) -> None:
    with build(tmp_path, every_way()) as pef, Device(pef) as device:
        graph = pef.manifest.graphs[0]
        assert device.ledger.transfers == graph.load_transfers
        for run in range(3):
            device.run(FEEDS)
            assert device.ledger.run() == graph.run_transfers
            check_plan(device.ledger, graph)
            assert device.ledger.runs == run + 1


def test_what_is_compiled_into_sections_is_not_copied(tmp_path: Path) -> None:
    plan = every_way()
    plan.baked = ["c"]
    plan.load = [move for move in plan.load if move[0] != "c"]
    with build(tmp_path, plan) as pef, Device(pef) as device:
        assert [move.symbol for move in device.ledger.transfers] == ["w", "state"]
        device.run(FEEDS)
        check_plan(device.ledger, pef.manifest.graphs[0])


@pytest.mark.parametrize("name", BYTES)
def test_a_figure_that_is_off_is_noticed(tmp_path: Path, name: str) -> None:
    with build(tmp_path, every_way()) as pef:
        misplan(pef, {name})
        with Device(pef) as device:
            device.run(FEEDS)
            moved = {move.symbol: move.bytes for move in device.ledger.transfers}
            assert moved == BYTES
            message = rf"copied {BYTES[name]} bytes of '{name}'.*planned was {BYTES[name] + 4} by"
            with pytest.raises(PefFormatError, match=message):
                check_plan(device.ledger, pef.manifest.graphs[0])


def test_what_sections_have_inside_is_not_loaded(tmp_path: Path) -> None:
    with build(tmp_path, every_way()) as pef, Device(pef) as device:
        with pytest.raises(UsageError, match=r"'w' is no weight.* that lives in device memory"):
            device.load({"w": STORED})
        device.load({"state": STORED})


def test_a_copy_too_many_or_too_few_is_noticed(tmp_path: Path) -> None:
    with build(tmp_path, every_way()) as pef, Device(pef) as device:
        device.run(FEEDS)
        graph = pef.manifest.graphs[0]
        fewer = dataclasses.replace(graph, run_transfers=graph.run_transfers[:-1])
        more = dataclasses.replace(graph, load_transfers=graph.load_transfers * 2)
        with pytest.raises(PefFormatError, match=r"run 0 .* copied .* 'z'.*, planned was nothing"):
            check_plan(device.ledger, fewer)
        with pytest.raises(PefFormatError, match="loading the PEF the device copied nothing more"):
            check_plan(device.ledger, more)
        device.run({"x": X})
        with pytest.raises(PefFormatError, match="run 1 of graph 'main'"):
            check_plan(device.ledger, graph)


TYPES: list[tuple[str, Any, int]] = [
    ("float", np.float32, 4 * 7),
    ("double", np.float64, 8 * 7),
    ("int64", np.int64, 8 * 7),
    ("int8", np.int8, 7),
    ("bool", np.bool_, 7),
    ("float16", np.float16, 2 * 7),
    ("bfloat16", ml_dtypes.bfloat16, 2 * 7),
    ("int4", ml_dtypes.int4, 4),
    ("uint4", ml_dtypes.uint4, 4),
]


@pytest.mark.parametrize(("element", "dtype", "size"), TYPES, ids=[name for name, *_ in TYPES])
def test_bytes_of_every_copy_are_those_of_the_array(
    tmp_path: Path, element: str, dtype: Any, size: int
) -> None:
    """Loads, writes, reads, runs, replays and partial runs, whatever the manifest says."""
    value = f"{element}[7]"
    number = getattr(onnx.TensorProto, element.upper())
    body = f"{{1}}_float = Cast<to=1>({{0}}) {{1}} = Cast<to={number}>({{1}}_float)"
    plan = Plan(
        [
            section(f"f ({value} x) => ({value} a) {{ {body.format('x', 'a')} }}"),
            section(f"f ({value} a, {value} weight) => ({value} y) {{ {body.format('a', 'y')} }}"),
        ],
        ["x"],
        ["y"],
        load=[("weight", WEIGHT)],
        kinds={"weight": SymbolKind.WEIGHT},
    )
    array = np.ones(7, dtype)
    with build(tmp_path, plan) as pef:
        misplan(pef, {"x", "a", "y", "weight"})
        with Device(pef, threads=1) as device:
            device.load({"weight": array})
            device.write("weight", array)
            device.read("weight")
            for _ in range(4):
                np.testing.assert_array_equal(device.run({"x": array})["y"], array)
            device.run({"x": array}, section_ids=[0])
            for _ in range(3):
                device.run(None, ["y"], section_ids=[1])
            device.read("a")
            replayed = [run for run in device.runs._runs.values() if run.replay is not None]
            assert len(replayed) == 2
            copies = device.ledger.transfers
            assert len(copies) == 3 + 4 * 2 + 1 + 3 + 1
            assert {copy.bytes for copy in copies} == {size}
            assert sum(total.bytes for total in device.ledger.totals()) == size * len(copies)
            seconds = pef.manifest.target.transfer_seconds(size)
            assert {copy.seconds for copy in copies} == {seconds}


def test_reading_what_sections_have_inside_is_measured(tmp_path: Path) -> None:
    with build(tmp_path, every_way()) as pef:
        misplan(pef, {"c", "w"})
        with Device(pef) as device:
            device.ledger.reset()
            for name, expected in (("c", [1, 2, 3]), ("w", STORED)):
                np.testing.assert_array_equal(device.read(name), expected)
            assert [copy.bytes for copy in device.ledger.transfers] == [12, 12]


def test_reading_packed_weights_is_measured_as_they_lie(tmp_path: Path) -> None:
    """Three elements of 4 bits share 2 bytes on the link, and take one each in the user's array."""
    body = "{ f = Cast<to=1>(w) y = Add(x, f) }"
    plan = Plan(
        [section(f"f (float[3] x, int4[3] w) => (float[3] y) {body}")],
        ["x"],
        ["y"],
        load=[("w", WEIGHT)],
        weights={"w": NIBBLES},
    )
    with build(tmp_path, plan) as pef, Device(pef) as device:
        np.testing.assert_array_equal(device.read("w"), NIBBLES)
        assert [copy.bytes for copy in device.ledger.transfers] == [2, 2]


def test_a_verification_compares_the_copies(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> f (float[2,3] x) => (float[2,3] y) '
        "<float[3] w = {1, 2, 3}> { y = Mul(x, w) }"
    )
    checks: tuple[Callable[[Pef], Any], ...] = (
        samba_onnx.self_test,
        lambda pef: samba_onnx.verify(model, pef),
    )
    for check in checks:
        with samba_onnx.convert(model, tmp_path / "m.pef") as pef:
            assert check(pef).passed
            misplan(pef, {"x"})
            with pytest.raises(PefFormatError, match=r"copied 24 bytes of 'x' .*planned was 28"):
                check(pef)
