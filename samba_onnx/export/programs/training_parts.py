"""Writes the halves of a joint graph as parts of a program."""

from __future__ import annotations

import json
import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import onnx_ir as ir
from torch import Tensor, fx
from torch.export.graph_signature import InputKind

from samba_onnx.errors import ModelError
from samba_onnx.export.capture.conforming import check_sizes
from samba_onnx.export.differentiation.joint import Joint, JointRequest
from samba_onnx.export.differentiation.partitioning import Half, partition
from samba_onnx.export.naming import SymbolClaims
from samba_onnx.export.places import node_place
from samba_onnx.export.programs.output_names import output_name
from samba_onnx.export.translation.builder import GraphBuilder, element, sizes
from samba_onnx.export.translation.element_types import onnx_type
from samba_onnx.export.translation.graphs import constant, translate
from samba_onnx.facts.names import (
    LOSSES,
    FreeNames,
    before_name,
    gradient_name,
    updated_name,
    written_name,
    zeroed_name,
)
from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.program.program import Part, Program

_KINDS: Final = {InputKind.PARAMETER: SymbolKind.WEIGHT, InputKind.BUFFER: SymbolKind.BUFFER}


@dataclass(frozen=True)
class SymbolNames:
    """What the values of a module are called."""

    root: str
    """Leads all names."""
    symbols: Mapping[str, str]
    """By placeholder of the exported graph: parameters, buffers and tensor inputs."""
    regions: Mapping[str, str]
    """Regions by symbol, for the symbols that are not in a region of their own name."""
    outputs: tuple[str | None, ...]
    """Symbols of the flat outputs, in order; None for an output that is no tensor."""
    free: FreeNames
    """For values that have no name yet."""


def is_tensor(output: object) -> bool:
    """Return whether an output of an exported graph is a tensor."""
    return isinstance(output, fx.Node) and isinstance(output.meta.get("val"), Tensor)


def write_program(name: str, request: JointRequest, joint: Joint, names: SymbolNames) -> Program:
    """Write forward and backward in ONNX.

    Args:
        name: The program's name.
        request: What was differentiated. Gradients that accumulate are set to zero by a part of
            their own.
        joint: Forward and backward in one graph.
        names: What values are called.

    Returns:
        The program without optimizers; without a backward if no parameter has a gradient.

    Raises:
        ModelError: An operator cannot be written in ONNX, or returns sizes that depend on values; the
            message names the user's line.
    """
    check_sizes(joint.module, numbers=False)
    return _Writer(name, request, joint, names).program()


