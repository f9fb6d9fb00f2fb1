"""Which gradients replicas reduce, in which order, and how many bytes that moves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from samba_onnx.pef import gradients
from samba_onnx.pef.gradients import gradient_buckets, reduction_transfers
from samba_onnx.pef.manifest import Manifest
from tests.runtime.building import build
from tests.runtime.replicas import two_layers
from tests.runtime.test_residents import cache


def manifest_of(folder: Path, *, accumulates: bool = False) -> Manifest:
    with build(folder, two_layers(accumulates=accumulates)) as pef:
        return pef.manifest


@pytest.mark.parametrize("accumulates", [False, True])
def test_gradients_of_weights_in_the_order_in_which_they_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accumulates: bool
) -> None:
    manifest = manifest_of(tmp_path, accumulates=accumulates)
    (bucket,) = gradient_buckets(manifest, manifest.graphs[0])
    # That of the output is no weight's; ZEROGRAD comes first in the schedule.
    assert bucket.symbols == ("w2__grad", "w1__grad")
    assert bucket.call == 2 + accumulates
    monkeypatch.setattr(gradients, "BUCKET_BYTES", 300)
    buckets = gradient_buckets(manifest, manifest.graphs[0])
    # 96 and 256 bytes do not go together.
    assert [(one.symbols, one.call, one.index) for one in buckets] == [
        (("w2__grad",), 1 + accumulates, 0),
        (("w1__grad",), 2 + accumulates, 1),
    ]


def test_types_do_not_mix(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path)
    symbols = [
        replace(one, type="tensor(float16)", bytes=48) if one.name == "w2__grad" else one
        for one in manifest.symbols
    ]
    buckets = gradient_buckets(replace(manifest, symbols=tuple(symbols)), manifest.graphs[0])
    assert [one.symbols for one in buckets] == [("w2__grad",), ("w1__grad",)]


def test_what_does_not_train_reduces_nothing(tmp_path: Path) -> None:
    with build(tmp_path, cache()) as pef:
        for graph in pef.manifest.graphs:
            assert gradient_buckets(pef.manifest, graph) == ()
            assert reduction_transfers(pef.manifest, graph, 4, on_rdu=True) == ()


@pytest.mark.parametrize(("replicas", "chunk"), [(2, 44), (3, 30), (8, 11), (64, 2)])
def test_a_ring_passes_chunks(tmp_path: Path, replicas: int, chunk: int) -> None:
    """88 numbers in as many chunks as there are replicas, each passed on twice by all but one."""
    manifest = manifest_of(tmp_path)
    graph = manifest.graphs[0]
    (move,) = reduction_transfers(manifest, graph, replicas, on_rdu=True)
    assert move.bytes == 2 * (replicas - 1) * chunk * 4
    target = manifest.target
    seconds = target.link_latency_seconds + 4 * chunk / target.link_bytes_per_second
    assert move.seconds == pytest.approx(2 * (replicas - 1) * seconds)
    moves = reduction_transfers(manifest, graph, replicas, on_rdu=False)
    assert [(one.symbol, one.bytes, one.direction.value) for one in moves] == [
        ("w2__grad", 96, "rdu_to_host"),
        ("w1__grad", 256, "rdu_to_host"),
        ("w2__grad", 96, "host_to_rdu"),
        ("w1__grad", 256, "host_to_rdu"),
    ]


def test_one_replica_moves_nothing(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path)
    assert reduction_transfers(manifest, manifest.graphs[0], 1, on_rdu=False) == ()
