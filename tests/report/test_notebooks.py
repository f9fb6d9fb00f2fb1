"""What Python and notebooks show of the product's objects."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import samba_onnx
from models.cache import cached_onnx
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.report import Report
from samba_onnx.report.layout import render
from samba_onnx.report.terminal import summary
from samba_onnx.safety.notebook import notebook_table
from tests.report.samples import all_on_rdu, detector


def test_reprs_are_one_line(tmp_path: Path) -> None:
    model = cached_onnx("mlp", "tiny")
    with (
        samba_onnx.convert(model, tmp_path / "m.pef") as pef,
        samba_onnx.Device(pef) as device,
    ):
        (name,) = pef.manifest.graphs[0].inputs
        shape = next(s.shape for s in pef.manifest.symbols if s.name == name)
        for _ in range(3):
            device.run({name: np.zeros(shape, np.float32)})  # type: ignore[arg-type]
        assert repr(device.ledger).startswith("Ledger(3 runs, ")
        for thing in (pef, pef.manifest, Report.from_manifest(pef.manifest), device.ledger):
            assert len(repr(thing)) < 300
            assert "\n" not in repr(thing)


def test_a_manifest_names_model_target_and_level() -> None:
    assert repr(detector()) == "Manifest('detector.onnx' for sn40l at o3)"


def test_a_notebook_shows_the_lines_of_the_terminal() -> None:
    report = Report.from_manifest(detector())
    tree = ElementTree.fromstring(report._repr_html_())
    lines = "".join(tree.itertext()).splitlines()
    assert [line.rstrip() for line in lines] == render(summary(report), width=120).splitlines()


def test_names_are_no_markup_in_a_notebook() -> None:
    manifest = all_on_rdu()
    source = dataclasses.replace(manifest.source, name="<script>alert(1)</script>")
    text = Report.from_manifest(dataclasses.replace(manifest, source=source))._repr_html_()
    assert "<script" not in text


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[samba_onnx.Device]:
    """One that has run twice, been read, and run again."""
    place = tmp_path_factory.mktemp("pef") / "m.pef"
    with (
        samba_onnx.convert(cached_onnx("mlp", "tiny"), place) as pef,
        samba_onnx.Device(pef) as made,
    ):
        graph = pef.manifest.graphs[0]
        (name,) = graph.inputs
        shape = next(s.shape for s in pef.manifest.symbols if s.name == name)
        values = {name: np.zeros(shape, np.float32)}  # type: ignore[arg-type]
        made.run(values)
        made.run(values)
        made.read(next(s.name for s in pef.manifest.symbols if s.kind is SymbolKind.WEIGHT))
        made.run(values)
        yield made


def test_the_ledger_is_a_table_in_a_notebook(device: samba_onnx.Device) -> None:
    rows = ElementTree.fromstring(device.ledger._repr_html_()).findall("tr")
    assert len(rows) == 1 + len(device.ledger.totals())


def test_the_ledger_is_a_table_of_pandas(device: samba_onnx.Device) -> None:
    pytest.importorskip("pandas", reason="pip install 'samba-onnx[figures]'")
    table, ledger = device.ledger.to_pandas(), device.ledger
    for column in ("symbol", "bytes", "seconds", "cause", "direction"):
        assert table[column].tolist() == [row[column] for row in ledger.to_json()["transfers"]]
    for number in range(ledger.runs):
        records = ledger.run(number)
        assert table[table.run == number].symbol.tolist() == [copy.symbol for copy in records]
    assert table.run.isna().sum() == len(ledger.transfers) - sum(
        len(ledger.run(number)) for number in range(3)
    )
    sums = table.groupby(["cause", "direction"]).bytes.sum()
    for total in ledger.totals():
        assert sums[total.cause, total.direction] == total.bytes


def test_a_pef_and_its_manifest_are_tables_in_a_notebook(tmp_path: Path) -> None:
    with samba_onnx.convert(cached_onnx("mlp", "tiny"), tmp_path / "m.pef") as pef:
        members = ElementTree.fromstring(pef._repr_html_())
        assert members.findtext("caption") == f"{pef!r}: {pef.manifest!r}"
        rows = [[cell.text for cell in row] for row in members.findall("tr")]
        assert rows[1:] == [[one.name, f"{one.bytes:,}"] for one in pef.manifest.members]
        graphs = ElementTree.fromstring(pef.manifest._repr_html_())
        (graph,) = pef.manifest.graphs
        _, row = ([cell.text for cell in row] for row in graphs.findall("tr"))
        assert row == [graph.name, ", ".join(graph.inputs), ", ".join(graph.outputs)]


def test_a_table_of_a_notebook_has_no_markup_of_others() -> None:
    text = notebook_table("<b>", [("<script>alert(1)</script>", 'a"b\n\x1b[31m')], ("<i>", "&"))
    tree = ElementTree.fromstring(text)
    assert {element.tag for element in tree.iter()} == {"table", "caption", "tr", "th", "td"}
    assert "\x1b" not in text


def test_a_tensor_is_a_table_in_a_notebook() -> None:
    tensor = samba_onnx.SambaTensor(torch.ones(2, 3), name="<x>", batch_dim=0)
    tree = ElementTree.fromstring(tensor._repr_html_())
    rows = {row[0].text: row[1].text for row in tree.findall("tr")}
    assert tree.findtext("caption") == "SambaTensor <x>"
    assert rows["shape"] == "(2, 3)"
    assert rows["batch_dim"] == "0"
