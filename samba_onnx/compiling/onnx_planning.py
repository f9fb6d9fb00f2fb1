"""From an ONNX model to the plan of its PEF: loaded, some inputs fixed as constants, for one size or several."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from samba_onnx.comparing.sample import forget_stated_outputs
from samba_onnx.compiling.compiler_settings import with_fixed_inputs
from samba_onnx.compiling.planning import CompilerSettings, PlannedPrograms, plan_sizes
from samba_onnx.loading import LoadedModel, fix_inputs, load_model, onnx_program
from samba_onnx.passes.order import PipelineOptions
from samba_onnx.program.program import Program

if TYPE_CHECKING:
    import onnx


def plan_onnx(
    model: str | os.PathLike[str] | onnx.ModelProto,
    settings: CompilerSettings,
    options: Sequence[PipelineOptions],
    constants: Mapping[str, Any] | None,
    *,
    stated_outputs: bool = True,
) -> tuple[LoadedModel, PlannedPrograms]:
    """Load an ONNX model and plan it, for each of several sizes anew.

    Args:
        model: A path, or the model in memory.
        settings: The device, the level, and how.
        options: What the user says of sizes and types, for each graph.
        constants: Inputs that are fixed as constants, with their values by name.
        stated_outputs: Whether the shapes count that the model states of what it computes.

    Returns:
        The model as it was loaded, and its plans with the manifest.

    Raises:
        ModelError: The model cannot be used.
        UsageError: An option contradicts the model.
        OutOfDeviceMemoryError: The model does not fit into the target's memory.
    """
    settings.progress("load")
    loaded = load_model(model)
    fixed = fix_inputs(loaded.model, constants)
    options = with_fixed_inputs(options, fixed, loaded.model.graph.inputs)
    # Passes change a model: every other graph begins with one of its own.
    models = itertools.chain([loaded], (load_model(model) for _ in options[1:]))

    def program() -> Program:
        each = next(models)
        if each is not loaded:
            fix_inputs(each.model, constants)
        if not stated_outputs:
            forget_stated_outputs(each.model)
        return onnx_program(each)

    planned = plan_sizes(program, options, loaded.summary, settings)
    notes = (*loaded.notes, *planned.manifest.notes)
    manifest = replace(planned.manifest, notes=notes, fixed_inputs=fixed.records)
    return loaded, replace(planned, manifest=manifest)
