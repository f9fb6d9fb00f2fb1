"""Cuts of small networks, held against all cuts that there are."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from samba_onnx.program.minimum_cut import ENDLESS, SINK, SOURCE, Network

POINTS = ["a", "b", "c", "d"]
Edges = list[tuple[str, str, int]]


def drawn(seed: int, endless: float = 0.0) -> Edges:
    """Draw edges between six points, some of which are never cut."""
    source = random.Random(seed)
    return [
        (one, other, ENDLESS if source.random() < endless else source.randint(0, 9))
        for one, other in itertools.permutations([SOURCE, SINK, *POINTS], 2)
        if source.random() < 0.5 and (one, other) != (SOURCE, SINK)
    ]


def cheapest(edges: Edges) -> list[set[str]]:
    """Return the sides of the source of all cuts that cost the least."""

    def price(side: set[str]) -> int:
        return sum(room for one, other, room in edges if one in side and other not in side)

    sides = list(_sides())
    least = min(map(price, sides))
    return [side for side in sides if price(side) == least]


def _sides() -> Iterator[set[str]]:
    for count in range(len(POINTS) + 1):
        for chosen in itertools.combinations(POINTS, count):
            yield {SOURCE, *chosen}


def network(edges: Edges) -> Network:
    made = Network()
    for edge in edges:
        made.edge(*edge)
    return made


@pytest.mark.parametrize("seed", range(60))
def test_both_sides_are_those_of_the_cheapest_cuts_closest_to_their_ends(seed: int) -> None:
    edges = drawn(seed, endless=0.2 if seed % 2 else 0.0)
    sides = cheapest(edges)
    assert network(edges).before_cut() == set.intersection(*sides)
    assert network(edges).behind_cut() == {SINK, *POINTS} - set.union(*sides)


def test_edges_between_the_same_points_add_up() -> None:
    made = network([(SOURCE, "a", 2), (SOURCE, "a", 2), ("a", SINK, 3)])
    assert made.before_cut() == {SOURCE, "a"}
    assert made.behind_cut() == {SINK}


def test_an_edge_without_a_price_is_never_cut() -> None:
    made = Network()
    made.edge(SOURCE, "a")
    made.edge("a", "b", 10**12)
    made.edge("b", SINK)
    assert made.before_cut() == {SOURCE, "a"}
    assert made.behind_cut() == {"b", SINK}
