"""What somebody sees who looks at a model after every pass that changed it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import onnx_ir as ir

from samba_onnx.passes.rewrites.rewriting import mark_weights


@dataclass(frozen=True)
class PassStep:
    """One pass that changed a model."""

    name: str
    model: ir.Model
    """The model after it; it goes on to change."""
    make: Callable[[], ir.passes.PassBase]
    """Returns the same pass anew, to run it on another model."""
    binds_later: bool
    """Whether dimensions of inputs may still become static."""


class PassWatch(Protocol):
    """Looks at one model while passes run on it."""

    def see(self, step: PassStep) -> None:
        """Look at the model after a pass that changed it; what this raises ends the pipeline.

        Args:
            step: The pass, and the model.
        """

    def finish(self) -> tuple[str, ...]:
        """Look back after the last pass.

        Returns:
            Sentences for the report.
        """


def run_again(model: ir.Model, steps: Sequence[PassStep]) -> None:
    """Run passes on another model, without the guards of the pipeline.

    Args:
        model: Is changed in place.
        steps: The passes, in their order.
    """
    mark_weights(model)
    for step in steps:
        step.make()(model)
