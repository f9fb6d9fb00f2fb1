"""Whom the preparation tells how far it is: this room itself prints nothing."""

from __future__ import annotations

from typing import Protocol


class Reporter(Protocol):
    """What hears of progress and warnings; the command line shows them."""

    def begin(self, step: str, total: int | None = None) -> None:
        """Hear that a step begins.

        Args:
            step: What is done, in a few words.
            total: Bytes of text that the step goes through; None where nobody knows.
        """

    def advance(self, size: int, articles: int) -> None:
        """Hear how much of the step has been done since the last call.

        Args:
            size: Bytes of text.
            articles: Lines.
        """

    def warn(self, message: str) -> None:
        """Hear one sentence on what may not be as the user wishes."""


class Silence:
    """A reporter that tells nobody."""

    def begin(self, step: str, total: int | None = None) -> None:
        """Ignore a step."""

    def advance(self, size: int, articles: int) -> None:
        """Ignore progress."""

    def warn(self, message: str) -> None:
        """Ignore a warning."""
