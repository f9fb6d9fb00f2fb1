"""What a pattern must be, and the patterns that one with options stands for."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import networkx

from samba_onnx.passes.planning.fusion.patterns import Pattern, PatternEntry

MOST_VARIANTS: Final = 64
"""Patterns that the options of one may stand for."""


class PatternError(Exception):
    """A pattern that cannot be used: what is wrong with it, and where."""

    def __init__(self, message: str, *place: str) -> None:
        """Take what is wrong.

        Args:
            message: What was stated, and what was expected.
            *place: PatternEntry and key.
        """
        super().__init__(message)
        self.place = place


def check_pattern(
    entries: Mapping[str, PatternEntry], options: Mapping[str, Sequence[str]]
) -> None:
    """Refuse a pattern that can be no section.

    Args:
        entries: Its entries by name.
        options: The entries that some of them stand for, which are no operator themselves.

    Raises:
        PatternError: An entry names another that does not exist, the entries go round in a circle or are not
            connected, or none of them has to be there.
    """
    graph: networkx.DiGraph[str] = networkx.DiGraph()
    graph.add_nodes_from(entries)
    for name, key, other in _references(entries, options):
        if other not in entries:
            close = difflib.get_close_matches(other, entries, 1)
            meant = f"; did you mean {close[0]!r}?" if close else ""
            raise PatternError(f"there is no entry {other!r} in the pattern{meant}", name, key)
        graph.add_edge(name, other)
    if not networkx.is_directed_acyclic_graph(graph):
        circle = [edge[0] for edge in networkx.find_cycle(graph)]
        raise PatternError(f"goes round in a circle: {' -> '.join([*circle, circle[0]])}")
    first, *others = networkx.weakly_connected_components(graph)
    if others:
        # Named in the order of the file, which sets do not have.
        apart, connected = (
            min(others[0], key=list(entries).index),
            min(first, key=list(entries).index),
        )
        raise PatternError(
            f"{apart!r} is not connected with {connected!r}: operators of a section feed each other, by child"
        )
    choices = {other for others in options.values() for other in others}
    if not any(e.required and e.included for n, e in entries.items() if n not in options):
        raise PatternError("no operator has to be in the section: leave required or included out")
    for name in choices:
        if not entries[name].required:
            raise PatternError("an option of match_first_option is required", name, "required")


def _references(
    entries: Mapping[str, PatternEntry], options: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, str, str]]:
    """Yield the entries that entries name, with the key under which they do."""
    for name, entry in entries.items():
        for child in entry.children:
            yield name, "child", child
        for option in options.get(name, ()):
            yield name, "match_first_option", option


def variants(
    entries: Mapping[str, PatternEntry], options: Mapping[str, Sequence[str]]
) -> tuple[Pattern, ...]:
    """Return the patterns without options that one with options stands for.

    Args:
        entries: The entries by name, of a pattern that was checked.
        options: The entries that some of them stand for, which are no operator themselves.

    Returns:
        A pattern for each combination, in the order of the options. What only feeds from an option that was
        not chosen is not part of it.

    Raises:
        PatternError: There are too many.
    """
    # Counted before any is made: ten entries of ten options stand for more patterns than there is memory.
    count = 1
    for choices in options.values():
        count *= len(choices)
    if count > MOST_VARIANTS:
        raise PatternError(
            f"its options stand for {count:,} patterns; expected at most {MOST_VARIANTS}"
        )
    combinations = itertools.product(*options.values())
    return tuple(
        _variant(entries, dict(zip(options, chosen, strict=True)), options)
        for chosen in combinations
    )


def _variant(
    entries: Mapping[str, PatternEntry],
    choices: Mapping[str, str],
    options: Mapping[str, Sequence[str]],
) -> Pattern:
    gone = {other for name, others in options.items() for other in others if other != choices[name]}
    # What one entry does not choose may be the choice of another.
    gone -= set(choices.values())
    parents = Pattern(entries).parents
    pending = list(gone)
    while pending:  # what only an option feeds goes with it
        for child in entries[pending.pop()].children:
            if child not in gone and all(parent in gone for parent in parents[child]):
                gone.add(child)
                pending.append(child)

    def meant(name: str) -> str:
        # An option may stand for options itself.
        while name in choices:
            name = choices[name]
        return name

    return Pattern(
        {
            name: PatternEntry(
                entry.operators,
                tuple(dict.fromkeys(meant(c) for c in entry.children if meant(c) not in gone)),
                entry.required,
                entry.included,
            )
            for name, entry in entries.items()
            if name not in gone and name not in choices
        }
    )