class _Writer:
    """Writes one program."""

    def __init__(self, name: str, request: JointRequest, joint: Joint, names: SymbolNames) -> None:
        self._name = name
        self._joint = joint
        self._names = names
        self._sites = tuple(request.sites.values())
        self._keeps_activations = request.keeps_activations
        specs = request.exported.graph_signature.input_specs
        self._kinds = {spec.arg.name: spec.kind for spec in specs}
        self._paths = {spec.arg.name: spec.target for spec in specs}
        # By nodes of the joint graph, which halves refer to.
        self._constants = {
            joint.inputs[spec.arg.name]: request.exported.constants[spec.target]
            for spec in specs
            if spec.kind is InputKind.CONSTANT_TENSOR and spec.target in request.exported.constants
        }
        self._gradients = {
            gradient_name(names.symbols[leaf]): node for leaf, node in joint.gradients.items()
        }
        # An input is another tensor in every run, and so is its gradient: there is nothing to add to.
        self._sums = {
            gradient_name(names.symbols[leaf]): node
            for leaf, node in joint.gradients.items()
            if request.rules.accumulates and self._kinds[leaf] is not InputKind.USER_INPUT
        }

    def program(self) -> Program:
        """Return all parts, and what their values are."""
        self._refuse_clashes()
        forward, backward = self._halves()
        operand_names, result_names = self._operand_names(), self._result_names(forward)
        parts = [Part(SectionType.FWD, self._forward(forward, operand_names, result_names))]
        if self._gradients:
            parts.append(
                Part(SectionType.BCKWD, self._backward(backward, {**operand_names, **result_names}))
            )
        if self._sums:
            # A part of its own, so that a run may leave it out and go on adding.
            parts.insert(0, Part(SectionType.ZEROGRAD, self._zeros()))
        # What no part reads is not asked of whoever runs the program.
        read = {value.name for part in parts for value in part.model.graph.inputs}
        symbols = self._names.symbols.items()
        users = [s for p, s in symbols if self._kinds[p] is InputKind.USER_INPUT]
        argins = [argin for site in self._sites for argin in (site.rate, site.seed)]
        residents = self._residents(read)
        return Program(
            name=self._name,
            parts=tuple(parts),
            # One tensor that is given twice is one input.
            inputs=tuple(dict.fromkeys(user for user in users if user in read)),
            outputs=tuple(output for output in self._names.outputs if output),
            residents=residents,
            regions=self._regions(residents),
            argins=tuple(argin for argin in argins if argin.name in read),
            metadata={LOSSES: json.dumps([self._names.outputs[i] for i in self._joint.seeds])},
        )

    def _refuse_clashes(self) -> None:
        """Refuse symbols of one name; outputs and activations have free ones."""
        claims, members, joint = SymbolClaims(), dict[str, str](), self._joint
        for placeholder, symbol in self._names.symbols.items():
            kind = self._kinds[placeholder]
            if kind is InputKind.USER_INPUT:
                claims.claim(symbol, f"input {symbol!r}")
            else:
                # A tied parameter has the name of the first one.
                text = f"{kind.name.lower()} {self._paths[placeholder]!r}"
                claims.claim(symbol, members.setdefault(symbol, text))
        for placeholder in joint.gradients:
            symbol = self._names.symbols[placeholder]
            name, owner = gradient_name(symbol), members.get(symbol, f"input {symbol!r}")
            endings = (updated_name, zeroed_name) if name in self._sums else ()
            for claimed in (name, *(ending(name) for ending in endings)):
                claims.claim(claimed, f"the gradient of {owner}")
        for member in joint.updates:
            text = members[self._names.symbols[member]]
            claims.claim(self._new_name(member), f"the new value of {text}")
        for index in joint.seeds:
            name = gradient_name(self._names.outputs[index] or "")
            claims.claim(name, f"the gradient of output {index}")

    def _halves(self) -> tuple[Half, Half]:
        joint = self._joint
        return partition(
            joint.module,
            [*filter(None, joint.outputs), *joint.updates.values()],
            list(joint.gradients.values()),
            [*joint.seeds.values(), *joint.accumulated.values()],
            # Written by the forward, they are others by the time the backward runs.
            [joint.inputs[member] for member in joint.updates],
            keeps_activations=self._keeps_activations,
        )

    def _operand_names(self) -> dict[fx.Node, str]:
        """Return the names of what is in memory before the forward runs."""
        symbols, joint = self._names.symbols, self._joint
        names = {node: symbols.get(name, name) for name, node in joint.inputs.items()}
        seeds = joint.seeds.items()
        names |= {node: gradient_name(self._names.outputs[i] or "") for i, node in seeds}
        before = joint.accumulated.items()
        return names | {node: gradient_name(symbols[leaf]) for leaf, node in before}

    def _result_names(self, forward: Half) -> dict[fx.Node, str]:
        """Return the names by which the backward knows what the forward returns."""
        joint, names = self._joint, self._names
        pairs = zip(joint.outputs, names.outputs, strict=True)
        result_names = {node: name for node, name in pairs if node is not None and name is not None}
        for member, node in joint.updates.items():
            # A new value that is returned as well goes by the output's name.
            result_names.setdefault(node, self._new_name(member))
        before = {joint.inputs[member]: names.symbols[member] for member in joint.updates}
        inputs = set(joint.inputs.values())
        # Behind outputs and new values come those that are kept for the backward alone.
        for node in forward.outputs[len(self._results()) :]:
            proposal = (
                before_name(before[node]) if node in before else output_name(names.root, node)
            )
            result_names[node] = names.free.take(proposal)
        # An input that is returned as it is, is read from where it was.
        return {node: n for node, n in result_names.items() if node not in inputs or node in before}

    def _results(self) -> list[str]:
        """Return the names of outputs and updates, in the order in which the forward has them."""
        updated = map(self._new_name, self._joint.updates)
        return [*filter(None, self._names.outputs), *updated]

    def _new_name(self, placeholder: str) -> str:
        """Return the name of what the forward writes into a buffer or parameter."""
        symbol = self._names.symbols[placeholder]
        is_buffer = self._kinds[placeholder] is InputKind.BUFFER
        return updated_name(symbol) if is_buffer else written_name(symbol)

    def _forward(
        self, half: Half, operand_names: Mapping[fx.Node, str], result_names: Mapping[fx.Node, str]
    ) -> ir.Model:
        results = self._results()
        saved = [result_names[node] for node in half.outputs[len(results) :]]
        return self._write(half, operand_names, [*results, *saved])

    def _backward(self, half: Half, known: Mapping[fx.Node, str]) -> ir.Model:
        symbols = self._names.symbols
        summed = {gradient_name(symbols[leaf]) for leaf in self._joint.accumulated}
        # Where a hook is given the sum, the graph itself adds.
        added = [
            name if name in self._sums and name not in summed else "" for name in self._gradients
        ]
        results = [updated_name(name) if name in self._sums else name for name in self._gradients]
        return self._write(half, known, results, added)

    def _write(
        self,
        half: Half,
        known: Mapping[fx.Node, str],
        results: Sequence[str],
        added: Sequence[str] = (),
    ) -> ir.Model:
        """Translate a half.

        Args:
            half: Forward or backward.
            known: Symbols of its inputs.
            results: Names of its outputs.
            added: Symbols that are added to the outputs, if any; empty for an output that has its
                sum already.
        """
        builder = GraphBuilder(self._names.root)
        # Before anything is translated, or inner values might take these names.
        for name in results:
            builder.unique(name)
        placeholders = half.module.graph.find_nodes(op="placeholder")
        inputs: dict[str, ir.Value] = {}
        values = {
            placeholder.name: self._input(builder, node, known[node], inputs)
            for placeholder, node in zip(placeholders, half.inputs, strict=True)
        }
        outputs = translate(half.module, builder, values)
        for index, (value, name) in enumerate(zip(outputs, results, strict=True)):
            if value is None:
                raise ModelError(_missing(half.outputs[index]))
            if added and added[index]:
                value = builder.add(
                    builder.input(added[index], element(value), sizes(value)), value
                )
            _return(builder, value, name)
        return builder.model()

    def _input(
        self, builder: GraphBuilder, node: fx.Node, name: str, inputs: dict[str, ir.Value]
    ) -> ir.Value:
        """Return a constant, or the graph input of a name, the same one for all nodes that have it."""
        if node in self._constants:
            return constant(builder, self._constants[node])
        if name not in inputs:
            content: Tensor = node.meta["val"]
            sizes_of_input = map(int, content.shape)
            inputs[name] = builder.input(name, onnx_type(content.dtype), sizes_of_input)
        return inputs[name]

    def _zeros(self) -> ir.Model:
        builder = GraphBuilder(self._names.root)
        for name, node in self._sums.items():
            content: Tensor = node.meta["val"]
            zeros = builder.full(map(int, content.shape), 0, onnx_type(content.dtype))
            _return(builder, zeros, builder.unique(zeroed_name(name)))
        return builder.model()

    def _residents(self, read: Collection[str | None]) -> dict[str, SymbolKind]:
        residents = {
            symbol: _KINDS[self._kinds[placeholder]]
            for placeholder, symbol in self._names.symbols.items()
            if self._kinds[placeholder] in _KINDS and symbol in read
        }
        residents |= {self._new_name(p): _KINDS[self._kinds[p]] for p in self._joint.updates}
        seeds = [gradient_name(self._names.outputs[index] or "") for index in self._joint.seeds]
        gradients = [*seeds, *self._gradients]
        gradients += [end(g) for g in self._sums for end in (updated_name, zeroed_name)]
        return residents | dict.fromkeys(gradients, SymbolKind.GRADIENT)

    def _regions(self, residents: Collection[str]) -> dict[str, str]:
        own = self._names.regions
        regions = {name: region for name, region in own.items() if name in residents}
        for member in self._joint.updates:
            symbol = self._names.symbols[member]
            regions[self._new_name(member)] = own.get(symbol, symbol)
        return regions | {end(g): g for g in self._sums for end in (updated_name, zeroed_name)}


def _missing(node: fx.Node) -> str:
    source = node.args[0] if node.target is operator.getitem else node
    return (
        f"{getattr(source, 'target', source)} {node_place(node).phrase} cannot be differentiated in ONNX: "
        "its gradient needs what only torch computes; compute it with other operators"
    )


def _return(builder: GraphBuilder, value: ir.Value, name: str) -> None:
    """Make a value the output that a name was kept free for."""
    # An input, or what is returned under two names, needs a node to have another name.
    if value.producer() is None or value.is_graph_output():
        value = builder.emit("Identity", [value], element(value), sizes(value))
    value.name = name
    builder.graph.outputs.append(value)
