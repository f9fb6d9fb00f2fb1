"""What Python and notebooks show of a PEF and its manifest, whose fields are thousands."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from samba_onnx.safety.notebook import notebook_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samba_onnx.pef.manifest import Manifest
    from samba_onnx.pef.reader import Pef


def manifest_line(manifest: Manifest) -> str:
    """Return one line: model, target and level."""
    return f"Manifest({manifest.source.name!r} for {manifest.target.name} at {manifest.level})"


def manifest_table(manifest: Manifest) -> str:
    """Return a small table in HTML: what was compiled, its graphs, and what it keeps on the device."""
    return notebook_table(repr(manifest), _rows(manifest))


def pef_line(pef: Pef) -> str:
    """Return one line: the path."""
    return f"Pef({os.fspath(pef.path)!r})"


def pef_table(pef: Pef) -> str:
    """Return a small table in HTML: the rows of the manifest, and the members of the file."""
    members = [(f"member {one.name}", f"{one.bytes:,} bytes") for one in pef.manifest.members]
    return notebook_table(repr(pef), [*_rows(pef.manifest), *members])


def _rows(manifest: Manifest) -> Iterator[tuple[str, str]]:
    yield "model", manifest.source.name
    yield "target", f"{manifest.target.name} at {manifest.level}"
    for graph in manifest.graphs:
        yield f"graph {graph.name}", f"{', '.join(graph.inputs)} → {', '.join(graph.outputs)}"
    yield "on the RDU", f"{len(manifest.sections):,} sections"
    yield "on the CPU", f"{len(manifest.fallbacks):,} fallbacks"
    # By tier, since one that is full does not help another.
    for tier in dict.fromkeys(region.tier for region in manifest.regions):
        size = sum(region.bytes for region in manifest.regions if region.tier == tier)
        yield f"memory in {tier}", f"{size:,} bytes"
