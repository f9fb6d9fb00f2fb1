"""Comparison of an exported graph with what torch computes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import nn

from samba_onnx.comparing.eager.dropouts import CONDITION
from samba_onnx.comparing.eager.mismatches import compared
from samba_onnx.comparing.eager.own_inputs import fitting_runs
from samba_onnx.comparing.eager.refusals import refuse_unless_prepared
from samba_onnx.comparing.eager.running import feeds_of, run_part
from samba_onnx.comparing.outcome import (
    Comparison,
    NotComparableError,
    both,
    done,
    not_comparable,
)
from samba_onnx.export.capture.captured_modules import Inputs, arguments
from samba_onnx.export.capture.samba_calls import samba_calls
from samba_onnx.export.programs.inference import Exported


@samba_calls()
def compare_with_eager(
    module: nn.Module,
    inputs: Inputs,
    exported: Exported,
    keywords: Mapping[str, Any] = MappingProxyType({}),
) -> Comparison:
    """Run an exported graph on the engine, and compare it with the module itself.

    Args:
        module: With the weights to compare with; its buffers stay as they are.
        inputs: What it was exported with; where that does not fit, the check has values of its own.
        exported: As ``export_inference`` returns it.
        keywords: Further arguments by keyword.

    Returns:
        The errors of all outputs and of the buffers that are written; or why the module cannot be compared, after an engine prepared
        what was exported all the same.

    Raises:
        ExportMismatchError: One of them differs; the message names the first operator that does, and
            the user's line.
        EngineRefusalError: The engine refuses an operator of the graph.
    """
    part = exported.program.parts[0]
    args, named = arguments(inputs)
    try:
        fitting = fitting_runs(module, args, {**named, **keywords}, exported, trains=False)
        runs, expected = fitting.runs, fitting.runs.native
        feeds = feeds_of(module, runs.leaves, exported)
        errors = compared({**feeds, **run_part(part, feeds)}, expected, runs)
        dropouts = CONDITION if exported.program.argins else ""
        return done(errors, both(dropouts, fitting.condition))
    except NotComparableError as obstacle:
        refuse_unless_prepared(part)
        return not_comparable(str(obstacle))
