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
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from samba_onnx.errors import ExecutionError, UsageError
from samba_onnx.loading import load_model
from samba_onnx.pef import Pef, load_pef
from samba_onnx.pef.manifest import Graph
from samba_onnx.program.dataflow import name_of
from samba_onnx.runtime.engine.registry import DEFAULT_ENGINE, make_engine
from samba_onnx.runtime.sized_graphs import SizedGraphs
from samba_onnx.workflows.function_comparison import coarseness, compare_functions
from samba_onnx.workflows.output_errors import (
    ChosenTolerances,
    Expectation,
    OutputComparison,
    compare_outputs,
    worst_of,
)
from samba_onnx.workflows.rounding_depth import rounding_depth
from samba_onnx.workflows.sample_inputs import (
    RUNS,
    InputRanges,
    input_ranges,
    input_specs,
    pef_ranges,
    random_inputs,
)
from samba_onnx.workflows.source_versions import other_version

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from samba_onnx.runtime.engine.evaluation import OriginalModel
    from samba_onnx.runtime.engine.protocol import Engine

WEIGHTS: Final[Mapping[str, bool]] = {"mapped": False, "prepacked": True}
"""How the device keeps weights, by what reports call it."""


@dataclass(frozen=True)
class Verification:
    """The comparison of all outputs."""

    against: str
    """``original`` (the model itself) or ``sample`` (the reference inside the PEF)."""
    outputs: tuple[OutputComparison, ...]
    """One per output, in the graph's order: that of the run in which it is worst."""
    rtol: float
    """Relative tolerance of outputs in float32, float64 and complex numbers."""
    atol: float
    """Absolute tolerance of the same per unit of the output's largest magnitude."""
    engine: str = DEFAULT_ENGINE
    """Name of what executed the PEF, and the original."""
    runs: tuple[str, ...] = ()
    """Every run that was compared: its inputs, and how the device kept weights."""
    other_version: str = ""
    """Says that the model is another version of the one that the PEF was converted from, in a sentence; empty
    where it is not, and where the PEF does not know."""

    @property
    def passed(self) -> bool:
        """Whether every output is within the tolerance."""
        return all(output.passed for output in self.outputs)


@dataclass(frozen=True)
class _Trial:
    """Inputs of one run, with what they should give."""

    name: str
    graph: Graph
    inputs: Mapping[str, Any]
    """By the model's names."""
    expected: Expectation


