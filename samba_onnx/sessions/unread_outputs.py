"""Runs whose results nobody asked for."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final

from samba_onnx.pef.manifest import Symbol
from samba_onnx.program.kinds import SectionType
from samba_onnx.runtime.plans import RunPlan

LOGGER: Final = logging.getLogger(__name__)


class UnreadOutputs:
    """Notices a forward run that was asked for no output, and changes nothing that stays."""

    def __init__(self, symbols: Iterable[Symbol] = ()) -> None:
        """Begin with a program of which nothing ran yet.

        Args:
            symbols: Say where values of the program are kept.
        """
        self._is_watching = True
        self._kept = {s.name for s in symbols if s.region not in ("", s.name)}
        """What a run leaves for others: new values of buffers, and outputs in a region they share."""

    def ran(self, plan: RunPlan, outputs: Any) -> None:
        """Note that a run succeeded, and say so if it is the first that was for nothing.

        Args:
            plan: What it executed.
            outputs: What the run was given as outputs. A list without any says that none are wanted.
        """
        if not self._is_watching or not (
            outputs is None or (type(outputs) is tuple and not outputs)
        ):
            return
        # Training changes weights, and forward may write buffers: such runs are for something.
        if plan.section_types != {SectionType.FWD} or plan.written & self._kept:
            return
        self._is_watching = False
        LOGGER.warning(
            "run was asked for no output of graph %r and returns an empty tuple: give the outputs that "
            "are wanted, as in samba.session.run(inputs, model.output_tensors), or [] for none. This "
            "is said once per trace.",
            plan.schedule.graph.name,
        )
