"""The smallest part of a model that shows a fault, by delta debugging over its nodes.

A part is some nodes of the model, fed with the values that the others computed in a run; so any set of
nodes is a model that can run. A part shows the fault if what is done to it (passes, or a conversion)
changes what it computes. Nodes are left out in ever smaller groups for as long as the rest still
shows the fault: at the end no single node can be left out (Zeller and Hildebrandt, "Simplifying and
isolating failure-inducing input").
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx

from samba_onnx.comparing.expectations import ChosenTolerances, Expectation
from samba_onnx.comparing.judge import Verdict, judge
from samba_onnx.comparing.pieces import ModelPieces, with_open_sizes
from samba_onnx.errors import SambaError
from samba_onnx.runtime.engine.neighbours import MOVES, moved
from samba_onnx.runtime.engine.protocol import Engine
from samba_onnx.safety.files import atomic_output

MOST_TRIALS: Final = 2000
"""Parts that are tried at most; a model of 10,000 nodes with one guilty node needs some hundred."""


Results = Mapping[str, Any]
Recompute = Callable[[onnx.ModelProto, Results], Results]
"""Does to a part what is suspected, runs it on inputs, and returns its outputs by name."""


class RefusedByEngineError(Exception):
    """What was done to a part left something that the engine refuses; the text is its reason."""


@dataclass(frozen=True)
class Reduction:
    """A part of a model that shows a fault."""

    model: onnx.ModelProto
    """The part, with its weights inside."""
    inputs: Results
    """What to run it on, by input."""
    expected: Results
    """What the part answers as it is."""
    actual: Results | None
    """What it answers after what was done to it; None where the engine refuses that."""
    outputs: tuple[Verdict, ...]
    """How far these are apart; empty where the engine refuses it."""
    nodes: int
    """Nodes of the part."""
    of: int
    """Nodes of the model."""
    trials: int
    """Parts that were tried."""

    def write(self, stem: str | os.PathLike[str]) -> tuple[str, str]:
        """Write the part and its inputs.

        Args:
            stem: Path without suffix.

        Returns:
            Paths of the model, as ``STEM.onnx``, and of its inputs and what was expected, as
            ``STEM.npz``: inputs by their names, outputs as ``expected/NAME`` and ``actual/NAME``.

        Raises:
            OutputError: A file cannot be written.
        """
        paths = (f"{os.fspath(stem)}.onnx", f"{os.fspath(stem)}.npz")
        with atomic_output(paths[0]) as file:
            file.write(self.model.SerializeToString())
        arrays = dict(self.inputs)
        arrays |= {f"expected/{name}": array for name, array in self.expected.items()}
        arrays |= {f"actual/{name}": array for name, array in (self.actual or {}).items()}
        with atomic_output(paths[1]) as file:
            np.savez(file, **{name: value for name, value in arrays.items() if _is_array(value)})
        return paths


class Reducer:
    """Looks for a small part of one model."""

    def __init__(
        self,
        model: onnx.ModelProto,
        feeds: Results,
        engine: Engine,
        recompute: Recompute,
        depth: int,
    ) -> None:
        """Run the model once, and keep all its values.

        Args:
            model: With its weights inside.
            feeds: Its inputs by name.
            engine: What runs parts.
            recompute: Does to a part what is suspected.
            depth: Operators that round, on the longest way through the model.

        Raises:
            ExecutionError: The engine refuses the model.
        """
        self._pieces = ModelPieces(model)
        self._engine = engine
        self._recompute = recompute
        self._depth = depth
        self._trials = 0
        self._unable: tuple[type[Exception], ...] = (
            SambaError,
            onnx.checker.ValidationError,
            *engine.failures,
        )
        places = range(len(self._pieces.nodes))
        names = list(self._pieces.makers)
        # All values are outputs, so that a part can run alone later, on
        # what was computed before it.
        whole = self._pieces.piece(places, feeds, names)
        self._values = {**feeds, **self._run(whole, feeds)}

    def reduce(self, first: Sequence[int] = ()) -> Reduction | None:
        """Return the smallest part that shows the fault; None if not even the whole does.

        Args:
            first: Places of nodes that are looked at before the whole is, as they may be enough.
        """
        for places in (first, range(len(self._pieces.nodes))):
            if places and self._shown(places) is not None:
                # The smallest part runs once more: keeping each part that fails
                # would keep its values, too.
                return self._shown(
                    smallest_failing(places, lambda part: self._shown(part) is not None)
                )
        return None

    def between(self, name: str, agreeing: Collection[str]) -> list[int]:
        """Return the places of the nodes that compute a value from those that agree.

        Args:
            name: The value.
            agreeing: Values before which nothing is looked for.
        """
        known = {
            place
            for place, node in enumerate(self._pieces.nodes)
            if all(not output or output in agreeing for output in node.output)
        }
        return self._pieces.needed([name], known)

    def with_values(self, places: Sequence[int], actual: Results, depth: int) -> Reduction:
        """Return a part with values that somebody else computed.

        Args:
            places: Places of its nodes.
            actual: These values, by the names of values of the part.
            depth: Operators that round, on the longest way through the model.
        """
        feeds = self._fed(places)
        part = _with_types(self._pieces.piece(places, feeds, list(actual)), self._values)
        expected = {name: self._values[name] for name in actual}
        outputs = judge(actual, Expectation(expected, None, depth), ChosenTolerances())
        total = len(self._pieces.nodes)
        return Reduction(
            model=part,
            inputs=feeds,
            expected=expected,
            actual=actual,
            outputs=outputs,
            nodes=len(places),
            of=total,
            trials=self._trials,
        )

    def _fed(self, places: Sequence[int]) -> dict[str, Any]:
        """Return what nodes read of the others; an input that keeps its default is none of it."""
        border = self._pieces.border(set(places))
        return {name: self._values[name] for name in border if name in self._values}

    def _run(self, model: onnx.ModelProto, feeds: Results) -> dict[str, Any]:
        computation = self._engine.open(with_open_sizes(model), "a part of the model")
        results = computation.run({name: feeds[name] for name in computation.inputs})
        return dict(zip(computation.outputs, results, strict=True))

    def _shown(self, places: Sequence[int]) -> Reduction | None:
        """Return what a part shows; None if it cannot run, or nothing is wrong with it."""
        if self._trials >= MOST_TRIALS:
            return None
        self._trials += 1
        pieces = self._pieces
        read = {name for place in places for name in pieces.reads[place]}
        own = [name for place in places for name in pieces.nodes[place].output if name]
        declared = {value.name for value in pieces.model.graph.output}
        # What is read inside is no output: passes leave outputs as they are.
        outputs = [name for name in own if name not in read or name in declared]
        feeds = self._fed(places)
        try:
            part = pieces.piece(places, feeds, outputs)
            part = _with_types(part, self._values)
            onnx.checker.check_model(part)
            expected = self._run(part, feeds)
        except self._unable:
            return None
        return self._compared(part, feeds, expected, len(places))

    def _compared(
        self, part: onnx.ModelProto, feeds: Results, expected: Results, nodes: int
    ) -> Reduction | None:
        actual: Results | None
        outputs: tuple[Verdict, ...] = ()
        try:
            actual = self._recompute(part, feeds)
            again = functools.partial(run_moved, self._run, part, feeds)
            outputs = judge(
                actual, Expectation(expected, None, self._depth, again=again), ChosenTolerances()
            )
            if all(output.passed for output in outputs):
                return None
        # The part runs as it is: if the engine refuses what became of it, that is the fault.
        except RefusedByEngineError:
            actual = None
        except Exception:  # whatever a pass makes of a model that is no whole one
            return None
        total = len(self._pieces.nodes)
        return Reduction(
            model=part,
            inputs=feeds,
            expected=expected,
            actual=actual,
            outputs=outputs,
            nodes=nodes,
            of=total,
            trials=self._trials,
        )


def run_moved(run: Callable[[Any, Results], Results], model: Any, feeds: Results) -> list[Results]:
    """Return what a model answers to inputs that nobody can tell from those that were given.

    Args:
        run: Runs a model on inputs.
        model: The model.
        feeds: Its inputs by name.
    """
    answers = []
    # Inputs that moved may be beyond what the model takes; the tolerance is then only narrower.
    for seed in range(MOVES):
        with contextlib.suppress(SambaError):
            answers.append(run(model, moved(feeds, seed)))
    return answers


def smallest_failing(items: Sequence[int], fails: Callable[[Sequence[int]], bool]) -> Sequence[int]:
    """Return a part of some items that fails, and of which no single item can be left out.

    Args:
        items: All of them; together they fail.
        fails: Tells whether some of them fail, in their order; an answer may not change.

    Returns:
        Items in their order.
    """
    # Delta debugging: halves, then all but one group, then groups of half the size. Where one node
    # is guilty, that takes about twice the logarithm of the number of nodes.
    groups = 2
    while len(items) > 1:
        size = -(-len(items) // groups)
        parts = [items[begin : begin + size] for begin in range(0, len(items), size)]
        rests = [[i for i in items if i not in set(part)] for part in parts]
        smaller = next((part for part in parts if len(parts) > 1 and fails(part)), None)
        if smaller is not None:
            items, groups = smaller, 2
            continue
        # Of two parts, each is the rest of the other, and was tried above.
        rest = next((rest for rest in rests if len(parts) > 2 and fails(rest)), None)
        if rest is not None:
            # One group fewer, so that the others keep their size.
            items, groups = rest, max(len(parts) - 1, 2)
        elif size == 1:
            break
        else:
            groups = min(len(items), 2 * groups)
    return items


def _with_types(part: onnx.ModelProto, values: Results) -> onnx.ModelProto:
    """State types and shapes of outputs, from their values."""
    for output in part.graph.output:
        value = values[output.name]
        if isinstance(value, np.ndarray):
            number = (
                onnx.TensorProto.STRING
                if value.dtype.kind in "OUST"
                else onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
            )
            output.CopyFrom(onnx.helper.make_tensor_value_info(output.name, number, value.shape))
    return part


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)
