"""Places of nodes: readers below writers, none on another, the same every time."""

from __future__ import annotations

import importlib.util
import random

import pytest

from samba_onnx.report.page import graph_layout
from samba_onnx.report.page.graph_layout import positions


def random_edges(nodes: int) -> set[tuple[int, int]]:
    chosen = random.Random(nodes)
    return {
        (chosen.randrange(max(0, node - 20), node), node)
        for node in range(1, nodes)
        for _ in range(2)
        if chosen.random() < 0.8
    }


@pytest.fixture(params=["fast_sugiyama", "networkx"])
def layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "networkx":
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    else:
        pytest.importorskip("fast_sugiyama")
    return str(request.param)


@pytest.mark.usefixtures("layout")
@pytest.mark.parametrize("nodes", [1, 2, 50, 400])
def test_places(nodes: int) -> None:
    edges = random_edges(nodes)
    places = positions(range(nodes), edges)
    assert places.keys() == set(range(nodes))
    assert all(places[writer][1] < places[reader][1] for writer, reader in edges)
    assert len(set(places.values())) == nodes
    assert positions(range(nodes), set(edges)) == places


@pytest.mark.usefixtures("layout")
def test_parts_without_edges_stand_side_by_side() -> None:
    places = positions([0, 1, 2], {(0, 1)})
    assert len({places[0], places[1], places[2]}) == 3
    assert places[2][0] >= graph_layout.SPACING
