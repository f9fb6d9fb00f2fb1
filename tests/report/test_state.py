"""Parts, residents and argins of a report."""

from __future__ import annotations

import pytest

import samba_onnx as samba
from samba_onnx.pef import load_pef
from samba_onnx.pef.manifest import Manifest
from samba_onnx.report import Report
from samba_onnx.report.layout import render
from samba_onnx.tools.inspect.inspect_text import details
from tests.cli.factories import batch, net
from tests.report.samples import all_on_rdu


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    model = net()
    optimizer = samba.optim.SGD(model.parameters(), lr=0.25, momentum=0.5)
    path = tmp_path_factory.mktemp("pef") / "m.pef"
    samba.session.compile(model, batch(), optimizer, output=path)
    with load_pef(path) as pef:
        return pef.manifest


def test_parts_add_up_to_the_sections(manifest: Manifest) -> None:
    report = Report.from_manifest(manifest)
    assert [part.type for part in report.parts] == ["FWD", "BCKWD", "OPT"]
    assert sum(part.sections for part in report.parts) == len(manifest.sections)
    assert sum(part.fallbacks for part in report.parts) == len(manifest.fallbacks)
    assert sum(part.nodes for part in report.parts) == report.coverage.nodes
    assert sum(part.flops for part in report.parts) == report.coverage.rdu_flops


def test_residents_are_listed_once_per_place(manifest: Manifest) -> None:
    rows = {row.name: row for row in Report.from_manifest(manifest).residents}
    names = ("net__layer__weight", "net__layer__bias")
    ends = {"": "user", "__grad": "device", "__momentum_buffer": "user"}
    wanted = {f"{name}{end}": source for name in names for end, source in ends.items()}
    loss = next(name for name in rows if "cross_entropy" in name)
    assert {name: row.source for name, row in rows.items()} == {**wanted, loss: "device"}
    assert rows["net__layer__weight"].shape == (3, 4)
    assert rows["net__layer__weight"].bytes == 48


def test_argins_have_their_defaults(manifest: Manifest) -> None:
    rows = {row.name: row.default for row in Report.from_manifest(manifest).argins}
    assert rows["optimizer0__group0__lr"] == 0.25
    assert rows["optimizer0__group0__momentum"] == 0.5


def test_people_see_all_of_it(manifest: Manifest) -> None:
    text = render(details(Report.from_manifest(manifest)))
    assert "weight                 2   60 B  loaded before it is read" in text
    assert "net__layer__weight__momentum_buffer" in text[text.index("\nResidents\n") :]
    assert "optimizer0__group0__lr" in text[text.index("argins: scalars") :]


def test_programs_without_say_nothing_of_it() -> None:
    report = Report.from_manifest(all_on_rdu())
    text = render(details(report))
    assert report.residents == report.argins == ()
    for title in ("Residents", "argins", "By section type"):
        assert title not in text
