"""Do the numbers hold? A PEF on the emulator against something it was not made by.

Two comparisons: against the original model on the same engine (:func:`verify`), and against the
reference sample that the compiler put into the PEF (:func:`self_test`). The device runs the PEF in both
ways in which it keeps weights: mapped from the file, as a quick look does, and packed for its kernels,
as programs that run it many times do; and several times, so that repeated runs are compared, too.

A model with numbers of 16 bits, or one that quantises, is compared as a function besides: both sides in
float32, without rounding to whole numbers. Rounding hides what a small fault does; there it does not.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from samba_onnx.comparing.expectations import ChosenTolerances, Expectation
from samba_onnx.comparing.judge import judge
from samba_onnx.comparing.quantisation_steps import output_steps
from samba_onnx.comparing.rounding_depth import rounding_depth
from samba_onnx.comparing.sample_inputs import (
    InputRanges,
    input_ranges,
    input_specs,
    pef_ranges,
    random_inputs,
)
from samba_onnx.comparing.sample_limits import count_of_trials
from samba_onnx.comparing.source_versions import other_version
from samba_onnx.comparing.trials import DeviceOptions, ExpectedRun, Verification, compare_trials
from samba_onnx.errors import ExecutionError, UsageError
from samba_onnx.facts.defaults import DEFAULT_ENGINE
from samba_onnx.loading import load_model
from samba_onnx.pef import Pef, load_pef
from samba_onnx.pef.fixed_inputs import fixed_arrays
from samba_onnx.pef.manifest import Graph
from samba_onnx.program.dataflow import name_of
from samba_onnx.runtime.sized_graphs import SizedGraphs

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from samba_onnx.runtime.engine.evaluation import OriginalModel


def verify(
    model: str | os.PathLike[str] | onnx.ModelProto,
    pef: Pef | str | os.PathLike[str],
    *,
    inputs: Mapping[str, Any] | None = None,
    seed: int = 0,
    rtol: float | None = None,
    atol: float | None = None,
    threads: int | None = None,
    engine: str = DEFAULT_ENGINE,
    custom_ops: Sequence[str | os.PathLike[str]] = (),
) -> Verification:
    """Compare a PEF on the emulator with the original model, both on one engine.

    On one engine the two differ only by what the compiler did and by what the engine does wrong in one of
    them. If they agree on ``reference``, which shares no kernel with onnxruntime, the fault is the engine's.

    Args:
        model: The original model, as a path or in memory.
        pef: The compiled model, open or as a path.
        inputs: Arrays by input name, for the graph that they fit; where None, three sets of random
            ones for each, one or two if it computes for seconds, with integers of all ranges that the model shows, and dynamic sizes of 2.
        seed: Seed of the first set of random inputs; the others have the next seeds.
        rtol: Relative tolerance, of 16-bit floats as well; that of
            :mod:`samba_onnx.facts.tolerances` where None.
        atol: Absolute tolerance per unit of the output's largest magnitude; likewise where None.
        threads: Threads of both sides; all cores where None.
        engine: Name of what executes both sides: ``onnxruntime``, or ``reference``, which is slow
            and exact.
        custom_ops: Shared libraries with operators of custom domains, in onnxruntime's form.

    Returns:
        One comparison per output, in the graph's order, with the tolerance that was used.

    Raises:
        ModelError: The original cannot be used.
        PefError: The PEF cannot be used, or the device copied something else than it plans.
        UsageError: The PEF's interface is not that of the model, an input is no tensor and is not
            given, there is no such engine, or it cannot load a library.
        ExecutionError: The engine fails on the original or on the PEF.
    """
    options = DeviceOptions(threads, engine, custom_ops)
    loaded = load_model(model)
    with _opened(pef) as opened:
        _refuse_other_model(opened, loaded.model)
        original = options.open_original(loaded.source(model))
        trials = _trials(opened, original, loaded.model, inputs, seed)
        compared = compare_trials(opened, trials, "original", ChosenTolerances(rtol, atol), options)
        version = other_version(opened, loaded)
        return dataclasses.replace(compared, other_version=version, departure=original.departure)


def self_test(
    pef: Pef | str | os.PathLike[str],
    *,
    rtol: float | None = None,
    atol: float | None = None,
    threads: int | None = None,
    engine: str = DEFAULT_ENGINE,
    custom_ops: Sequence[str | os.PathLike[str]] = (),
) -> Verification:
    """Compare a PEF on the emulator with the reference sample inside it.

    Args:
        pef: The compiled model, open or as a path.
        rtol: Relative tolerance; the sample's own where None.
        atol: Absolute tolerance per unit of the output's largest magnitude; likewise.
        threads: Threads of the emulator; all cores where None.
        engine: Name of what executes sections and fallbacks: ``onnxruntime``, with which the sample
            was made, or ``reference``, which is slow and exact.
        custom_ops: Shared libraries with operators of custom domains, in onnxruntime's form.

    Returns:
        One comparison per output of the sample, with the tolerance that was used.

    Raises:
        PefError: The PEF cannot be used, or the device copied something else than it plans.
        UsageError: The PEF carries no sample, or there is no such engine or library.
        ExecutionError: The engine fails on the PEF.
    """
    with _opened(pef) as opened:
        sample = opened.manifest.reference
        if sample is None:
            raise UsageError(
                f"{opened.path} carries no reference sample: "
                "verify it against its model, or convert again with --sample"
            )
        graph = next(graph for graph in opened.manifest.graphs if graph.name == sample.graph)
        trials = [
            ExpectedRun(
                f"run {run} of the sample",
                graph,
                opened.reference_inputs(run),
                Expectation(
                    opened.reference_outputs(run), opened.reference_wide(run), sample.depth
                ),
            )
            for run in range(sample.runs)
        ]
        limits = ChosenTolerances(rtol, atol, (sample.rtol, sample.atol))
        options = DeviceOptions(threads, engine, custom_ops)
        return compare_trials(opened, trials, "sample", limits, options)


def verify_results(
    pef: Pef,
    run: str,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    *,
    against: str,
    limits: ChosenTolerances,
    threads: int | None = None,
    engine: str = DEFAULT_ENGINE,
) -> Verification:
    """Compare the first graph of a PEF on the emulator with outputs that something else computed.

    Args:
        pef: The compiled model, open.
        run: What reports call the run.
        inputs: Arrays by input name.
        outputs: Arrays by output name, which the inputs should give.
        against: What computed the outputs, for the report.
        limits: The tolerances.
        threads: Threads of the emulator; all cores where None.
        engine: Name of what executes sections and fallbacks.

    Returns:
        One comparison per output, with the tolerance that was used.

    Raises:
        PefError: The device copied something else than the PEF plans.
        UsageError: An input does not fit, or there is no such engine.
        ExecutionError: The engine fails on the PEF.
    """
    # Results of others come without a float32 twin: the tolerances of the types are all there is.
    trial = ExpectedRun(run, pef.manifest.graphs[0], inputs, Expectation(outputs))
    return compare_trials(pef, [trial], against, limits, DeviceOptions(threads, engine, ()))


def run_original(
    model: str | os.PathLike[str] | onnx.ModelProto,
    inputs: Mapping[str, Any],
    *,
    engine: str = DEFAULT_ENGINE,
    threads: int | None = None,
) -> dict[str, Any]:
    """Run a model as it is.

    Args:
        model: A path (which may have external data beside it) or a model in memory.
        inputs: Values by input name.
        engine: Name of what runs it.
        threads: Threads inside operators; all cores where None.

    Returns:
        Values by output name.

    Raises:
        UsageError: There is no such engine.
        ExecutionError: The engine refuses the model or fails while running it.
    """
    from samba_onnx.runtime.engine.evaluation import evaluate_original

    return evaluate_original(model, inputs, engine=engine, threads=threads)


def compare(
    actual: Mapping[str, Any],
    expected: Mapping[str, Any],
    *,
    against: str,
    rtol: float | None = None,
    atol: float | None = None,
    coarser: float = 1.0,
) -> Verification:
    """Compare the outputs of one run with those that were expected.

    The rules are those of :mod:`samba_onnx.comparing.judge`; nothing is known here of what
    the model would answer in float32, so that 16-bit floats may be off by some roundings of each
    element and of the root mean square.

    Args:
        actual: Values by name: arrays, lists of them, or None.
        expected: The same names.
        against: What ``expected`` comes from, for the report.
        rtol: Relative tolerance; that of the type where None.
        atol: Absolute tolerance per unit of the largest magnitude; likewise where None.
        coarser: 8 where the values are rounded to bfloat16, and what is expected is not.

    Returns:
        One comparison per array.
    """
    limits = ChosenTolerances(rtol, atol)
    return Verification(
        against,
        judge(actual, Expectation(expected, coarser=coarser), limits),
        *limits.plain(),
    )


@contextlib.contextmanager
def _opened(pef: Pef | str | os.PathLike[str]) -> Iterator[Pef]:
    """Open a PEF given by path and close it again; leave one that is already open alone."""
    if isinstance(pef, Pef):
        yield pef
        return
    with load_pef(Path(pef)) as opened:
        yield opened


def _trial(
    name: str,
    graph: Graph,
    original: OriginalModel,
    inputs: Mapping[str, Any],
    depth: int,
    steps: Mapping[str, float],
) -> ExpectedRun:
    # Answers in another order of summation are asked for only where an output is not near, by
    # each way to keep weights again: they are computed late, and once.
    outputs, wide = original.run(inputs), original.run_wide(inputs)
    again = functools.cache(functools.partial(original.run_otherwise, inputs))
    again_wide = functools.cache(functools.partial(original.run_otherwise, inputs, wide=True))
    expectation = Expectation(outputs, wide, depth, steps, again=again, again_wide=again_wide)
    return ExpectedRun(name, graph, inputs, expectation)


def _refuse_other_model(pef: Pef, model: ir.Model) -> None:
    """Refuse a PEF whose outputs have other names than the model's."""
    graph = pef.manifest.graphs[0]
    names = tuple(name_of(value) for value in model.graph.outputs)
    if names != graph.outputs:
        raise UsageError(
            f"{pef.path} has outputs {list(graph.outputs)}, the model has {list(names)}: "
            "verify takes the model that the PEF was converted from"
        )


