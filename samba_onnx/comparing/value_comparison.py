"""Every value of the original against the same value of its PEF, section by section.

Both sides are executed in pieces: one section or fallback of the PEF, then the nodes of the original
that its values depend on and that no earlier piece had. Each side goes on with its own values, so that
an error spreads as it does in a run; the first value beyond the tolerance is where it begins. What no
later piece reads is dropped, so that there are never more values than of one section and those that
cross its border.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from samba_onnx.comparing.both_sides import BothSides, plain_engine
from samba_onnx.comparing.compared_values import ComparedValue, ValueComparison
from samba_onnx.comparing.doubtful_values import DoubtfulValues, Look
from samba_onnx.comparing.expectations import ChosenTolerances
from samba_onnx.comparing.function_comparison import coarseness
from samba_onnx.comparing.pef_values import PefValues, refuse_several, run_once
from samba_onnx.comparing.pieces import ModelPieces, with_open_sizes
from samba_onnx.comparing.quantisation_steps import zero_point
from samba_onnx.comparing.rounding_depth import rounding_depth
from samba_onnx.comparing.sample_inputs import (
    input_ranges,
    input_specs,
    pef_ranges,
    random_inputs,
)
from samba_onnx.comparing.value_statistics import value_statistics
from samba_onnx.comparing.walk import Walk
from samba_onnx.errors import ExecutionError, UsageError
from samba_onnx.facts.domains import qualified
from samba_onnx.loading import LoadedModel, load_model
from samba_onnx.pef import Pef
from samba_onnx.pef.fixed_inputs import fixed_arrays
from samba_onnx.pef.manifest import Graph
from samba_onnx.program.source_location import source_location
from samba_onnx.runtime.engine.neighbours import MOVES, moved
from samba_onnx.runtime.sized_graphs import SizedGraphs

Counted = Callable[[float, float], None]
"""Called with how much is done, and of how much."""


def compare_values(
    model: str | os.PathLike[str] | onnx.ModelProto,
    pef: Pef,
    *,
    inputs: Mapping[str, Any] | None = None,
    seed: int = 0,
    rtol: float | None = None,
    atol: float | None = None,
    threads: int | None = None,
    custom_ops: Sequence[str | os.PathLike[str]] = (),
    progress: Counted | None = None,
    look: Look | None = None,
) -> ValueComparison:
    """Compare all values that a PEF has in common with its original.

    Args:
        model: The original, as a path or in memory.
        pef: The PEF that it was converted to, open.
        inputs: Arrays by the names of the model's inputs; seeded random ones where None.
        seed: Seed of the random inputs.
        rtol: Relative tolerance, of 16-bit floats as well; that of the type where None.
        atol: Absolute tolerance per unit of a value's largest magnitude; likewise where None.
        threads: Threads within operators; all cores where None.
        custom_ops: Shared libraries with operators of custom domains, in onnxruntime's form.
        progress: Called after each section with the number of sections and fallbacks that are done.
        look: Called with each value that was compared, and what the PEF computes for it.

    Returns:
        The comparison. A value of the PEF is that of the original if it has its name: passes keep the
        names of what they keep.

    Raises:
        ModelError: The original cannot be used.
        PefError: The PEF cannot be used.
        UsageError: They have not one value in common, the outputs have other names, an input is
            missing, or the PEF is for several RDUs.
        ExecutionError: The engine fails on one of them.
    """
    refuse_several(pef)
    loaded = load_model(model)
    graph = _graph(pef, inputs)
    _refuse_other_model(pef, graph, loaded.model)
    proto, folder = read_source(loaded.source(model))
    # Every node as it stands, without an engine's own rewriting: fused
    # values could not be looked at.
    engine = plain_engine(threads, custom_ops)
    sides = BothSides(engine, pef, ModelPieces(proto), folder)
    stream = _Stream(sides, graph, ChosenTolerances(rtol, atol), loaded.model, look)
    return stream.first_answer(_feeds(pef, graph, loaded, inputs, seed), progress or _ignore)


def _ignore(done: float, total: float) -> None:
    """Report no progress."""


def _feeds(
    pef: Pef, graph: Graph, loaded: LoadedModel, inputs: Mapping[str, Any] | None, seed: int
) -> list[tuple[str, Mapping[str, Any]]]:
    """Return inputs to try: those that were given, or random ones, of small integers at last.

    The original takes those that the PEF has as constants, too; the PEF does not look at them.
    """
    constants = fixed_arrays(pef.manifest.fixed_inputs)
    if inputs is not None:
        return [("the inputs given", {**inputs, **constants})]
    specs, title = input_specs(pef, graph), f"random inputs of seed {seed}"
    ranges = input_ranges(loaded.model.graph).or_else(pef_ranges(pef, graph))
    return [
        (title, {**random_inputs(specs, seed, ranges), **constants}),
        (f"{title}, integers 0 and 1", {**random_inputs(specs, seed), **constants}),
    ]


def _graph(pef: Pef, inputs: Mapping[str, Any] | None) -> Graph:
    sizes = SizedGraphs(pef.manifest)
    # Graphs of several sizes have one original: the one that the inputs fit is compared.
    return sizes.fitting(inputs) if sizes and inputs else pef.manifest.graphs[0]


def _refuse_other_model(pef: Pef, graph: Graph, model: ir.Model) -> None:
    expected = [graph.model_name(name) for name in graph.outputs]
    names = [value.name for value in model.graph.outputs]
    if names != expected:
        raise UsageError(
            f"{pef.path} has outputs {expected}, the model has {names}: compare takes the model that "
            "the PEF was converted from"
        )


def read_source(source: Path | onnx.ModelProto) -> tuple[onnx.ModelProto, str]:
    """Return a model with its data where it lies, and the folder of that data.

    Args:
        source: What an engine runs in order to know what the original answers.
    """
    if isinstance(source, onnx.ModelProto):
        return source, ""
    return onnx.load(source, load_external_data=False), str(source.absolute().parent)


class _Stream:
    """The pieces of both sides, in the order of the PEF's schedule."""

    def __init__(
        self,
        sides: BothSides,
        graph: Graph,
        limits: ChosenTolerances,
        model: ir.Model,
        look: Look | None = None,
    ) -> None:
        self._doubts = DoubtfulValues(look, final=limits.chosen)
        self._sides = sides
        self._nodes = {value.name: node for node in model.graph for value in node.outputs}
        self._graph = graph
        self._limits = limits
        self._depth = rounding_depth(model)
        self._coarser = coarseness(sides.pef, graph)
        outputs = [(value, zero_point(value)) for node in model.graph for value in node.outputs]
        self._zeros = {value.name or "": zero for value, zero in outputs if zero is not None}
        self._pef = PefValues(sides.engine, sides.pef, graph)
        self._stages, written = self._pef.stages, self._pef.names
        original = sides.original
        # The model's own names: a PEF may call an output otherwise.
        self.shared = {
            number: [n for n in dict.fromkeys(map(graph.model_name, names)) if n in original.makers]
            for number, names in written.items()
        }
        """Values of each stage that the original has, too."""
        self.own = sum(len(set(names)) for names in written.values()) - sum(
            map(len, self.shared.values())
        )
        self._places = self._pieces()
        self._last = self._last_uses()

    def _pieces(self) -> list[list[int]]:
        """Return for each stage the nodes of the original that its values need first."""
        done: set[int] = set()
        pieces = []
        for stage in self._stages:
            # What earlier stages had computed is not computed again: each node
            # of the original runs once.
            places = self._sides.original.needed(self.shared[stage.id], done)
            done.update(places)
            pieces.append(places)
        return pieces

    def _last_uses(self) -> dict[str, int]:
        """Return the last piece in which each value of the original is read or compared."""
        last: dict[str, int] = {}
        for number, places in enumerate(self._places):
            last.update(dict.fromkeys(self._sides.original.border(places), number))
        # Compared, though nothing of the original reads it later: it is needed until then.
        for number, stage in enumerate(self._stages):
            for name in self.shared[stage.id]:
                last[name] = max(last.get(name, 0), number)
        return last

    def first_answer(
        self, trials: Sequence[tuple[str, Mapping[str, Any]]], progress: Counted
    ) -> ValueComparison:
        """Compare on the first inputs that both sides take.

        Args:
            trials: Inputs with what to call them, at least one.
            progress: Called after each section.

        Raises:
            ExecutionError: An engine fails on the last of them.
            UsageError: There is nothing that both sides have.
        """
        # Integers that the graph seems to take may be refused by the original:
        # the next inputs are tried.
        for title, feeds in trials[:-1]:
            with contextlib.suppress(ExecutionError):
                return self.result(self._judged_twice(feeds, progress), title, feeds)
        title, feeds = trials[-1]
        return self.result(self._judged_twice(feeds, progress), title, feeds)

    def _judged_twice(self, feeds: Mapping[str, Any], progress: Counted) -> list[ComparedValue]:
        """Compare; where values are beyond the tolerance, again with the original's own distance from itself.

        The original then runs on inputs that are moved by a unit of their last place. Most comparisons end
        before that.
        """
        compared = self.compare(feeds, progress)
        if not self._doubts:
            return compared
        # The original may refuse inputs that moved; values are then judged by what is known.
        with contextlib.suppress(ExecutionError):
            for seed in range(MOVES):
                self._run_otherwise(moved(feeds, seed))
        self._doubts.settle()
        return self.compare(feeds, progress)

    def _run_otherwise(self, feeds: Mapping[str, Any]) -> None:
        """Run the original alone, and keep its answers for doubtful values."""
        values = dict(feeds)
        for number, stage in enumerate(self._stages):
            values |= self._run_original(number, values)
            self._doubts.keep(values, self.shared[stage.id])
            _forget(values, self._last, number)

    def compare(self, feeds: Mapping[str, Any], progress: Counted) -> list[ComparedValue]:
        """Run both sides and compare."""
        symbols = {self._graph.model_name(name): name for name in self._graph.inputs}
        left = dict(feeds)
        right = {symbols.get(name, name): value for name, value in feeds.items()}
        walk = Walk[str]()
        compared = []
        for number, (stage, values) in enumerate(self._pef.run(right, self._wanted())):
            results = {self._graph.model_name(name): value for name, value in values.items()}
            left |= self._run_original(number, left)
            compared += self._judged(stage.id, self.shared[stage.id], left, results, walk)
            _forget(left, self._last, number)
            progress(number + 1, len(self._stages))
        return compared

    def _wanted(self) -> dict[int, list[str]]:
        """Return the values of each section that are compared, by the names that the PEF has for them."""
        symbols = {self._graph.model_name(name): name for name in self._graph.outputs}
        return {
            number: [symbols.get(name, name) for name in names]
            for number, names in self.shared.items()
        }

    def _run_original(self, number: int, values: Mapping[str, Any]) -> dict[str, Any]:
        places = self._places[number]
        if not places:
            return {}
        original = self._sides.original
        computed = dict.fromkeys(n for place in places for n in original.nodes[place].output if n)
        # Only what is read or compared later leaves a piece: the others
        # would take memory for nothing.
        outputs = [name for name in computed if self._last.get(name, -1) >= number]
        border = {name: values[name] for name in original.border(places) if name in values}
        piece = with_open_sizes(original.piece(places, border, outputs))
        return run_once(self._sides.engine, self._sides.open_original(piece), values)

    def _judged(
        self,
        stage: int,
        names: Sequence[str],
        expected: Mapping[str, Any],
        actual: Mapping[str, Any],
        walk: Walk[str],
    ) -> list[ComparedValue]:
        original, values = self._sides.original, []
        # In the order of the original, so that the first value beyond the
        # tolerance is where it began.
        for name in sorted(names, key=original.makers.__getitem__):
            place = original.makers[name]
            node = original.nodes[place]
            statistics = value_statistics(
                name=name,
                actual=actual[name],
                expected=expected[name],
                limits=self._limits,
                depth=self._depth,
                coarser=self._coarser,
                zero=self._zeros.get(name),
                others=self._doubts.others(name),
            )
            sound = walk.take(name, [statistics.comparison], original.reads[place])
            value = ComparedValue(
                name=name,
                position=place,
                node=node.name,
                operator=qualified(node.domain, node.op_type),
                location=self._location(name),
                stage=stage,
                dtype=str(getattr(expected[name], "dtype", "")),
                statistics=statistics,
                operands_agree=sound,
            )
            self._doubts.show(value, actual[name])
            values.append(value)
        return values

    def _location(self, name: str) -> str:
        """Return the user's line of the node that computes a value."""
        return source_location(self._nodes[name]) if name in self._nodes else ""

    def result(
        self, compared: Sequence[ComparedValue], inputs: str, feeds: Mapping[str, Any]
    ) -> ValueComparison:
        """Put the answer together.

        Raises:
            UsageError: There is nothing that both sides have.
        """
        original = self._sides.original
        # What nothing reads and is no output does not count: passes leave it out, and rightly so.
        read = {name for names in original.reads for name in names}
        read.update(value.name for value in original.model.graph.output)
        makers = {name: original.nodes[place] for name, place in original.makers.items()}
        operators = {n: qualified(m.domain, m.op_type) for n, m in makers.items() if n in read}
        if operators and not compared:
            raise UsageError(
                f"{self._sides.pef.path} has no value of the model: compare takes the model that the PEF "
                "was converted from"
            )
        return ValueComparison.of(
            self._graph.name, compared, operators, own=self.own, inputs=inputs, feeds=feeds
        )


def _forget(values: dict[str, Any], last: Mapping[str, int], number: int) -> None:
    """Drop values that no piece after this one reads."""
    for name in [name for name in values if last.get(name, -1) <= number]:
        del values[name]
