"""What a PEF has, by name."""

from __future__ import annotations

from samba_onnx.facts.names import RATE, SEED
from samba_onnx.sessions.calls.parts import SessionParts
from samba_onnx.sessions.ordered_set import OrderedSet
from samba_onnx.sessions.program_names import (
    argin_names,
    argin_names_ending,
    section_ids,
    section_types,
    weight_names,
)

__all__ = ["ProgramCalls"]


class ProgramCalls(SessionParts):
    """Calls about the program that is loaded."""

    def get_weight_names(self) -> list[str]:
        """Return the names of all weights of the PEF.

        Raises:
            NotTracedError: The session has no PEF.
        """
        return weight_names(self._program.manifest)

    def get_argin_names(self) -> OrderedSet[str]:
        """Return the names of the scalars that a run may be given: keys of ``hyperparam_dict``.

        Raises:
            NotTracedError: The session has no PEF.
        """
        return argin_names(self._program.manifest)

    def get_dropout_rate_argin_names(self) -> list[str]:
        """Return the names of the rates of the dropouts.

        Raises:
            NotTracedError: The session has no PEF.
        """
        return argin_names_ending(self._program.manifest, RATE)

    def get_dropout_seed_argin_names(self) -> list[str]:
        """Return the names of the seeds of the dropouts.

        Raises:
            NotTracedError: The session has no PEF.
        """
        return argin_names_ending(self._program.manifest, SEED)

    def get_section_types(self) -> set[str]:
        """Return the types of the sections of the PEF.

        Raises:
            NotTracedError: The session has no PEF.
        """
        return section_types(self._program.manifest)

    def get_section_ids(self) -> list[int]:
        """Return the ids of the sections and fallbacks of the PEF, in the order of the schedule.

        Raises:
            NotTracedError: The session has no PEF.
        """
        return section_ids(self._program.manifest)
