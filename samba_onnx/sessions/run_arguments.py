"""What a run of a session is asked for, in one record."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx
import torch
from torch import nn

from samba_onnx.runtime.reducing import GradientReduction
from samba_onnx.runtime.requests import RunRequest, run_request
from samba_onnx.runtime.selection import SectionIds

__all__ = ["ALL_SECTIONS", "RunArguments"]

ALL_SECTIONS: SectionIds = ()
"""What a run has for ids when nobody gave any; 0 is a section, not the wish for all."""


@dataclass(frozen=True)
class RunArguments:
    """What ``SambaSession.run`` was given; its documentation says what each of them means."""

    inputs: Any
    """Tensors by ``sn_name``."""
    outputs: Any
    """Tensors or names whose values are wanted."""
    numbers: Any = None
    """Hyperparameters by name; None for none."""
    data_parallel: Any = False
    """Whether replicas combine their gradients."""
    reduce_on_rdu: bool = False
    """Whether devices do that among themselves."""
    data_parallel_mode: str = "normal"
    """When they combine them."""
    section_ids: SectionIds = ALL_SECTIONS
    """Sections to execute, like the types and calls that follow."""
    section_types: Sequence[str] = ()
    """Types of sections to execute."""
    from_call: int | None = None
    """The call to begin with."""
    until_call: int | None = None
    """The call to stop before."""
    train: bool = True
    """Whether dropouts drop values."""
    graph_name: str | None = None
    """The graph to run; None for the only one."""
    output_grads: Sequence[torch.Tensor] | None = None
    """Gradients of the outputs, in their order."""
    detect_anomaly: bool = False
    """Whether to look for NaN and infinite numbers in what sections write."""

    @property
    def is_plain(self) -> bool:
        """Whether a run that differs in values only may be repeated: no part of the schedule, and nothing to look at."""
        # By identity: an empty list of ids that a program made is read as all sections by the device only.
        return (
            self.section_ids is ALL_SECTIONS
            and not self.detect_anomaly
            and self.output_grads is None
            and self.until_call is None
            and self.from_call is None
        )

    def resolved(self) -> RunArguments:
        """Return the arguments as they are meant: without a model, and with types that can be read twice."""
        arguments = self._without_model()
        types: Any = arguments.section_types
        if isinstance(types, str):
            return replace(arguments, section_types=(types,))
        if not isinstance(types, Collection):
            # What is gone through twice: None, as for the device, and what can be read once only.
            return replace(arguments, section_types=tuple(types or ()))
        return arguments

    def request(
        self,
        graph: str,
        inputs: Collection[str],
        outputs: Collection[str],
        reduction: GradientReduction | None,
    ) -> RunRequest:
        """Return what the device is asked to run.

        Args:
            graph: Name of the graph.
            inputs: Names of the inputs that are given, or the inputs by name.
            outputs: Names of the graph's outputs that are wanted.
            reduction: How gradients are combined with those of other replicas; None for one device.
        """
        return run_request(
            graph,
            inputs,
            outputs,
            section_ids=self.section_ids,
            section_types=self.section_types,
            from_call=self.from_call,
            until_call=self.until_call,
            single=self.detect_anomaly,
            reduction=reduction,
        )

    def _without_model(self) -> RunArguments:
        if not isinstance(self.inputs, (nn.Module, onnx.ModelProto)):
            return self
        # As the documented examples call it: the model first, and everything else one place later.
        numbers = self.data_parallel
        return replace(
            self,
            inputs=self.outputs,
            outputs=self.numbers or (),
            numbers=None if numbers is True else numbers,
            data_parallel=numbers is True,
        )
