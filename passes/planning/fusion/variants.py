"""What a pattern must be, and the patterns that one with options stands for."""

from __future__ import annotations

import difflib
import graphlib
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

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


def _connected(edges: Mapping[str, Collection[str]]) -> list[set[str]]:
    """Return the entries that hang together, whichever way edges go."""
    parts: list[set[str]] = []
    for name, others in edges.items():
        whole = {name, *others}
        touched = [part for part in parts if part & whole]
        parts = [part for part in parts if not part & whole]
        parts.append(whole.union(*touched))
    return parts


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
    edges: dict[str, set[str]] = {name: set() for name in entries}
    for name, key, other in _references(entries, options):
        if other not in entries:
            close = difflib.get_close_matches(other, entries, 1)
            meant = f"; did you mean {close[0]!r}?" if close else ""
            raise PatternError(f"there is no entry {other!r} in the pattern{meant}", name, key)
        edges[name].add(other)
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as error:
        # Each waits for the one before it, and the first is the last, too.
        circle = list(reversed(error.args[1][1:]))
        begin = circle.index(min(circle, key=list(edges).index))
        text = " -> ".join([*circle[begin:], *circle[: begin + 1]])
        raise PatternError(f"goes round in a circle: {text}") from None
    first, *others = sorted(_connected(edges), key=lambda part: min(map(list(edges).index, part)))
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
