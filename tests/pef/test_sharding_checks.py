"""Manifests that contradict themselves about several RDUs are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from samba_onnx.compiling.compiler import analyze
from samba_onnx.errors import PefFormatError
from samba_onnx.pef.consistency import check_manifest
from samba_onnx.pef.manifest import Manifest, Section, Symbol
from samba_onnx.pef.sharding import AxisSplit, Collective, CollectiveKind
from tests.passes.sharding.models import llama


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    return analyze(llama(1, 4, 4, layers=1), n_chips=2)


def shards(manifest: Manifest, change: Callable[[AxisSplit], AxisSplit]) -> Manifest:
    def changed(symbol: Symbol) -> Symbol:
        if symbol.sharded is None:
            return symbol
        axes = tuple(change(split) for split in symbol.sharded.axes)
        return replace(symbol, sharded=replace(symbol.sharded, axes=axes))

    return replace(manifest, symbols=tuple(changed(symbol) for symbol in manifest.symbols))


def exchanges(manifest: Manifest, collective: Collective) -> Manifest:
    def changed(section: Section) -> Section:
        return section if section.collective is None else replace(section, collective=collective)

    return replace(manifest, sections=tuple(changed(section) for section in manifest.sections))


CHANGES: dict[str, Callable[[Manifest], Manifest]] = {
    "no RDUs": lambda m: replace(m, parallel=None),
    "too many RDUs": lambda m: replace(m, parallel=replace(m.parallel, rdus=10**6)),
    "other RDUs": lambda m: replace(m, parallel=replace(m.parallel, rdus=3)),
    "other axis": lambda m: shards(m, lambda s: replace(s, axis=7)),
    "beyond the axis": lambda m: shards(m, lambda s: replace(s, ranges=((0, 10**9),) * 2)),
    "negative": lambda m: shards(m, lambda s: replace(s, ranges=((-4, 4),) * 2)),
    "half a range": lambda m: shards(m, lambda s: replace(s, ranges=((0,),) * 2)),
    "unequal": lambda m: shards(m, lambda s: replace(s, ranges=((0, 1), (0, 2)))),
    "other bytes": lambda m: exchanges(m, Collective(CollectiveKind.ALL_REDUCE, 5)),
    "other kind": lambda m: exchanges(m, Collective(CollectiveKind.ALL_GATHER, 5)),
}


def test_a_manifest_agrees_with_itself(manifest: Manifest) -> None:
    check_manifest(manifest)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_contradiction_is_refused(
    manifest: Manifest, change: Callable[[Manifest], Manifest]
) -> None:
    with pytest.raises(PefFormatError):
        check_manifest(change(manifest))
