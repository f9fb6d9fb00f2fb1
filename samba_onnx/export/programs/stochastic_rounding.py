"""Stochastic rounding in the sections of a program that train."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from types import MappingProxyType
from typing import Final

import onnx_ir as ir

from samba_onnx.facts.domains import SAMBA_DOMAIN, STOCHASTIC_ROUND, is_default
from samba_onnx.facts.names import GRADIENT_ROUNDING_SEED, OPT, ROUNDING_SEED, UPDATED, WIDE
from samba_onnx.facts.roundings import Rounding, write_rounding
from samba_onnx.optim.records import MASTER, state_name
from samba_onnx.program.dataflow import name_of
from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.program.program import ArginSpec, Part, Program

__all__ = ["round_stochastically"]

_WIDE: Final = ir.DataType.FLOAT
_NARROW: Final = ir.DataType.BFLOAT16
_MOVES: Final = frozenset({"Cast", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that move a bfloat16 value without rounding it."""
_CONVOLUTIONS: Final = frozenset({"Conv", "ConvTranspose"})
_BATCH_SUMS: Final = frozenset({"ReduceSum"})
_ADDITIONS: Final = frozenset({"Add", "Sum"})
"""Operators that add gradients: of a weight that is read several times, and of earlier runs."""
_SUMS: Final = MappingProxyType(
    {
        Rounding.GRADIENTS: frozenset({"Einsum", "Gemm", "MatMul"})
        | _CONVOLUTIONS
        | _BATCH_SUMS
        | _ADDITIONS,
        Rounding.CONVOLUTIONS: _CONVOLUTIONS,
        Rounding.BIASES: _BATCH_SUMS,
    }
)
"""Operators that add up, by the choice that they belong to."""


def round_stochastically(program: Program, roundings: Collection[Rounding]) -> Program:
    """Let a program round values to bfloat16 at random that it rounds to nearest.

    1. ``steps``: what optimizers store in bfloat16, weights and states. A weight with a float32 copy is
       its rounding to nearest: the copy loses nothing.
    2. ``gradients``: the sums that make gradients of weights, back to the products that are added up. They
       compute in float32 of bfloat16, as all do, and what they return is rounded at random.
       ``convolution-gradients`` and ``bias-gradients`` are some of them.

    Args:
        program: Forward, backward and steps; its OPT and BCKWD parts are changed in place.
        roundings: What is rounded at random; of nothing the program stays as it is.

    Returns:
        The program with the seeds as argins, and with how many values are rounded so in its metadata.
    """
    if not roundings:
        return program
    writer = _Writer(frozenset(roundings))
    for part in program.parts:
        if part.type is SectionType.OPT and Rounding.STEPS in roundings:
            writer.round_steps(part)
        elif part.type is SectionType.BCKWD:
            writer.round_gradients(part, program)
    argins = tuple(ArginSpec(name, "tensor(int32)", 0.0) for name in writer.seeds)
    metadata = {**program.metadata, **write_rounding(writer.counts)}
    return dataclasses.replace(program, argins=(*program.argins, *argins), metadata=metadata)


