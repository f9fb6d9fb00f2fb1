"""Runs of a PEF on the emulator, each held against what it should have given."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from samba_onnx.comparing.expectations import ChosenTolerances, Expectation
from samba_onnx.comparing.function_comparison import coarseness, compare_functions
from samba_onnx.comparing.judge import Verdict, judge, worst_of
from samba_onnx.facts.defaults import DEFAULT_ENGINE
from samba_onnx.pef import Pef
from samba_onnx.pef.manifest import Graph
from samba_onnx.runtime.engine.registry import make_engine

if TYPE_CHECKING:
    import onnx

    from samba_onnx.runtime.engine.evaluation import OriginalModel
    from samba_onnx.runtime.engine.protocol import Engine

WEIGHTS: Final[Mapping[str, bool]] = {"mapped": False, "prepacked": True}
"""How the device keeps weights, by what reports call it."""


@dataclass(frozen=True)
class Verification:
    """The comparison of all outputs."""

    against: str
    """``original`` (the model itself), ``torch`` (the module itself, run by eager torch) or ``sample`` (the
    reference inside the PEF)."""
    outputs: tuple[Verdict, ...]
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
    departure: str = ""
    """Says which kernels of the engine were not used for the original, as they are wrong on this machine, and how
    often; empty where all were."""

    @property
    def passed(self) -> bool:
        """Whether every output is within the tolerance."""
        return all(output.passed for output in self.outputs)


@dataclass(frozen=True)
class ExpectedRun:
    """Inputs of one run, with what they should give."""

    name: str
    graph: Graph
    inputs: Mapping[str, Any]
    """By the model's names."""
    expected: Expectation


@dataclass(frozen=True)
class DeviceOptions:
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


def compare_trials(
    pef: Pef,
    trials: Sequence[ExpectedRun],
    against: str,
    limits: ChosenTolerances,
    options: DeviceOptions,
) -> Verification:
    """Run trials on the device in all ways in which it keeps weights, and as functions, and compare.

    Args:
        pef: The compiled model, open.
        trials: Runs with what they should give.
        against: What the expectations come from, for the report.
        limits: The tolerances.
        options: How devices are made.

    Returns:
        One comparison per output, of the run in which it is worst.

    Raises:
        PefError: The device copied something else than the PEF plans.
        UsageError: An input does not fit, or there is no such engine or library.
        ExecutionError: The engine fails on the PEF.
    """
    graphs = dict.fromkeys(trial.graph.name for trial in trials)
    compared = _on_device(pef, trials, limits, options)
    engine = options.engine_of_functions()
    # Roundings of the device may hide a small fault: as functions, both sides round nothing.
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


def _on_device(
    pef: Pef, trials: Sequence[ExpectedRun], limits: ChosenTolerances, options: DeviceOptions
) -> dict[str, tuple[Verdict, ...]]:
    """Run trials on the device in all ways in which it keeps weights; comparisons by run."""
    from samba_onnx.runtime.accounting import check_plan
    from samba_onnx.runtime.parallel_device import open_device

    # The reference engine has no layouts of its own: one way to keep weights is all.
    ways = WEIGHTS if options.engine == DEFAULT_ENGINE else {"mapped": False}
    compared: dict[str, tuple[Verdict, ...]] = {}
    graphs = dict.fromkeys(trial.graph.name for trial in trials)
    coarse = {graph.name: coarseness(pef, graph) for graph in pef.manifest.graphs}
    for (weights, prepack), name in itertools.product(ways.items(), graphs):
        with open_device(
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
                    # A right result may have been copied otherwise than the PEF
                    # plans, which no output shows.
                    check_plan(device.ledger, trial.graph, pef.manifest.graphs)
                    expected = dataclasses.replace(trial.expected, coarser=coarse[name])
                    compared[run] = judge(actual, expected, limits, run)
    return compared
