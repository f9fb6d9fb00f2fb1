"""Comparison of an exported training step with torch's autograd."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from samba_onnx.comparing.eager.dropouts import CONDITION
from samba_onnx.comparing.eager.mismatches import compared
from samba_onnx.comparing.eager.numbers import zeros
from samba_onnx.comparing.eager.own_inputs import fitting_runs
from samba_onnx.comparing.eager.refusals import refuse_unless_prepared
from samba_onnx.comparing.eager.running import feeds_of, run_part
from samba_onnx.comparing.eager.torch_runs import TorchRuns
from samba_onnx.comparing.outcome import (
    Comparison,
    NotComparableError,
    both,
    done,
    not_comparable,
)
from samba_onnx.errors import ExportMismatchError
from samba_onnx.export.capture.captured_modules import Inputs, arguments
from samba_onnx.export.capture.samba_calls import samba_calls
from samba_onnx.export.programs.inference import Exported
from samba_onnx.facts.names import GRADIENT, LOSSES, ZEROED
from samba_onnx.program.kinds import SectionType
from samba_onnx.program.program import Part, Program


@samba_calls()
def compare_training(module: nn.Module, inputs: Inputs, exported: Exported) -> Comparison:
    """Run an exported forward and backward on the engine, and compare them with torch.

    Active dropouts are compared with their rates at 0, for the masks of torch and of the device
    differ.

    Args:
        module: With the weights to compare with; its parameters keep their gradients.
        inputs: What it was exported with; where that does not fit, the check has values of its own.
        exported: As ``export_training`` returns it.

    Returns:
        The errors of outputs, buffers and gradients; or why the module cannot be compared, after an engine
        prepared all parts of what was exported all the same.

    Raises:
        ExportMismatchError: An output, a new value of a buffer, or a gradient differs; the message
            names it, and the first operator that computes something else.
        EngineRefusalError: The engine refuses an operator; the error names the type of the section.
    """
    program = exported.program
    args, keywords = arguments(inputs)
    try:
        fitting = fitting_runs(module, args, keywords, exported, trains=True)
        errors = _errors_of_step(fitting.runs, exported)
    except NotComparableError as obstacle:
        for part in program.parts:
            refuse_unless_prepared(part)
        return not_comparable(str(obstacle))
    for part in program.parts:
        if part.type not in (SectionType.FWD, SectionType.BCKWD):  # which were run
            refuse_unless_prepared(part)
        if part.type is SectionType.ZEROGRAD:
            _refuse_unless_zero(part)
    return done(errors, both(CONDITION if program.argins else "", fitting.condition))


def _refuse_unless_zero(part: Part) -> None:
    """Run the part that sets gradients to zero, and look at what it leaves."""
    for name, values in run_part(part, {}).items():
        if values.any():
            gradient = name.removesuffix(ZEROED)
            raise ExportMismatchError(
                f"the exported graph sets {gradient!r} to other numbers than zero before gradients "
                "are accumulated: compile without gradient_accumulation"
            )


def _errors_of_step(runs: TorchRuns, exported: Exported) -> Mapping[str, float]:
    """Compare outputs, buffers and gradients; return the largest error of each."""
    expected, feeds = runs.native, feeds_of(runs.module, runs.leaves, exported)
    values = {**feeds, **run_part(_part(exported.program, SectionType.FWD), feeds)}
    return compared({**values, **_backward(exported.program, values)}, expected, runs)


def _part(program: Program, kind: SectionType) -> Part:
    return next(part for part in program.parts if part.type is kind)


def _backward(program: Program, feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Run the backward part, if there is one, with gradients of one for the losses.

    Args:
        program: The program of one step.
        feeds: What the forward part read and what it computed.
    """
    if all(part.type is not SectionType.BCKWD for part in program.parts):
        return {}
    backward = _part(program, SectionType.BCKWD)
    losses = json.loads(program.metadata.get(LOSSES, "[]"))
    gradients = {}
    for value in backward.model.graph.inputs:
        name = value.name or ""
        if name not in feeds:
            seed = name.removesuffix(GRADIENT) in losses
            gradients[name] = np.ones_like(zeros(value)) if seed else zeros(value)
    return run_part(backward, {**feeds, **gradients})
