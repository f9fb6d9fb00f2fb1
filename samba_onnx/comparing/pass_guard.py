"""A guard that runs a model after every pass that changed it: ``--check-passes``."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import onnx
import onnx_ir as ir

from samba_onnx.comparing.both_sides import plain_engine
from samba_onnx.comparing.expectations import Expectation
from samba_onnx.comparing.judge import Verdict, judge
from samba_onnx.comparing.reduction import (
    Reducer,
    Reduction,
    RefusedByEngineError,
    run_moved,
)
from samba_onnx.comparing.rounding_depth import rounding_depth
from samba_onnx.comparing.sample_inputs import DYNAMIC_SIZE, input_ranges, random_inputs
from samba_onnx.comparing.sample_limits import RANDOM_OPERATORS
from samba_onnx.comparing.walk import Walk
from samba_onnx.errors import ExecutionError, PassMismatchError, UsageError
from samba_onnx.facts.tolerances import COARSER
from samba_onnx.passes.watching import PassStep, run_again
from samba_onnx.program.dataflow import each_node
from samba_onnx.program.value_types import type_text
from samba_onnx.runtime.engine.lowerings.dropout_masks import expand_dropout_masks
from samba_onnx.runtime.engine.lowerings.stochastic_rounds import expand_stochastic_rounds
from samba_onnx.runtime.engine.protocol import Engine

FED_BYTES: Final = 1 << 16
"""Larger initializers are handed to the engine as inputs, which copies them not."""


class PassGuard:
    """Compares what a model computes after each pass with what it computed before the first one.

    The tolerances are those of ``samba-port verify``. A model that the engine cannot run between two
    passes is compared after the next one with which it can.
    """

    def __init__(self, model: ir.Model, *, seed: int = 0) -> None:
        """Keep the model as it is before any pass.

        Args:
            model: The model; it is not changed here.
            seed: Seed of the inputs.

        Raises:
            UsageError: It draws random numbers.
        """
        drawing = sorted({n.op_type for n in each_node(model.graph)} & RANDOM_OPERATORS)
        if drawing:
            raise UsageError(
                f"passes cannot be checked on this model: {', '.join(drawing)} draws other numbers in "
                "every run"
            )
        self._seed = seed
        self._engine: Engine = plain_engine(None)
        self._depth = rounding_depth(model)
        # A clone, as passes change the model itself.
        self._original = model.clone()
        self._agreeing = self._original
        """The model after the last pass with which it computed the same."""
        self._walk = Walk[PassStep]()
        self._refusal = ""
        self._expected: Expectation | None = None
        self._feeds: dict[str, Any] = {}

    def see(self, step: PassStep) -> None:
        """Run the model after a pass that changed it.

        Args:
            step: The pass, and the model.

        Raises:
            PassMismatchError: The model computes something else now; it names the pass and has the
                smallest part of the model that the pass spoils.
            UsageError: The original cannot be run.
        """
        if step.binds_later:
            return self._walk.skip(step)  # sizes of inputs are not known yet
        if self._expected is None:
            self._begin(step.model)
        assert self._expected is not None
        if step.name == "ReducePrecision":  # it changes numbers, by roundings of bfloat16
            self._expected = replace(self._expected, coarser=COARSER)
        try:
            actual = self._run(step.model, self._feeds)
        except ExecutionError as error:
            # Of several refusals the first is told: what comes after it may follow from it.
            self._refusal = self._refusal or (error.reason or str(error))
            return self._walk.skip(step)
        self._walk.take(step, judge(actual, self._expected))
        if self._walk.first is not None:
            raise self._mismatch(_distance(self._walk.first.verdict), self._walk.first.suspects)
        # From here on the guilty pass is looked for: the next one changes
        # this model, so it is cloned.
        self._agreeing, self._refusal = step.model.clone(), ""
        return None

    def finish(self) -> tuple[str, ...]:
        """Say how many passes were checked.

        Raises:
            PassMismatchError: The engine runs the original, and not what the passes made of it.
        """
        if self._refusal:
            raise self._mismatch(f"the engine refuses it: {self._refusal}", self._walk.suspects)
        checked = self._walk.agreeing
        if not checked:
            return ()
        count = "1 pass" if checked == 1 else f"{checked} passes"
        return (f"After each of {count} that changed it, the model computed the same.",)

    def _begin(self, bound: ir.Model) -> None:
        """Choose inputs, and run the original on them; small integers are what every model takes."""
        specs = {
            value.name or "": (type_text(value), _sizes(value))
            for value in bound.graph.inputs
            if not value.is_initializer()
        }
        first: ExecutionError | None = None
        # First with all that the graph shows its inputs to take: of a large
        # table, 0 and 1 read two rows.
        for ranges in (input_ranges(bound.graph), None):
            feeds = random_inputs(specs, self._seed, ranges)
            try:
                outputs = self._run(self._original, feeds)
            except ExecutionError as error:
                first = first or error
                continue
            again = functools.partial(run_moved, self._run, self._original, feeds)
            self._feeds = feeds
            # Kept, or the original would run again for every pass after
            # which an output is not near.
            self._expected = Expectation(outputs, None, self._depth, again=functools.cache(again))
            return
        raise UsageError(f"passes cannot be checked on this model: it cannot be run: {first}")

    def _run(self, model: ir.Model, feeds: Mapping[str, Any]) -> dict[str, Any]:
        proto, weights = _lean(model)
        return self._evaluate(proto, {**feeds, **weights})

    def _evaluate(self, proto: onnx.ModelProto, feeds: Mapping[str, Any]) -> dict[str, Any]:
        expand_dropout_masks(proto)  # operators of this product, which engines lack
        expand_stochastic_rounds(proto)
        computation = self._engine.open(proto, "the model between two passes")
        try:
            results = computation.run({name: feeds[name] for name in computation.inputs})
        except self._engine.failures as error:
            reason = self._engine.reason(error)
            raise ExecutionError(f"the model failed: {reason}", reason=reason) from None
        return dict(zip(computation.outputs, results, strict=True))

    def _mismatch(self, difference: str, suspects: Sequence[PassStep]) -> PassMismatchError:
        names = tuple(step.name for step in suspects)
        reduction = self._reduced(suspects)
        which = f"pass {names[0]}" if len(names) == 1 else f"one of the passes {', '.join(names)}"
        part = "no part of it alone shows it"
        if reduction is not None:
            part = f"{reduction.nodes} of its {reduction.of} nodes show it"
        return PassMismatchError(
            f"{which} changed what the model computes: {difference}; {part}; please report this model",
            passes=names,
            reduction=reduction,
        )

    def _reduced(self, suspects: Sequence[PassStep]) -> Reduction | None:
        """Return the smallest part of the model that the suspects spoil."""

        def recompute(part: onnx.ModelProto, feeds: Mapping[str, Any]) -> dict[str, Any]:
            model = ir.from_proto(part)
            run_again(model, suspects)
            try:
                return self._evaluate(ir.to_proto(model), feeds)
            except ExecutionError as error:
                raise RefusedByEngineError(str(error)) from None

        whole = ir.to_proto(self._agreeing)
        try:
            # Parts are cut from the last model that agreed: passes before it are no suspects.
            return Reducer(whole, self._feeds, self._engine, recompute, self._depth).reduce()
        except ExecutionError:  # values of which nobody can see all
            return None


def _sizes(value: ir.Value) -> tuple[int, ...]:
    """Return the sizes of an input, with small ones for dynamic dimensions."""
    shape = () if value.shape is None else value.shape
    return tuple(size if isinstance(size, int) else DYNAMIC_SIZE for size in shape)


def _distance(output: Verdict) -> str:
    return (
        f"{output.mismatched:,} of {output.elements:,} elements of output {output.name!r} are off, by up "
        f"to {output.max_relative_error:.2g} of the largest"
    )


def _lean(model: ir.Model) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Return a model whose large weights are inputs, and these by name."""
    copy, weights = model.clone(), {}
    for name, value in list(copy.graph.initializers.items()):
        tensor = value.const_value
        if tensor is None or tensor.nbytes <= FED_BYTES or value.is_graph_input():
            continue
        # Texts have no layout of bytes that could be handed over without copying.
        if tensor.dtype == ir.DataType.STRING:
            continue
        weights[name] = tensor.numpy()
        value.type, value.shape = ir.TensorType(tensor.dtype), ir.Shape(tensor.shape.numpy())
        del copy.graph.initializers[name]
        value.const_value = None
        copy.graph.inputs.append(value)
    return ir.to_proto(copy), weights
