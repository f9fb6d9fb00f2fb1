"""Equal layers: stretches of a sequence that repeat, as the 96 layers of a decoder do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

from samba_onnx.report.program.program_records import EdgeReport, NodeReport

__all__ = ["Repeat", "find_repeats", "node_tokens"]

_LONGEST: Final = 4000
"""Longest stretch that is looked for; a layer has tens of nodes, one with experts a few thousand."""
_NEAREST: Final = 16
"""Places behind each one that may begin its repetition: a layer with several equal parts has as many false beginnings."""
_LOOKS: Final = 300
"""Comparisons for each element, on the whole: names are a stranger's, and a sequence that nearly repeats everywhere would
take minutes."""
_FAR: Final = -1
"""Stands for an operand from beyond a stretch, as a mask that all layers read."""


class Repeat(NamedTuple):
    """A stretch that follows itself."""

    start: int
    """Index of its first element."""
    period: int
    """Elements of it."""
    times: int
    """How often it is there."""

    @property
    def end(self) -> int:
        """Index behind the last element."""
        return self.start + self.period * self.times


def find_repeats(tokens: Sequence[Hashable], least: int = 3) -> list[Repeat]:
    """Return stretches that repeat, in order, none within another.

    Args:
        tokens: What makes elements equal.
        least: Elements that a stretch has at least.

    Returns:
        Of those that begin at one place the one that hides the most elements.
    """
    places: defaultdict[Hashable, list[int]] = defaultdict(list)
    for place, token in enumerate(tokens):
        places[token].append(place)
    rank = {place: number for each in places.values() for number, place in enumerate(each)}
    repeats: list[Repeat] = []
    place, looks = 0, _LOOKS * len(tokens)
    while place < len(tokens) and looks > 0:
        # Only where the same element comes again can the stretch do so.
        later = places[tokens[place]][rank[place] + 1 :][:_NEAREST]
        candidates = [
            _repeat(tokens, place, other - place)
            for other in later
            if least <= other - place <= _LONGEST
        ]
        looks -= 1 + sum(candidate.end + candidate.period - place for candidate in candidates)
        # One element less to look at is not worth a fold.
        worth = [
            candidate for candidate in candidates if (candidate.times - 1) * candidate.period > 1
        ]
        best = max(worth, key=lambda one: (one.end, -one.period), default=None)
        if best is None:
            place += 1
        else:
            repeats.append(best)
            place = best.end
    return repeats


def _repeat(tokens: Sequence[Hashable], start: int, period: int) -> Repeat:
    """Return how often the stretch of a length that begins at a place is there."""
    place = start + period
    while place < len(tokens) and tokens[place] == tokens[place - period]:
        place += 1
    return Repeat(start, period, (place - start) // period)


def node_tokens(
    nodes: Sequence[NodeReport], edges: Sequence[EdgeReport], first: int = 0
) -> list[Hashable]:
    """Return what makes nodes of a stage equal: operator, results, weights, and from how far before they read.

    Args:
        nodes: Nodes of one stage, with ids in a row.
        edges: Values that they read or write.
        first: Id of the first of them.
    """
    results: list[list[Hashable]] = [[] for _ in nodes]
    operands: list[list[int]] = [[] for _ in nodes]
    for edge in edges:
        if edge.source is not None and 0 <= edge.source - first < len(nodes):
            results[edge.source - first].append((edge.type, edge.shape))
        for target in edge.targets:
            if 0 <= target - first < len(nodes):
                distance = _FAR if edge.source is None else target - edge.source
                near = distance if 0 < distance <= _LONGEST else _FAR
                operands[target - first].append(near)
    return [
        (node.operator, node.weight_bytes, tuple(wrote), tuple(sorted(read)))
        for node, wrote, read in zip(nodes, results, operands, strict=True)
    ]
