"""Kinds of sections and symbols: the words that front ends, compiler, PEF and device share."""

from __future__ import annotations

import enum


class SectionType(enum.StrEnum):
    """What a section does in a training or inference step (SambaSession.run, ``section_types``)."""

    FWD = "FWD"
    BCKWD = "BCKWD"
    OPT = "OPT"
    ZEROGRAD = "ZEROGRAD"
    REDUCE = "REDUCE"
    GRADNORM = "GRADNORM"


class SymbolKind(enum.StrEnum):
    """The part that a symbol plays in its graph."""

    INPUT = "input"
    OUTPUT = "output"
    WEIGHT = "weight"
    CONSTANT = "constant"
    ACTIVATION = "activation"
    GRADIENT = "gradient"
    OPTIMIZER_STATE = "optimizer_state"
    BUFFER = "buffer"

    @property
    def words(self) -> str:
        """What messages and tables call it."""
        return self.value.replace("_", " ")


RESIDENT_KINDS = frozenset(
    {SymbolKind.WEIGHT, SymbolKind.BUFFER, SymbolKind.OPTIMIZER_STATE, SymbolKind.GRADIENT}
)
"""Kinds of symbols that stay in device memory between runs."""
LOADED_KINDS = RESIDENT_KINDS - {SymbolKind.GRADIENT}
"""Kinds of residents that are given their values before the first run."""
