"""What a manifest says of mini-batches agrees with itself, or is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from samba_onnx.errors import PefFormatError
from samba_onnx.pef.consistency import check_manifest
from samba_onnx.pef.manifest import Argin, Manifest, Region, Section, Symbol
from samba_onnx.program.kinds import SymbolKind
from tests.pef.builders import FLOAT, manifest, weights_layout


def spatial() -> Manifest:
    """x → [RDU: y = x * lr, and its mean] for three mini-batches of two rows."""
    symbols = (
        Symbol("x", SymbolKind.INPUT, FLOAT, (6, 4), "x", bytes=96, batch_shape=(2, 4)),
        Symbol("lr", SymbolKind.INPUT, FLOAT, (), "lr", bytes=4),
        Symbol("y", SymbolKind.OUTPUT, FLOAT, (6, 4), "y", bytes=96, batch_shape=(2, 4)),
        Symbol("mean", SymbolKind.OUTPUT, FLOAT, (3,), "mean", bytes=12, batch_shape=()),
    )
    member = "stages/000_FWD.onnx"
    stage = Section(0, "mul", "main", member, ("x", "lr"), ("y", "mean"), (), {"Mul": 1})
    base = manifest(weights_layout())
    graph = dataclasses.replace(
        base.graphs[0],
        inputs=("x", "lr"),
        outputs=("y", "mean"),
        calls=base.graphs[0].calls[:1],
        load_transfers=(),
        run_transfers=(),
        boundaries=(),
        spatial_batches=3,
    )
    return dataclasses.replace(
        base,
        graphs=(graph,),
        sections=(stage,),
        fallbacks=(),
        symbols=symbols,
        regions=tuple(Region(one.name, one.bytes or 0, "hbm") for one in symbols),
        argins=(Argin("lr", FLOAT, 0.1, (0,)),),
        reference=None,
    )


Change = Callable[[Manifest], Manifest]


def graph(**fields: Any) -> Change:
    return lambda m: dataclasses.replace(m, graphs=(dataclasses.replace(m.graphs[0], **fields),))


def symbol(name: str, **fields: Any) -> Change:
    def change(m: Manifest) -> Manifest:
        symbols = (dataclasses.replace(s, **fields) if s.name == name else s for s in m.symbols)
        return dataclasses.replace(m, symbols=tuple(symbols))

    return change


def second_graph(m: Manifest) -> Manifest:
    """A graph of another number of mini-batches of the same values, which executes nothing."""
    other = dataclasses.replace(m.graphs[0], name="other", calls=(), spatial_batches=2)
    return dataclasses.replace(m, graphs=(*m.graphs, other))


CHANGES: dict[str, tuple[Change, str]] = {
    "negative": (graph(spatial_batches=-1), "has -1 mini-batches"),
    "too many": (graph(spatial_batches=2**31), "mini-batches"),
    "another number": (graph(spatial_batches=2), "does not hold 2 mini-batches"),
    "none": (graph(spatial_batches=0), "does not hold 0 mini-batches"),
    "input in one piece": (symbol("x", batch_shape=None), "input x .* is no batch"),
    "other rows": (symbol("y", batch_shape=(3, 4)), r"\[6, 4\] does not hold 3 .* of \[3, 4\]"),
    "a scalar in one piece": (symbol("mean", batch_shape=(2,)), "does not hold"),
    "negative rows": (symbol("y", batch_shape=(-2, 4)), "does not hold"),
    "an argin": (symbol("lr", batch_shape=()), "symbol lr of shape .* does not hold"),
    "a shared region": (symbol("y", region="x"), "symbol x can hold no mini-batches"),
    "two numbers": (second_graph, "graphs of different numbers of mini-batches"),
}


def test_a_spatial_manifest_is_valid() -> None:
    check_manifest(spatial())


@pytest.mark.parametrize("name", CHANGES)
def test_contradictions_are_refused(name: str) -> None:
    change, message = CHANGES[name]
    with pytest.raises(PefFormatError, match=message):
        check_manifest(change(spatial()))
