"""Conversion of an ONNX model whose PEF is compared with it, on given inputs, before it appears."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import onnx
import onnx_ir as ir

from samba_onnx.comparing.eager.own_inputs import is_meaningless
from samba_onnx.comparing.eager.refusals import refusal_of
from samba_onnx.comparing.function_comparison import coarseness
from samba_onnx.comparing.outcome import (
    ORIGINAL_MODEL,
    Comparison,
    NotComparableError,
    done,
    not_comparable,
    own_values,
)
from samba_onnx.comparing.sample_inputs import input_ranges, random_inputs
from samba_onnx.comparing.trials import Verification
from samba_onnx.comparing.verification import compare
from samba_onnx.compiling.compiler import convert
from samba_onnx.compiling.options import CompileOptions
from samba_onnx.compiling.staging import provisional
from samba_onnx.errors import EngineRefusalError, ExecutionError, ExportMismatchError, SambaError
from samba_onnx.facts.defaults import DEFAULT_ENGINE
from samba_onnx.facts.operators import Randomness, operators
from samba_onnx.loading import LoadedModel, load_model
from samba_onnx.pef import Pef
from samba_onnx.program.dataflow import each_node
from samba_onnx.program.kinds import SectionType
from samba_onnx.program.value_types import type_text
from samba_onnx.runtime.engine.protocol import EngineSettings
from samba_onnx.runtime.engine.registry import make_engine
from samba_onnx.runtime.parallel_device import open_device
from samba_onnx.runtime.requests import run_request
from samba_onnx.safety.files import printable

if TYPE_CHECKING:
    from samba_onnx.compiling.keywords import OnnxKeywords

_ALWAYS_RANDOM = operators(random=[Randomness.ALWAYS])
# Without their third operand they do nothing.
_RANDOM_IN_TRAINING = operators(random=[Randomness.TRAINING])


def convert_compared(
    model: str | os.PathLike[str] | onnx.ModelProto,
    output: str | os.PathLike[str],
    inputs: Mapping[str, Any],
    missing: str = "",
    *,
    options: CompileOptions | None = None,
    metadata: Mapping[str, str] | None = None,
    **keywords: Unpack[OnnxKeywords],
) -> Comparison:
    """Convert a model into a PEF that computes what the model does on onnxruntime.

    Args:
        model: A path to an ONNX model, or the model in memory.
        output: The PEF to write; its log goes beside it.
        inputs: Arrays by the names of the model's inputs.
        missing: Why there are no inputs to compare with; empty if there are.
        options: A record of options, the shapes of inputs among them; keywords override it.
        metadata: Key-value pairs to keep in the PEF.
        **keywords: Options by name.

    Returns:
        The errors of all outputs; or why nothing was compared, which is a note in the PEF as well.

    Raises:
        ExportMismatchError: The PEF computes something else. Nothing is written.
        EngineRefusalError: The model or the PEF cannot be run; names the operator. Nothing is written.
        ModelError: The model cannot be used.
        OutOfDeviceMemoryError: The model does not fit into the target's memory.
        OutputError: The PEF cannot be written.
    """
    loaded, chosen = load_model(model), (options or CompileOptions()).replace(**keywords)
    converted = functools.partial(convert, model, options=chosen, metadata=metadata)
    try:
        original = _original_outputs(model, loaded, inputs, missing, chosen.sizes.input_shapes)
    except NotComparableError as obstacle:
        comparison = not_comparable(str(obstacle), ORIGINAL_MODEL)
        # Though nothing is compared, the PEF appears only once the engine has prepared it.
        with provisional(output) as draft:
            with converted(draft, notes=comparison.notes) as pef:
                _compiled_outputs(loaded, pef, None)
            return comparison
    notes = done({}, original.condition, ORIGINAL_MODEL).notes
    with provisional(output) as draft:
        with converted(draft, notes=notes) as pef:
            actual = _compiled_outputs(loaded, pef, original.inputs)
            coarser = coarseness(pef, pef.manifest.graphs[0])
        compared = compare(actual, original.outputs, against="original", coarser=coarser)
        return done(_errors(compared), original.condition, ORIGINAL_MODEL)


@dataclass(frozen=True)
class _Original:
    """What an ONNX model answered."""

    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    replaced: tuple[str, ...]
    """Names of the inputs that have other values than those that were given."""

    @property
    def condition(self) -> str:
        return own_values(self.replaced)


def _original_outputs(
    model: str | os.PathLike[str] | onnx.ModelProto,
    loaded: LoadedModel,
    inputs: Mapping[str, Any],
    missing: str,
    shapes: Mapping[str, Sequence[Any]],
) -> _Original:
    """Run the original; raise ``NotComparableError`` where there is nothing to compare with."""
    engine = make_engine(DEFAULT_ENGINE, EngineSettings())
    source = loaded.source(model)
    try:
        computation = engine.open(source, "the ONNX model")
    except ExecutionError as error:
        raise _refusal(loaded, error, "the ONNX model") from error
    drawing = _random_operators(loaded.model)
    if drawing:
        raise NotComparableError(f"{', '.join(drawing)} draws other numbers in every run")
    first = None
    for arrays, replaced in _trials(loaded.model, inputs, missing, shapes):
        try:
            results = computation.run(arrays)
        except engine.failures as error:
            reason = f"{engine.name} fails on the given inputs: {engine.reason(error)}"
            # The first failure is told: the others are on values that nobody gave.
            first = first or NotComparableError(reason)
        else:
            outputs = dict(zip(computation.outputs, results, strict=True))
            return _Original(arrays, outputs, replaced)
    raise first or NotComparableError(missing)


def _trials(
    model: ir.Model, inputs: Mapping[str, Any], missing: str, shapes: Mapping[str, Sequence[Any]]
) -> Iterator[tuple[dict[str, Any], tuple[str, ...]]]:
    """Yield inputs to try: those that were given, and with values that fit in the place of others."""
    specifications = {
        value.name or "": (type_text(value), _sizes(value, inputs, shapes))
        for value in model.graph.inputs
        if not value.is_initializer()
    }
    try:
        own = random_inputs(specifications, 0, input_ranges(model.graph))
    except SambaError:  # an input is no tensor, or too large to be made
        own = {}
    if missing:
        if own:
            yield own, tuple(own)
        return
    own = {name: array for name, array in own.items() if name in inputs}
    empty = [name for name in own if is_meaningless(inputs[name])]
    yield {**inputs, **{name: own[name] for name in empty}}, tuple(empty)
    # Then other integers, too: those that were given may be beyond the tables that they index.
    integers = [name for name in own if inputs[name].dtype.kind in "iu"]
    if integers:
        names = tuple(dict.fromkeys([*empty, *integers]))
        yield {**inputs, **{name: own[name] for name in names}}, names


def _sizes(
    value: ir.Value, inputs: Mapping[str, Any], shapes: Mapping[str, Sequence[Any]]
) -> list[int]:
    """Return the sizes of an input: those of what was given, else those that it is compiled for."""
    name = value.name or ""
    if name in inputs:
        return list(inputs[name].shape)
    declared: Sequence[Any] = () if value.shape is None else tuple(value.shape)
    return [size if isinstance(size, int) else 1 for size in shapes.get(name, declared)]


def _compiled_outputs(
    loaded: LoadedModel, pef: Pef, inputs: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Run the PEF; without inputs, only let the engine prepare all of it."""
    try:
        # It runs once, for which copying weights into another layout does not pay.
        with open_device(pef, prepack=False) as device:
            if inputs is not None:
                return device.run(inputs)
            device.prepare(run_request(None, pef.manifest.graphs[0].inputs, None))
            return {}
    except ExecutionError as error:
        raise _refusal(loaded, error, "the compiled model") from error


def _refusal(loaded: LoadedModel, error: ExecutionError, what: str) -> EngineRefusalError:
    """Return an error that names the operator of which the engine speaks, if it can be told."""
    node = _named(loaded.model, error.reason or str(error))
    return refusal_of(node, error, what, SectionType.FWD)


def _named(model: ir.Model, reason: str) -> ir.Node | None:
    """Return the node that an engine's words name: by its name, or else by its operator.

    The model may be too large to try its beginnings one by one.
    """
    nodes = list(each_node(model.graph))
    words = set(re.findall(r"[\w./:-]+", reason))
    for node in nodes:
        if node.name and node.name in words:
            return node
    # An operator's name may be joined to others by what names of nodes have inside, as dots.
    parts = set(re.findall(r"\w+", reason))
    return next((node for node in nodes if node.op_type in parts), None)


def _random_operators(model: ir.Model) -> list[str]:
    """Return the operators of a model that draw random numbers, without those that are turned off."""
    drawing = set()
    for node in each_node(model.graph):
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