def _trials(
    pef: Pef,
    original: OriginalModel,
    model: ir.Model,
    inputs: Mapping[str, Any] | None,
    seed: int,
) -> list[ExpectedRun]:
    """Run the original on the inputs that were given, or on several random ones."""
    depth, steps = rounding_depth(model), output_steps(model)
    graphs = pef.manifest.graphs
    sizes = SizedGraphs(pef.manifest)
    # The original has inputs that the PEF has as constants.
    original = original.with_feeds(fixed_arrays(pef.manifest.fixed_inputs))
    if inputs is not None:
        graph = sizes.fitting(inputs) if sizes else graphs[0]
        return [_trial("the inputs given", graph, original, inputs, depth, steps)]
    trials = []
    # The graph of the original and that of the PEF each show ranges that the other does not.
    shown = input_ranges(model.graph)
    for graph in graphs if sizes else graphs[:1]:
        ranges = shown.or_else(pef_ranges(pef, graph))
        trials += [
            _drawn_trial(
                pef=pef,
                graph=graph,
                original=original,
                seed=number,
                ranges=ranges,
                depth=depth,
                steps=steps,
            )
            for number in range(seed, seed + count_of_trials(pef.manifest, graph))
        ]
    return trials


def _drawn_trial(
    pef: Pef,
    graph: Graph,
    original: OriginalModel,
    seed: int,
    ranges: InputRanges,
    depth: int,
    steps: Mapping[str, float],
) -> ExpectedRun:
    """Run the original on random inputs: with integers of 0 and 1 only where it takes no others."""
    name = f"{graph.name}, seed {seed}" if len(pef.manifest.graphs) > 1 else f"seed {seed}"
    specs = input_specs(pef, graph)
    try:
        return _trial(name, graph, original, random_inputs(specs, seed, ranges), depth, steps)
    # What the graph shows of its inputs may be wrong; every model takes 0 and 1.
    except ExecutionError:
        plain = random_inputs(specs, seed)
        return _trial(f"{name}, integers 0 and 1", graph, original, plain, depth, steps)