class _Writer:
    """Writes the roundings of one program, each with a stream of its own."""

    def __init__(self, roundings: frozenset[Rounding]) -> None:
        self._roundings = roundings
        self.counts = {one: 0 for one in Rounding if one in roundings}
        self.seeds: dict[str, None] = {}
        """Names of the argins, in the order of the parts."""
        # Counted over all parts: roundings with one seed must not draw the same numbers.
        self._stream = 0

    def round_steps(self, part: Part) -> None:
        """Round what an optimizer stores (case 1)."""
        graph = part.model.graph
        read = {name_of(value) for value in graph.inputs}
        seed = f"{(graph.name or '').removesuffix(OPT)}{ROUNDING_SEED}"
        # A list, as outputs are replaced meanwhile.
        for output in list(graph.outputs):
            cast = output.producer()
            if cast is None or cast.op_type != "Cast" or output.dtype != _NARROW:
                continue
            source = cast.inputs[0]
            weight = name_of(output).removesuffix(UPDATED)
            # A weight that has a float32 copy is rounded to nearest: the copy loses nothing.
            if source is None or source.dtype != _WIDE or state_name(weight, MASTER) in read:
                continue
            self._round(graph, cast, source, output, seed)
            graph.remove(cast, safe=True)
            self.counts[Rounding.STEPS] += 1

    def round_gradients(self, part: Part, program: Program) -> None:
        """Round what makes gradients of weights (case 2)."""
        for output in list(part.model.graph.outputs):
            if program.residents.get(name_of(output)) is SymbolKind.GRADIENT:
                self._round_sum(part.model.graph, output)

    def _round_sum(self, graph: ir.Graph, value: ir.Value) -> None:
        """Round a value, or what it is made of, if that is a sum."""
        node = value.producer()
        if node is None or not is_default(node.domain):
            return
        operands = [one for one in node.inputs if one is not None]
        if node.op_type in _MOVES:
            # What others read as well would be rounded for them, too.
            if operands[0].dtype == _NARROW and _is_read_once(operands[0]):
                self._round_sum(graph, operands[0])
            return
        rounding = self._rounding(node)
        if node.op_type in _ADDITIONS:
            for operand in filter(_is_read_once, operands):
                self._round_sum(graph, operand)
        # What is float32 already is not rounded at all.
        if rounding is not None and value.dtype == _NARROW:
            self._widen(graph, node)
            self.counts[rounding] += 1

    def _rounding(self, node: ir.Node) -> Rounding | None:
        """Return which choice a node belongs to; None where it is rounded to nearest."""
        # One operator may belong to several choices: the first of the table counts.
        for rounding, names in _SUMS.items():
            if rounding in self._roundings and node.op_type in names:
                return rounding
        return None

    def _widen(self, graph: ir.Graph, node: ir.Node) -> None:
        """Let a node compute in float32, and round what it returns."""
        for place, operand in enumerate(node.inputs):
            if operand is not None and operand.dtype == _NARROW:
                cast = ir.node("Cast", [operand], {"to": int(_WIDE)})
                cast.metadata_props.update(node.metadata_props)
                wide = cast.outputs[0]
                wide.type, wide.shape = ir.TensorType(_WIDE), operand.shape
                graph.insert_before(node, cast)
                node.replace_input_with(place, wide)
        result = node.outputs[0]
        self._round(graph, node, result, result, GRADIENT_ROUNDING_SEED)
        result.type = ir.TensorType(_WIDE)

    def _round(
        self, graph: ir.Graph, after: ir.Node, source: ir.Value, result: ir.Value, seed: str
    ) -> None:
        """Put the rounding of one value in the place of another, under its name."""
        rounding = ir.node(
            STOCHASTIC_ROUND,
            [source, self._seed(graph, seed)],
            {"stream": self._stream},
            domain=SAMBA_DOMAIN,
        )
        self._stream += 1
        rounding.metadata_props.update(after.metadata_props)
        rounded, name = rounding.outputs[0], result.name
        rounded.type, rounded.shape = ir.TensorType(_NARROW), result.shape
        rounded.metadata_props.update(result.metadata_props)
        result.replace_all_uses_with(rounded, replace_graph_outputs=True)
        # Where a value takes its own place, the line above had the rounding read itself.
        rounding.replace_input_with(0, source)
        # The rounded value takes the name, which readers outside of the graph go by.
        result.name, rounded.name = f"{name}{WIDE}", name
        graph.insert_after(after, rounding)

    def _seed(self, graph: ir.Graph, name: str) -> ir.Value:
        """Return the input of a graph that is a seed."""
        graph.opset_imports[SAMBA_DOMAIN] = 1
        self.seeds[name] = None
        # One seed serves all roundings of a part, which their streams tell apart.
        for value in graph.inputs:
            if value.name == name:
                return value
        value = ir.Value(name=name, shape=ir.Shape(()), type=ir.TensorType(ir.DataType.INT32))
        graph.inputs.append(value)
        return value


def _is_read_once(value: ir.Value) -> bool:
    return len(value.uses()) == 1 and not value.is_graph_output()
