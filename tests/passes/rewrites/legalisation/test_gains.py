"""What the page says that rules of legalisation bring, measured on networks that are kept here."""

from __future__ import annotations

import pytest

import samba_onnx
from docs.generators.legalisation import PAGE
from samba_onnx.pef.manifest import Manifest
from samba_onnx.report.report import Report
from samba_onnx.report.units import byte_text

CHOICES = {"none": ("all",), "auto": ()}
"""Rules that are left out, by the page's word."""
HEADS = {
    "detection_head": "`topk` of 30 x 7 scores, rows by `i // 7` and classes by `i % 7`, boxes gathered",
    "heat_map": "`argmax` of a map of heat, as row and column",
    "float64": "two linear layers with `(x.double() * 0.1).float()` between them, and a mean in float64, which stays",
}


def fallbacks_and_copies(manifest: Manifest) -> tuple[str, ...]:
    report = Report.from_manifest(manifest)
    return (
        f"{len(manifest.fallbacks)}",
        f"{sum(total.transfers for total in report.transfers_per_run)}",
        byte_text(sum(total.bytes for total in report.transfers_per_run)),
    )


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def unet_rows() -> list[str]:
    from samba_onnx.compiling.torch import porting
    from tests.passes.rewrites.legalisation.unet import build
    from tests.wild.torch_exports import written

    factory = porting.load_torch_model(f"{build.__module__}:build", weights=False)
    exports = {
        name: written(*build(), dynamo=dynamo, opset=18, names=("image",))
        for name, dynamo in (("torch's own, to ONNX", True), ("torch's older one, to ONNX", False))
    }
    rows = []
    for name in (*exports, "`module:factory`"):
        label = name
        for word, left_out in CHOICES.items():
            if name in exports:
                manifest = samba_onnx.analyze(exports[name], no_legalise=left_out)
            else:
                manifest = porting.analyze_torch(factory, no_legalise=left_out)
            rows.append(row(label, word, *fallbacks_and_copies(manifest)))
            label = ""
    return rows


def head_rows() -> list[str]:
    from tests.wild.number_types import written_by_name

    rows = []
    for name, words in HEADS.items():
        proto = written_by_name(name)
        cells = []
        for left_out in CHOICES.values():
            report = Report.from_manifest(samba_onnx.analyze(proto, no_legalise=left_out))
            cells.append(f"{report.coverage.cpu_nodes}")
        rows.append(row(words, *cells))
    return rows


@pytest.mark.filterwarnings("ignore")  # torch's exporters warn about themselves
def test_the_page_has_what_rules_bring() -> None:
    pytest.importorskip("torch")
    page = PAGE.read_text()
    assert "\n".join(unet_rows()) in page
    assert "\n".join(head_rows()) in page
