"""Gradients that a backward overwrites before an optimizer has read them."""

from __future__ import annotations

import logging
from typing import Final

from samba_onnx.pef.manifest import Manifest
from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.runtime.plans import RunPlan

LOGGER: Final = logging.getLogger(__name__)


class GradientOverwrites:
    """Notices that gradients of several batches were to be added up, and were not.

    In torch ``backward`` adds to the gradients that there are. A program does so if it was compiled
    with ``gradient_accumulation``; the others keep those of the last batch.
    """

    def __init__(self, manifest: Manifest) -> None:
        """Begin with a program of which nothing ran yet.

        Args:
            manifest: Says which sections and gradients the program has.
        """
        types = {section.type for section in manifest.sections}
        accumulates = SectionType.ZEROGRAD in types
        self._is_watching = SectionType.BCKWD in types and not accumulates
        kinds = {symbol.name: symbol.kind for symbol in manifest.symbols}
        self._gradients = {name for name, kind in kinds.items() if kind is SymbolKind.GRADIENT}
        self._unread: set[str] = set()

    def ran(self, plan: RunPlan) -> None:
        """Note that a run succeeded, and say so if it was the first to overwrite gradients.

        Args:
            plan: What it executed.
        """
        # A step alone reads the gradients that a backward left, so that the next backward
        # overwrites nothing that is still needed.
        if not self._is_watching or not plan.goes_backward:
            if plan.updates:
                self._unread.clear()
            return
        steps = plan.updates
        if steps and not self._unread:
            return  # A whole training step, as most runs are.
        written = self._gradients & plan.written
        # Mini-batches of one run overwrite each other's gradients, too, unless each has a step.
        if written & self._unread or (plan.batches > 1 and not steps):
            # A loop makes the same mistake in every turn; one warning says all.
            self._is_watching = False
            LOGGER.warning(
                "BCKWD ran again before OPT: the gradients of the batch before are overwritten, and "
                "only those of the last one count. Compile with gradient_accumulation=True to have "
                "them added up. This is said once per trace."
            )
        # Noted before steps clear it: a step of the same run reads what its backward wrote.
        self._unread |= written
        if steps:
            self._unread.clear()
