"""Conversion of an ONNX model whose PEF is compared with it, on given inputs, before it appears."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from samba_onnx.errors import EngineRefusalError, ExecutionError, ExportMismatchError
from samba_onnx.facts.domains import qualified
from samba_onnx.facts.operators import Randomness, operators
from samba_onnx.loading import LoadedModel, load_model
from samba_onnx.pef import Pef
from samba_onnx.program.kinds import SectionType
from samba_onnx.program.source_location import source_location
from samba_onnx.runtime.device import Device
from samba_onnx.runtime.engine.protocol import EngineSettings
from samba_onnx.runtime.engine.registry import DEFAULT_ENGINE, make_engine
from samba_onnx.runtime.requests import run_request
from samba_onnx.safety.files import printable
from samba_onnx.workflows.checking.outcome import (
    ORIGINAL_MODEL,
    Comparison,
    NotComparableError,
    done,
    not_comparable,
)
from samba_onnx.workflows.checking.staging import provisional
from samba_onnx.workflows.compiler import convert
from samba_onnx.workflows.verification import Verification, compare

_ALWAYS_RANDOM = operators(random=[Randomness.ALWAYS])
# Without their third operand they do nothing.
_RANDOM_IN_TRAINING = operators(random=[Randomness.TRAINING])


def convert_compared(
    model: str | os.PathLike[str] | onnx.ModelProto,
    output: str | os.PathLike[str],
    inputs: Mapping[str, Any],
    missing: str = "",
    **options: Any,
) -> Comparison:
    """Convert a model into a PEF that computes what the model does on onnxruntime.

    Args:
        model: A path to an ONNX model, or the model in memory.
        output: The PEF to write; its log goes beside it.
        inputs: Arrays by the names of the model's inputs.
        missing: Why there are no inputs to compare with; empty if there are.
        **options: Further arguments of ``convert``.

    Returns:
        The errors of all outputs; or why nothing was compared, which is a note in the PEF as well.

    Raises:
        ExportMismatchError: The PEF computes something else. Nothing is written.
        EngineRefusalError: The model or the PEF cannot be run; names the operator. Nothing is
            written.
        ModelError: The model cannot be used.
        OutOfDeviceMemoryError: The model does not fit into the target's memory.
        OutputError: The PEF cannot be written.
    """
    loaded = load_model(model)
    try:
        expected = _original_outputs(model, loaded, inputs, missing)
    except NotComparableError as obstacle:
        comparison = not_comparable(str(obstacle), ORIGINAL_MODEL)
        with provisional(output) as draft:
            with convert(model, draft, notes=comparison.notes, **options) as pef:
                _compiled_outputs(loaded, pef, None)
            return comparison
    with provisional(output) as draft:
        with convert(model, draft, **options) as pef:
            actual = _compiled_outputs(loaded, pef, inputs)
        return done(_errors(compare(actual, expected, against="original")))


def _original_outputs(
    model: str | os.PathLike[str] | onnx.ModelProto,
    loaded: LoadedModel,
    inputs: Mapping[str, Any],
    missing: str,
) -> dict[str, Any]:
    """Run the original; raise ``NotComparableError`` where there is nothing to compare with."""
    engine = make_engine(DEFAULT_ENGINE, EngineSettings())
    source = model if isinstance(model, onnx.ModelProto) else loaded.path or Path(model)
    try:
        computation = engine.open(source, "the ONNX model")
    except ExecutionError as error:
        raise _refusal(loaded, error, "the ONNX model") from error
    drawing = _random_operators(loaded.model)
    if drawing:
        raise NotComparableError(f"{', '.join(drawing)} draws other numbers in every run")
    if missing:
        raise NotComparableError(missing)
    try:
        return dict(zip(computation.outputs, computation.run(inputs), strict=True))
    except engine.failures as error:
        reason = engine.reason(error)
        raise NotComparableError(f"{engine.name} fails on the given inputs: {reason}") from error


def _compiled_outputs(
    loaded: LoadedModel, pef: Pef, inputs: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Run the PEF; without inputs, only let the engine prepare all of it."""
    try:
        with Device(pef, prepack=False) as device:
            if inputs is not None:
                return device.run(inputs)
            device.prepare(run_request(None, pef.manifest.graphs[0].inputs, None))
            return {}
    except ExecutionError as error:
        raise _refusal(loaded, error, "the compiled model") from error


def _refusal(loaded: LoadedModel, error: ExecutionError, what: str) -> EngineRefusalError:
    """Return an error that names the operator of which the engine speaks, if it can be told."""
    reason = error.reason or str(error)
    node = _named(loaded.model, reason)
    operator = location = None
    where = "no single operator of it"
    if node is not None:
        operator = qualified(node.domain, node.op_type)
        location = source_location(node) or None
        where = f"operator {printable(operator)}"
        where += f" at {location}" if location else f", node {printable(node.name or '')!r}"
    return EngineRefusalError(
        f"{what} cannot be run: the engine refuses {where}; write that operator in another way. The "
        f"engine's own words: {reason}",
        section_type=SectionType.FWD.value,
        operator=operator,
        location=location,
        node=None if node is None else node.name,
        reason=reason,
    )


def _named(model: ir.Model, reason: str) -> ir.Node | None:
    """Return the node that an engine's words name: by its name, or else by its operator.

    The model may be too large to try its beginnings one by one.
    """
    nodes = list(model.graph.all_nodes())
    words = set(re.findall(r"[\w./:-]+", reason))
    for node in nodes:
        if node.name and node.name in words:
            return node
    parts = set(re.findall(r"\w+", reason))
    return next((node for node in nodes if node.op_type in parts), None)


def _random_operators(model: ir.Model) -> list[str]:
    """Return the operators of a model that draw random numbers, without those that are turned off."""
    drawing = set()
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        trains = len(node.inputs) > 2 and node.inputs[2] is not None
        if node.op_type in _ALWAYS_RANDOM or (node.op_type in _RANDOM_IN_TRAINING and trains):
            drawing.add(node.op_type)
    return sorted(drawing)


def _errors(result: Verification) -> dict[str, float]:
    wrong = [output for output in result.outputs if not output.passed]
    if wrong:
        names = [output.name for output in wrong]
        worst = max(wrong, key=lambda output: output.max_relative_error)
        raise ExportMismatchError(
            f"the compiled model computes something else than the ONNX model, for outputs {names}: "
            f"{worst.mismatched} of the {worst.elements} numbers of {printable(worst.name)!r} are "
            f"off, by up to {worst.max_relative_error:.2g} of the largest; write what makes these "
            "outputs with other operators"
        )
    return {output.name: output.max_relative_error for output in result.outputs}
