"""Values beyond the tolerance of their type, which are judged again once the original's own error is known."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np

from samba_onnx.comparing.compared_values import ComparedValue

__all__ = ["DoubtfulValues", "Look"]

_KEPT_BYTES: Final = 256 << 20
"""So much is kept of other answers of the original: of a PEF that is wrong throughout the first values tell
enough."""

Look = Callable[[ComparedValue, Any], None]
"""Called with a value that was compared, and what the PEF computes for it."""


class DoubtfulValues:
    """What is doubtful after a first comparison, and what the original answers otherwise there."""

    def __init__(self, look: Look | None, *, final: bool = False) -> None:
        """Begin without doubts.

        Args:
            look: Is shown each value once its verdict is final.
            final: Whether every verdict is, as that of tolerances that the user chose.
        """
        self._look = look
        self._final = final
        self._first = True
        self._names: set[str] = set()
        self._others: dict[str, list[Any]] = {}

    def __bool__(self) -> bool:
        """Tell whether any verdict waits."""
        return not self._final and bool(self._names)

    def show(self, value: ComparedValue, actual: Any) -> None:
        """Take a verdict: show the value, or keep in mind that it is doubtful.

        Args:
            value: A value that was compared.
            actual: What the PEF computes for it.
        """
        # What the PEF computes is not kept of a doubtful value: the second comparison computes it
        # once more, so that no more than one section's values are in memory.
        if not self._final and not value.passed:
            self._names.add(value.name)
        # In the second comparison, what passed the first has been shown already.
        elif self._look is not None and (self._first or value.name in self._names):
            self._look(value, actual)

    def keep(self, values: Mapping[str, Any], names: Collection[str]) -> None:
        """Keep other answers of the original for doubtful values.

        Args:
            values: What it computes now.
            names: Names of the values that one section computes.
        """
        kept = sum(array.nbytes for arrays in self._others.values() for array in arrays)
        for name in self._names.intersection(names):
            # Looked at once for each section: the limit is against a PEF that is wrong throughout,
            # and may be exceeded by what one section computes.
            if isinstance(values[name], np.ndarray) and kept < _KEPT_BYTES:
                self._others.setdefault(name, []).append(values[name])

    def settle(self) -> None:
        """Let every verdict from now on be final, of a second comparison of all values."""
        self._final, self._first = True, False

    def others(self, name: str) -> Sequence[Any]:
        """Return the other answers for a value.

        Args:
            name: Any value.
        """
        return self._others.get(name, ())