@dataclass(frozen=True)
class _DeviceOptions:
    """How devices are made; as :class:`~samba_onnx.runtime.device.Device` takes it."""

    threads: int | None
    engine: str
    custom_ops: Sequence[str | os.PathLike[str]]

    def open_original(self, model: str | os.PathLike[str] | onnx.ModelProto) -> OriginalModel:
        """Prepare the original on the same engine."""
        from samba_onnx.runtime.engine.evaluation import open_original

        return open_original(
            model,
            engine=self.engine,
            threads=self.threads,
            wide=True,
            custom_ops=self.custom_ops,
        )

    def engine_of_functions(self) -> Engine:
        """Make what computes a graph without the device."""
        from samba_onnx.runtime.engine.settings import engine_settings

        settings = engine_settings(self.threads, custom_ops=self.custom_ops)
        return make_engine(self.engine, settings)


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

    On one engine, what the two graphs compute differs only by what the compiler did and by what
    the engine does wrong in one of them. If they differ on onnxruntime and agree on ``reference``,
    which shares no kernel with it, the fault is the engine's.

    Args:
        model: The original model, as a path or in memory.
        pef: The compiled model, open or as a path.
        inputs: Arrays by input name, for the graph that they fit; where None, three sets of random
            ones for each, with integers of all ranges that the model shows, and dynamic sizes of 2.
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
    options = _DeviceOptions(threads, engine, custom_ops)
    loaded = load_model(model)
    with _opened(pef) as opened:
        _refuse_other_model(opened, loaded.model)
        original = options.open_original(loaded.source(model))
        trials = _trials(opened, original, loaded.model, inputs, seed)
        compared = _compare_runs(opened, trials, "original", ChosenTolerances(rtol, atol), options)
        return dataclasses.replace(compared, other_version=other_version(opened, loaded))


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
            _Trial(
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
        options = _DeviceOptions(threads, engine, custom_ops)
        return _compare_runs(opened, trials, "sample", limits, options)


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
) -> Verification:
    """Compare the outputs of one run with those that were expected.

    The rules are those of :mod:`samba_onnx.workflows.output_errors`; nothing is known here of what
    the model would answer in float32, so that 16-bit floats may be off by some roundings of each
    element and of the root mean square.

    Args:
        actual: Values by name: arrays, lists of them, or None.
        expected: The same names.
        against: What ``expected`` comes from, for the report.
        rtol: Relative tolerance; that of the type where None.
        atol: Absolute tolerance per unit of the largest magnitude; likewise where None.

    Returns:
        One comparison per array.
    """
    limits = ChosenTolerances(rtol, atol)
    return Verification(
        against, compare_outputs(actual, Expectation(expected), limits), *limits.plain()
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
    name: str, graph: Graph, original: OriginalModel, inputs: Mapping[str, Any], depth: int
) -> _Trial:
    outputs = original.run(inputs)
    return _Trial(name, graph, inputs, Expectation(outputs, original.run_wide(inputs), depth))


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
) -> list[_Trial]:
    """Run the original on the inputs that were given, or on several random ones."""
    depth = rounding_depth(model)
    graphs = pef.manifest.graphs
    sizes = SizedGraphs(pef.manifest)
    if inputs is not None:
        graph = sizes.fitting(inputs) if sizes else graphs[0]
        return [_trial("the inputs given", graph, original, inputs, depth)]
    trials = []
    shown = input_ranges(model.graph)
    for graph in graphs if sizes else graphs[:1]:
        ranges = shown.or_else(pef_ranges(pef, graph))
        trials += [
            _drawn_trial(pef, graph, original, number, ranges, depth)
            for number in range(seed, seed + RUNS)
        ]
    return trials


def _drawn_trial(
    pef: Pef, graph: Graph, original: OriginalModel, seed: int, ranges: InputRanges, depth: int
) -> _Trial:
    """Run the original on random inputs: with integers of 0 and 1 only where it takes no others."""
    name = f"{graph.name}, seed {seed}" if len(pef.manifest.graphs) > 1 else f"seed {seed}"
    specs = input_specs(pef, graph)
    try:
        return _trial(name, graph, original, random_inputs(specs, seed, ranges), depth)
    except ExecutionError:
        plain = random_inputs(specs, seed)
        return _trial(f"{name}, integers 0 and 1", graph, original, plain, depth)


def _compare_runs(
    pef: Pef,
    trials: Sequence[_Trial],
    against: str,
    limits: ChosenTolerances,
    options: _DeviceOptions,
) -> Verification:
    from samba_onnx.runtime.accounting import check_plan
    from samba_onnx.runtime.device import Device

    # The reference engine has no layouts of its own: one way to keep weights is all.
    ways = WEIGHTS if options.engine == DEFAULT_ENGINE else {"mapped": False}
    compared: dict[str, tuple[OutputComparison, ...]] = {}
    graphs = dict.fromkeys(trial.graph.name for trial in trials)
    coarse = {graph.name: coarseness(pef, graph) for graph in pef.manifest.graphs}
    for (weights, prepack), name in itertools.product(ways.items(), graphs):
        with Device(
            pef,
            engine=options.engine,
            threads=options.threads,
            prepack=prepack,
            custom_ops=options.custom_ops,
        ) as device:
            for trial in trials:
                if trial.graph.name == name:
                    run = f"{trial.name}, weights {weights}"
                    actual = device.run(trial.inputs, graph=name)
                    check_plan(device.ledger, trial.graph, pef.manifest.graphs)
                    expected = dataclasses.replace(trial.expected, coarser=coarse[name])
                    compared[run] = compare_outputs(actual, expected, limits, run)
    engine = options.engine_of_functions()
    for name in graphs:
        own = [trial for trial in trials if trial.graph.name == name]
        runs = {trial.name: (trial.inputs, trial.expected) for trial in own}
        compared |= compare_functions(pef, own[0].graph, runs, limits, engine)
    return Verification(
        against,
        worst_of(list(compared.values())),
        *limits.plain(),
        engine=options.engine,
        runs=tuple(compared),
    )
