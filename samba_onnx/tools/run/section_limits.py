"""Which sections ``--section-types`` and ``--section-ids`` choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from samba_onnx.compiling.texts import is_size
from samba_onnx.errors import UsageError


@dataclass(frozen=True)
class SectionLimits:
    """Which sections the user wants to execute; all where both are empty."""

    types: frozenset[str]
    """In upper case; sets, so that sections are executed in the order of the schedule."""
    ids: frozenset[int]


def parse_sections(types: Sequence[str] | None, ids: Sequence[str] | None) -> SectionLimits:
    """Read ``--section-types`` and ``--section-ids`` options.

    Args:
        types: As ``fwd,BCKWD``, each.
        ids: As ``0,1``, each.

    Raises:
        UsageError: One is malformed, or both are given.
    """
    kinds = [part.strip().upper() for text in types or () for part in text.split(",")]
    numbers = [part.strip() for text in ids or () for part in text.split(",")]
    if kinds and numbers:
        raise UsageError("--section-types and --section-ids were both given: give one of them")
    if not all(kinds):
        raise UsageError("--section-types: expected types, as --section-types FWD,BCKWD")
    if not all(number == "0" or is_size(number) for number in numbers):
        raise UsageError(f"--section-ids {','.join(numbers)}: expected numbers, as 0,1")
    return SectionLimits(frozenset(kinds), frozenset(map(int, numbers)))
