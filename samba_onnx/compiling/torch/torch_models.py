"""A module of torch's that a user named, with its example inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn
from torch.export import ExportedProgram
from torch.optim import Optimizer

from samba_onnx.export.capture.precision import current_precision
from samba_onnx.export.programs.inference import Exported, export_inference, export_program

__all__ = ["TorchModel", "export_model"]


@dataclasses.dataclass(frozen=True)
class TorchModel:
    """A module with example inputs."""

    name: str
    """What reports call it."""
    module: nn.Module
    args: tuple[Any, ...]
    """Example inputs by position."""
    keywords: Mapping[str, Any]
    """Example inputs by keyword."""
    exported: ExportedProgram | None = None
    """The program that it was loaded from."""
    optimizers: tuple[Optimizer, ...] = ()
    """Optimizers of its parameters; empty for a module that only runs forward."""


def export_model(model: TorchModel) -> Exported:
    """Return the program that runs a model forward, with what is known of the module.

    Args:
        model: The module, in the mode in which it is to run.

    Raises:
        ModelError: The module cannot be exported.
        UsageError: Inputs do not fit.
    """
    # A program is exported once more where it is to compute in other types than it states.
    if model.exported is not None and current_precision().is_own:
        return export_program(model.exported, model.module, _root(model))
    if model.exported is not None:
        plain = _plain(model.module)
        return export_inference(plain, model.args, keywords=model.keywords, prefix=_root(model))
    return export_inference(model.module, model.args, keywords=model.keywords)


def _plain(module: nn.Module) -> nn.Module:
    """Return the module of an exported program without its class, whose hooks torch.export does not call."""
    plain: nn.Module = type("Exported", (nn.Module,), {"forward": type(module).forward})()
    plain.__dict__.update(module.__dict__, graph=module.graph)
    return plain


def _root(model: TorchModel) -> str:
    """Return the name of the class that was exported, else that of the file."""
    assert model.exported is not None
    for node in model.exported.graph.nodes:
        for _, kind in (node.meta.get("nn_module_stack") or {}).values():
            return str(kind).rpartition(".")[2].lower()
    return "".join(c if c.isalnum() else "_" for c in Path(model.name).stem)
