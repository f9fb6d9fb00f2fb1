"""Bring a model into the form that can run on torch, without touching its weights."""

from __future__ import annotations

import os
from collections.abc import Collection, Set
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from samba_onnx.errors import ModelError
from samba_onnx.facts.names import in_a_list
from samba_onnx.facts.versions import OPSET
from samba_onnx.importing.instructions import CONTROL
from samba_onnx.importing.operators.computations import find
from samba_onnx.importing.selection import WeightSelection, select
from samba_onnx.loading import load_model
from samba_onnx.passes.pipeline import run_training_pipeline
from samba_onnx.passes.rewrites.convert_opset import ConvertOpsetPass
from samba_onnx.passes.rewrites.evaluation import FOLDABLE
from samba_onnx.passes.rewrites.rewriting import each_graph
from samba_onnx.pef.rewrite_records import PassSummary
from samba_onnx.program.dataflow import each_node

__all__ = ["Prepared", "prepare"]


@dataclass(frozen=True)
class Prepared:
    """A model that is ready to be planned."""

    model: ir.Model
    """The model, whose inputs are those of the original, then the weights."""
    inputs: tuple[ir.Value, ...]
    weights: dict[ir.Value, ir.TensorProtocol]
    """What shall be trained, and its content; every one is read."""
    constants: dict[ir.Value, ir.TensorProtocol]
    originals: frozenset[str]
    """Names of the constants that are initializers of the model as they are."""
    passes: tuple[PassSummary, ...]
    """What each pass did to the model."""


class _Table:
    """Tells ExpandFunctionsPass what needs no expansion."""

    @property
    def repeats_bodies(self) -> bool:
        """Whether a Scan repeats its body: loops of a module run as the model's do."""
        return True

    def knows(self, domain: str, op_type: str) -> bool:
        """Return whether an operator can be computed as it is."""
        if find(domain, op_type) is not None:
            return True
        return domain == "" and (op_type in CONTROL or op_type in FOLDABLE)

    def runs(self, node: ir.Node) -> bool:
        """Return whether a node can be computed as it is."""
        return self.knows(node.domain, node.op_type)


class LiftWeightsPass(ir.passes.InPlacePass):
    """Turn the weights of a model into inputs, so that no later pass folds, merges or moves them.

    1. The model is at the operator set whose meanings the operators of ``importing`` have; one
       that conversion left behind is refused.
    2. The initializers that the model had as it was loaded are chosen from, and those without
       content stay.
    """

    def __init__(self, original: Set[str], weights: Collection[str] | None) -> None:
        """Keep what decides.

        Args:
            original: Names of the initializers of the model as it was loaded.
            weights: Names of what shall be trained; None chooses.
        """
        super().__init__()
        self.selection = WeightSelection((), frozenset())
        self.lifted: dict[ir.Value, ir.TensorProtocol] = {}
        """The weights by now, and their content."""
        self._original = original
        self._weights = weights

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Choose the weights, and append them to the inputs."""
        # Roles of operands are those of one version of the operators; an old one has attributes
        # instead.
        _require_version(model)
        self.selection = select(model, self._original, self._weights)
        for name in self.selection.weights:
            value = model.graph.initializers.pop(name)
            tensor = value.const_value
            if tensor is None:
                continue
            self.lifted[value] = tensor
            value.const_value = None
            # An initializer may have type and shape in its tensor only, which an input lacks.
            value.type = ir.TensorType(tensor.dtype)
            value.shape = ir.Shape(tensor.shape.numpy())
            model.graph.inputs.append(value)
        return ir.passes.PassResult(model, modified=bool(self.lifted))


def prepare(
    source: str | os.PathLike[str] | onnx.ModelProto, weights: Collection[str] | None
) -> Prepared:
    """Load a model, choose its weights and simplify the rest.

    Args:
        source: A path or a model in memory.
        weights: The name of what shall be trained, or several; None chooses.

    Raises:
        ModelError: The model cannot be loaded, or not be brought to a known operator set.
        UsageError: ``weights`` names what is no floating-point initializer or is never read.
    """
    model = load_model(source).model
    # Before the interface is counted: weights listed as inputs must not become arguments.
    _drop_defaults(model)
    # The pipeline appends the weights to the inputs, so that the model's own are the first ones.
    own = len(model.graph.inputs)
    original = {name: value.const_value for name, value in model.graph.initializers.items()}
    named = None if weights is None else in_a_list(weights)
    lift = LiftWeightsPass(original.keys(), named)
    passes = run_training_pipeline(model, _Table(), lift)
    used = _used(model)
    # A weight that only dead nodes read would be a parameter without a gradient.
    read = {value: tensor for value, tensor in lift.lifted.items() if value in used}
    lift.selection.require_read({value.name or "" for value in read})
    constants = {
        value: value.const_value
        for value in model.graph.initializers.values()
        if value.const_value is not None and value in used
    }
    # Kept by identity of the tensor: a pass that computes a constant anew may give it an old name.
    originals = {
        value.name or ""
        for value, tensor in constants.items()
        if original.get(value.name or "") is tensor
    }
    inputs = tuple(model.graph.inputs[:own])
    return Prepared(model, inputs, read, constants, frozenset(originals), passes)


def _require_version(model: ir.Model) -> None:
    """Refuse a model that conversion left at a version with other meanings."""
    version = model.graph.opset_imports.get("", OPSET)
    if version < OPSET:
        # The trial is made for its note alone, which says why conversion stopped.
        trial = ConvertOpsetPass()
        trial(model)
        reason = trial.notes[-1] if trial.notes else f"it stays at opset {version}"
        raise ModelError(f"the model cannot be trained: {reason}; export it with a newer opset")


def _drop_defaults(model: ir.Model) -> None:
    """Take inputs that have a default for initializers: exporters list weights as inputs, too."""
    for value in [value for value in model.graph.inputs if value.is_initializer()]:
        model.graph.inputs.remove(value)


def _used(model: ir.Model) -> set[ir.Value]:
    """Return the values that nodes or the outputs read; what was removed may still count as use."""
    values = {value for node in each_node(model.graph) for value in node.inputs if value}
    for graph in each_graph(model):
        values.update(graph.outputs)
    return values
