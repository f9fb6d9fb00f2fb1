"""The reference sample: the original model, run on seeded inputs in a child process.

It travels inside the PEF, so that a PEF can test itself anywhere; and it is the moment at which a
model that crashes or never ends shows itself, where it can do no harm.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx_ir as ir

from samba_onnx.comparing.element_errors import own_tolerance
from samba_onnx.comparing.rounding_depth import rounding_depth
from samba_onnx.comparing.sample import OtherShapeError, Sample
from samba_onnx.comparing.sample_inputs import DYNAMIC_SIZE, input_ranges, random_inputs
from samba_onnx.comparing.sample_limits import count_of_runs, may_never_end, obstacle
from samba_onnx.errors import InvalidModelError, ModelLimitError, TimeLimitError, UsageError
from samba_onnx.facts.dtypes import tensor_element
from samba_onnx.facts.families import QUANTISING
from samba_onnx.facts.tolerances import OUTPUT, rounding_unit
from samba_onnx.loading import LoadedModel
from samba_onnx.passes.rewrites.interface import dimensions
from samba_onnx.passes.sharding.collectives import CONTENT, SHARDED
from samba_onnx.pef import can_be_sample, encode_reference
from samba_onnx.pef.manifest import ReferenceSample
from samba_onnx.program.dataflow import name_of
from samba_onnx.program.program import DEFAULT_GRAPH
from samba_onnx.program.value_types import type_text
from samba_onnx.safety.files import printable
from samba_onnx.safety.sampling import SampleRun, run_sample

if TYPE_CHECKING:
    import numpy.typing as npt
    import onnx

KEPT_BYTES = 64 << 20
"""A larger sample is not kept: it would weigh more than what it proves."""
SECONDS = 60.0
"""Time for the sample unless the user gives more: no model of less than 1 GiB of weights that runs
at all needs a tenth of it, and one that never ends should not be waited for longer."""
_ROUNDING: Final = frozenset({"Round", *QUANTISING})
"""Operators of rewritten models that round to whole numbers."""


def make_sample(
    source: str | os.PathLike[str] | onnx.ModelProto,
    loaded: LoadedModel,
    model: ir.Model,
    seed: int,
    *,
    wanted: bool | None,
    seconds: float = SECONDS,
    graph: str = DEFAULT_GRAPH,
    custom_ops: Sequence[str] = (),
    constants: Mapping[str, npt.NDArray[Any]] | None = None,
    replaced: bool = False,
) -> Sample:
    """Run the original model on several sets of inputs and keep what it answered.

    Args:
        source: The original model as it was given.
        loaded: The same, loaded.
        model: The rewritten model; its inputs have the sizes that the PEF is compiled for.
        seed: Seed of the inputs.
        wanted: Whether to make a sample; None makes one unless the weights are very large.
        seconds: Wall-clock time after which the run is given up.
        graph: Name of the PEF's graph that the rewritten model became.
        custom_ops: Absolute paths of libraries with operators of custom domains.
        constants: Values of inputs that only the original has.
        replaced: Whether the original has float16 in place of which the rewritten model has another type.

    Returns:
        The sample, or a note that says why there is none.

    Raises:
        UsageError: ``seconds`` is no time.
        ModelLimitError: The run takes too much memory; a TimeLimitError where it takes too much time, and may never end
            or was asked for.
        InvalidModelError: The model's answer contradicts its outputs; an OtherShapeError where a shape does.
        ExecutionError: onnxruntime died of the model or refused it as wrong.
    """
    _refuse_no_time(seconds)
    if wanted is False:
        return Sample()
    if reason := obstacle(model, explicit=wanted is True):
        return _without(reason)
    wide = replaced or _is_rounded(model)
    options: dict[str, Any] = {"custom_ops": custom_ops, "wide": wide, "seconds": seconds}
    trial = functools.partial(_sampled, loaded.source(source), constants or {}, **options)
    inputs, run = _checked(trial, model, seed, loaded.path or loaded.summary.name, wanted=wanted)
    if run.not_sampled:
        return _without(run.not_sampled)
    return _kept(inputs, run, graph, seed, rounding_depth(model))


def _refuse_no_time(seconds: float) -> None:
    if not 0 < seconds < math.inf:
        raise UsageError(f"sample_seconds is {seconds}: expected a number of seconds above 0")


def _sampled(
    source: os.PathLike[str] | onnx.ModelProto,
    constants: Mapping[str, npt.NDArray[Any]],
    inputs: Sequence[Mapping[str, npt.NDArray[Any]]],
    **options: Any,
) -> SampleRun:
    """Run the original on what the PEF is given, and on what it has as constants."""
    return run_sample(source, [{**given, **constants} for given in inputs], threads=1, **options)


def keep_sample(
    inputs: Sequence[Mapping[str, npt.NDArray[Any]]],
    outputs: Sequence[Mapping[str, npt.NDArray[Any]]],
    wide: Sequence[Mapping[str, npt.NDArray[Any]]] = (),
    *,
    graph: str = DEFAULT_GRAPH,
    seed: int = 0,
    depth: int = 1,
    absolute: float = OUTPUT.absolute,
) -> Sample:
    """Return what the original model answered as a PEF keeps it, whoever ran the model.

    Of several runs as many are kept as the limit of size allows, the first ones.

    Args:
        inputs: For each run what the model was given, by the names of the graph's inputs.
        outputs: For each run what it answered, by the names of the graph's outputs.
        wide: For each run the same in float32 and without rounding; empty if nobody asked for it.
        graph: Name of the PEF's graph.
        seed: Seed of the first run's inputs; 0 where the user chose them.
        depth: Operators that round, on the longest way through the model.
        absolute: What an element of float32 may be off, as a part of the largest one.

    Returns:
        The sample, or a note that says why it is not kept.
    """
    if not all(can_be_sample(arrays) for arrays in (*inputs, *outputs)):
        return _without("its inputs or outputs are not all numbers")
    narrow = _differing(outputs, wide)
    runs = [
        {
            "input": list(arrays.values()),
            "output": list(outputs[number].values()),
            "wide": [wide[number][name] for name in narrow],
        }
        for number, arrays in enumerate(inputs)
    ]
    size = sum(array.nbytes for part in runs[0].values() for array in part)
    if size > KEPT_BYTES:
        return _without(
            f"inputs and outputs take {size >> 20} MiB, the limit is {KEPT_BYTES >> 20}"
        )
    del runs[KEPT_BYTES // max(size, 1) :]  # all runs are of one size
    tolerance = (OUTPUT.relative, absolute)
    names = (tuple(inputs[0]), tuple(outputs[0]), tuple(narrow))
    record = ReferenceSample(graph, seed, len(runs), *names, depth, *tolerance)
    return Sample(record, encode_reference(runs))


def _kept(
    inputs: Sequence[Mapping[str, npt.NDArray[Any]]],
    run: SampleRun,
    graph: str,
    seed: int,
    depth: int,
) -> Sample:
    """Keep what the original answered, with a note on what rounding cost it."""
    absolute = own_tolerance(run)
    sample = keep_sample(
        inputs, run.outputs, run.wide, graph=graph, seed=seed, depth=depth, absolute=absolute
    )
    notes = [*sample.notes, *_own_error(run)]
    if absolute > OUTPUT.absolute:
        notes.append(
            f"The original loses digits: inputs that move by a unit of their last place move its outputs. The "
            f"reference sample may be off by {absolute:.2g} of the largest number of an output."
        )
    return dataclasses.replace(sample, notes=tuple(notes))


def _own_error(run: SampleRun) -> tuple[str, ...]:
    """Say how far the outputs of the original are from what they are without rounding."""
    worst = 0.0
    for outputs, wide in zip(run.outputs, run.wide, strict=False):
        for name, exact in wide.items():
            if exact.dtype != np.float32 or exact.shape != outputs[name].shape or not exact.size:
                continue
            largest = float(np.abs(exact[np.isfinite(exact)]).max(initial=0.0))
            with np.errstate(invalid="ignore"):
                errors = np.abs(outputs[name].astype(np.float32) - exact)
            error = float(errors[np.isfinite(errors)].max(initial=0.0))
            worst = max(worst, error / largest if largest else 0.0)
    if not worst:
        return ()
    return (
        f"On the reference sample, rounding to 16 bits or to quantised numbers costs the original up to "
        f"{worst:.2g} of the largest number of an output.",
    )


def _differing(
    outputs: Sequence[Mapping[str, npt.NDArray[Any]]],
    wide: Sequence[Mapping[str, npt.NDArray[Any]]],
) -> list[str]:
    """Return the outputs of 16 bits, and those that rounding changed."""
    return [
        name
        for name, array in (outputs[0].items() if wide else ())
        if wide[0][name].dtype == np.float32
        and (
            rounding_unit(str(array.dtype))
            or any(
                not np.array_equal(run[name], other[name], equal_nan=True)
                for run, other in zip(outputs, wide, strict=True)
            )
        )
    ]


def _checked(
    trial: Callable[..., SampleRun],
    model: ir.Model,
    seed: int,
    source: object,
    *,
    wanted: bool | None,
) -> tuple[list[dict[str, npt.NDArray[Any]]], SampleRun]:
    """Run the original, and refuse answers that contradict the model; say why where there are none."""
    try:
        inputs, run = _answered(trial, model, seed)
    except TimeLimitError:
        if wanted or may_never_end(model):
            raise
        # It is only slow, here and now: what was compiled is right without a sample.
        reason = "the original needs more time than it was given (--sample-seconds)"
        return [], SampleRun((), (), reason)
    except (UsageError, KeyError) as error:
        return [], SampleRun((), (), str(error))
    for outputs in run.outputs:
        _check_outputs(model, outputs, source)
    return inputs, run


def _answered(
    trial: Callable[..., SampleRun], model: ir.Model, seed: int
) -> tuple[list[dict[str, npt.NDArray[Any]]], SampleRun]:
    """Run the original on all that its graph shows it to take, or on 0 and 1 if it takes no more."""
    specifications, ranges = _specifications(model), input_ranges(model.graph)
    drawn, plain = (
        [
            random_inputs(specifications, seed + number, legal)
            for number in range(count_of_runs(model))
        ]
        for legal in (ranges, None)
    )
    run = _run(trial, drawn)
    # On the same inputs the model would be refused for the same reason.
    if run.not_sampled and not _are_equal(drawn, plain):
        return plain, _run(trial, plain)
    return drawn, run


def _run(
    trial: Callable[..., SampleRun], inputs: Sequence[Mapping[str, npt.NDArray[Any]]]
) -> SampleRun:
    try:
        return trial(inputs)
    except ModelLimitError as error:
        raise type(error)(
            f"{error}; give the sample more time (--sample-seconds) or leave it out (--no-sample)"
        ) from None


def _is_rounded(model: ir.Model) -> bool:
    """Return whether a rewritten model shows that the original rounds to 16 bits or to whole numbers."""
    narrow = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    return any(value.dtype in narrow for value in model.graph.outputs) or any(
        node.op_type in _ROUNDING for node in model.graph
    )


def _are_equal(
    runs: Sequence[Mapping[str, npt.NDArray[Any]]], others: Sequence[Mapping[str, npt.NDArray[Any]]]
) -> bool:
    return all(
        np.array_equal(array, other[name])
        for run, other in zip(runs, others, strict=True)
        for name, array in run.items()
        if array.dtype.kind in "iub"
    )


def _check_outputs(
    model: ir.Model, outputs: Mapping[str, npt.NDArray[Any]], source: object
) -> None:
    """Refuse a model whose answer is not of the types and shapes that it declares."""
    for value in model.graph.outputs:
        name, kind, shape = name_of(value), type_text(value), _dimensions(value)
        array = outputs[name]
        element = tensor_element(kind)
        fits = shape is None or (
            len(shape) == len(array.shape)
            and all(
                declared_size == size or not isinstance(declared_size, int)
                for declared_size, size in zip(shape, array.shape, strict=True)
            )
        )
        other_type = element is not None and element.numpy != array.dtype
        if not fits or other_type:
            declared = (
                "?"
                if shape is None
                else ", ".join("?" if dim is None else str(dim) for dim in shape)
            )
            # A wrong shape can be planned without, as one that nobody knows; a wrong type cannot.
            kind_of_error = InvalidModelError if other_type else OtherShapeError
            raise kind_of_error(
                f"{printable(source)}: output {printable(name)!r} is taken to be {kind} [{declared}], as "
                f"the model declares it or as it was inferred, but the model computes {array.dtype} "
                f"{list(array.shape)}: correct the declaration, if it is the model's, or report the model"
            )


def _without(reason: str) -> Sample:
    return Sample(notes=(f"The PEF carries no reference sample: {reason}.",))


def _dimensions(value: ir.Value) -> tuple[int | str | None, ...] | None:
    """Return the sizes of a whole output, None for those that vary; None where its rank is unknown."""
    sharded = value.meta.get(SHARDED)
    return dimensions(value.shape) if sharded is None else tuple(sharded.shape)


def _specifications(model: ir.Model) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return type and shape of every input, with small sizes for dynamic dimensions."""
    specifications = {}
    for value in model.graph.inputs:
        if CONTENT in value.meta:
            continue  # was an initializer, of which each of several RDUs has a shard
        sharded = value.meta.get(SHARDED)
        shape = sharded.shape if sharded else value.shape or ()
        sizes = tuple(size if isinstance(size, int) else DYNAMIC_SIZE for size in shape)
        specifications[name_of(value)] = (type_text(value), sizes)
    return specifications
