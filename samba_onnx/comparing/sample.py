"""What a PEF keeps of a run of the original model, and what decides whether there is one.

Apart from what makes it (:mod:`samba_onnx.comparing.reference_sample`), which an analysis has no use for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from samba_onnx.errors import InvalidModelError
from samba_onnx.facts.domains import is_custom
from samba_onnx.pef.manifest import ReferenceSample
from samba_onnx.program.dataflow import each_node

__all__ = ["OtherShapeError", "Sample", "forget_stated_outputs", "is_tried"]


class OtherShapeError(InvalidModelError):
    """An output has another shape than it is taken to have; of the right type it can be planned without one."""


@dataclass(frozen=True)
class Sample:
    """What goes into the PEF."""

    record: ReferenceSample | None = None
    content: bytes | None = None
    """Member ``reference.safetensors``."""
    notes: tuple[str, ...] = ()
    """Why there is no sample, when there is none although one was wanted."""


def forget_stated_outputs(model: ir.Model) -> None:
    """Take away what a model states of the shapes of outputs that it computes.

    Args:
        model: A model before any pass.
    """
    for value in model.graph.outputs:
        if value.producer() is not None:
            value.shape = None


def is_tried(model: ir.Model, custom_ops: Sequence[str] = ()) -> bool:
    """Return whether the engine can be asked to prepare what a model was compiled to.

    Args:
        model: The rewritten model. Operators of domains that the engine cannot have are named in a note
            instead.
        custom_ops: Libraries with operators of such domains; with one, the engine is asked.
    """
    return bool(custom_ops) or not any(is_custom(node.domain) for node in each_node(model.graph))
