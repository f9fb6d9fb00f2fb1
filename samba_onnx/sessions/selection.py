"""Which calls of a graph's schedule one pass over it executes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from samba_onnx.program.kinds import SectionType


@dataclass(frozen=True)
class Selection:
    """Some of a schedule's calls, in the schedule's order."""

    section_ids: tuple[int, ...] = ()
    """Only these sections; all if empty."""
    section_types: tuple[SectionType, ...] = ()
    """Only sections of these types; all if empty."""
    bounds: tuple[int | None, int | None] = (None, None)
    """The first call, and the call before which to stop."""

    def keywords(self) -> dict[str, Any]:
        """Return it as keywords of ``Device.run``."""
        return {
            "section_ids": self.section_ids or None,
            "section_types": self.section_types or None,
            "from_call": self.bounds[0],
            "until_call": self.bounds[1],
        }
