"""All programs, by the name of their group and their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.training_programs import (
    adversarial,
    audio,
    compression,
    control,
    diffusion,
    fields,
    games,
    graphs,
    learning,
    losses,
    optimizers,
    physics,
    recommendation,
    regularised,
    retrieval,
    scripts,
    stateful,
    structures,
)
from tests.training_programs.outcome import Program

__all__ = ["CATALOGUE"]

_GROUPS = (
    games,
    graphs,
    audio,
    diffusion,
    physics,
    recommendation,
    retrieval,
    compression,
    control,
    adversarial,
    stateful,
    learning,
    structures,
    fields,
    losses,
    optimizers,
    regularised,
    scripts,
)

CATALOGUE: Final[Mapping[str, Program]] = {
    f"{group.__name__.rpartition('.')[2]}/{program.__name__}": program
    for group in _GROUPS
    for program in group.PROGRAMS
}
