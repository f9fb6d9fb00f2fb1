"""Bring a model into the form that can run on torch, without touching its weights."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass, TopologicalSortPass

from samba_onnx.errors import InternalError, ModelError, SambaError
from samba_onnx.importing.instructions import CONTROL
from samba_onnx.importing.operators.registry import find
from samba_onnx.importing.selection import WeightSelection, select
from samba_onnx.loading import load_model
from samba_onnx.passes.rewrites.convert_opset import INTERNAL_OPSET, ConvertOpsetPass
from samba_onnx.passes.rewrites.evaluation import FOLDABLE
from samba_onnx.passes.rewrites.expand_functions import ExpandFunctionsPass
from samba_onnx.passes.rewrites.fold_constants import FoldConstantsPass
from samba_onnx.passes.rewrites.fold_shapes import FoldShapesPass
from samba_onnx.passes.rewrites.forget_shapes import ForgetShapesPass
from samba_onnx.passes.rewrites.infer_foreign_types import InferForeignTypesPass
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.inline_branches import InlineBranchesPass
from samba_onnx.passes.rewrites.inline_functions import InlineFunctionsPass
from samba_onnx.passes.rewrites.lift_constants import LiftConstantsPass
from samba_onnx.passes.rewrites.remove_noops import RemoveNoopsPass
from samba_onnx.passes.rewrites.rewriting import each_graph

__all__ = ["Prepared", "prepare"]


@dataclass(frozen=True)
class Prepared:
    """A model that is ready to be planned."""

    model: ir.Model
    """Its inputs are the model's own, then the weights."""
    inputs: tuple[ir.Value, ...]
    weights: dict[ir.Value, ir.TensorProtocol]
    """What shall be trained, and its content; every one is read."""
    constants: dict[ir.Value, ir.TensorProtocol]
    given: frozenset[str]
    """Names of the constants that are initializers of the model as they are."""


class _Table:
    """Tells ExpandFunctionsPass what needs no expansion."""

    def knows(self, domain: str, op_type: str) -> bool:
        """Return whether an operator can be computed as it is."""
        if find(domain, op_type) is not None:
            return True
        return domain == "" and (op_type in CONTROL or op_type in FOLDABLE)


def _normalising() -> tuple[ir.passes.PassBase, ...]:
    return (
        ForgetShapesPass(),
        InlineFunctionsPass(),  # before conversion, which sees calls only as they are
        TopologicalSortPass(),
        LiftConstantsPass(),
        InferShapesPass(),  # conversion needs ranks and types
        InferForeignTypesPass(),
        ConvertOpsetPass(),
        InferShapesPass(),
    )


def _expanding() -> tuple[ir.passes.PassBase, ...]:
    return (
        ExpandFunctionsPass(_Table()),
        LiftConstantsPass(),  # bodies hold Constant nodes
        InferShapesPass(),
        ConvertOpsetPass(),
        InferShapesPass(),
    )


def _simplifying() -> tuple[ir.passes.PassBase, ...]:
    """Fold what follows from shapes and constants; weights are inputs by now and stay whole."""
    return (
        FoldShapesPass(),
        FoldConstantsPass(),
        InlineBranchesPass(),
        RemoveNoopsPass(),
        RemoveUnusedNodesPass(),
        InferShapesPass(),
    )


def prepare(
    source: str | os.PathLike[str] | onnx.ModelProto, weights: Collection[str] | None
) -> Prepared:
    """Load a model, choose its weights and simplify the rest.

    Args:
        source: A path or a model in memory.
        weights: Names of what shall be trained; None chooses.

    Raises:
        ModelError: The model cannot be loaded, or not be brought to a known operator set.
        UsageError: ``weights`` names what is no floating-point initializer or is never read.
    """
    model = load_model(source).model
    _drop_defaults(model)
    original = {name: value.const_value for name, value in model.graph.initializers.items()}
    _run(model, _normalising())
    _require_version(model)
    _run(model, _expanding() * 3)
    selection = select(model, set(original), weights)
    lifted = _lift(model, selection)
    inputs = tuple(model.graph.inputs[: -len(lifted)] if lifted else model.graph.inputs)
    _run(model, _simplifying() * 2)
    _run(model, (TopologicalSortPass(),))
    used = _used(model)
    read = {value: tensor for value, tensor in lifted.items() if value in used}
    selection.require_read({value.name or "" for value in read})
    constants = {
        value: value.const_value
        for value in model.graph.initializers.values()
        if value.const_value is not None and value in used
    }
    names = {
        value.name or ""
        for value, tensor in constants.items()
        if original.get(value.name or "") is tensor
    }
    return Prepared(model, inputs, read, constants, frozenset(names))


def _run(model: ir.Model, passes: tuple[ir.passes.PassBase, ...]) -> None:
    for rewrite in passes:
        try:
            rewrite(model)
        except SambaError:
            raise
        except Exception as error:
            if isinstance(error.__cause__, SambaError):
                raise error.__cause__ from None
            raise InternalError(
                f"pass {type(rewrite).__name__} failed: {error}; please report this model"
            ) from error


def _require_version(model: ir.Model) -> None:
    """Refuse a model that conversion left at a version with other meanings."""
    version = model.graph.opset_imports.get("", INTERNAL_OPSET)
    if version < INTERNAL_OPSET:
        trial = ConvertOpsetPass()
        trial(model)
        reason = trial.notes[-1] if trial.notes else f"it stays at opset {version}"
        raise ModelError(f"the model cannot be trained: {reason}; export it with a newer opset")


def _drop_defaults(model: ir.Model) -> None:
    """Take inputs that have a default for initializers: exporters list weights as inputs, too."""
    for value in [value for value in model.graph.inputs if value.is_initializer()]:
        model.graph.inputs.remove(value)


def _lift(model: ir.Model, selection: WeightSelection) -> dict[ir.Value, ir.TensorProtocol]:
    """Turn the weights into inputs, so that no pass folds, merges or moves them."""
    lifted: dict[ir.Value, ir.TensorProtocol] = {}
    for name in selection.weights:
        value = model.graph.initializers.pop(name)
        tensor = value.const_value
        if tensor is None:
            continue
        lifted[value] = tensor
        value.const_value = None
        value.type = ir.TensorType(tensor.dtype)
        value.shape = ir.Shape(tensor.shape.numpy())
        model.graph.inputs.append(value)
    return lifted


def _used(model: ir.Model) -> set[ir.Value]:
    """Return the values that nodes or the outputs read; what was removed may still count as use."""
    values = {value for node in model.graph.all_nodes() for value in node.inputs if value}
    for graph in each_graph(model):
        values.update(graph.outputs)
    return values
