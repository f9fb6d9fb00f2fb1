"""What Python and notebooks show of the product's objects."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

import samba_onnx
from models.cache import cached_onnx
from samba_onnx.report import Report
from samba_onnx.report.layout import render
from samba_onnx.report.terminal import summary
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


def test_the_ledger_is_a_table_in_a_notebook(tmp_path: Path) -> None:
    model = cached_onnx("mlp", "tiny")
    with samba_onnx.convert(model, tmp_path / "m.pef") as pef, samba_onnx.Device(pef) as device:
        rows = ElementTree.fromstring(device.ledger._repr_html_()).findall("tr")
        assert len(rows) == 1 + len(device.ledger.totals())
