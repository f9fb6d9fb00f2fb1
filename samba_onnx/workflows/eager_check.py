"""Comparison of an exported graph with what torch computes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch import fx, nn
from torch.utils import _pytree as pytree

from samba_onnx.errors import ExecutionError, ExportMismatchError
from samba_onnx.export.capture.branches import eager, missing_values
from samba_onnx.export.capture.modules import Captured, Inputs, PlaceholderKind, arguments
from samba_onnx.export.naming import place
from samba_onnx.export.programs.inference import Exported
from samba_onnx.export.translation.builder import GraphBuilder
from samba_onnx.export.translation.dtypes import onnx_type
from samba_onnx.export.translation.graphs import constant, translate
from samba_onnx.facts.dtypes import dtype_name
from samba_onnx.facts.tolerances import of_largest
from samba_onnx.program.program import Part
from samba_onnx.runtime.engine.evaluation import evaluate
from samba_onnx.tensor import SambaTensor
from samba_onnx.workflows.checking.dropouts import rates_at_zero, without_dropouts
from samba_onnx.workflows.checking.outcome import (
    Comparison,
    NotComparableError,
    done,
    not_comparable,
)
from samba_onnx.workflows.checking.refusals import refusal, refuse_unless_prepared


def compare_with_eager(
    module: nn.Module,
    inputs: Inputs,
    exported: Exported,
    keywords: Mapping[str, Any] = MappingProxyType({}),
) -> Comparison:
    """Run an exported graph on the engine, and compare it with the module itself.

    Args:
        module: With the weights to compare with; its buffers stay as they are.
        inputs: What it was exported with.
        exported: As ``export_inference`` returns it.
        keywords: Further arguments by keyword.

    Returns:
        The errors of all outputs; or why the module cannot be compared, after an engine prepared
        what was exported all the same.

    Raises:
        ExportMismatchError: An output differs; the message names the first operator that does, and
            the user's line.
        EngineRefusalError: The engine refuses an operator of the graph.
    """
    part = exported.program.parts[0]
    try:
        return done(compare_part(module, inputs, exported, part, keywords))
    except NotComparableError as obstacle:
        refuse_unless_prepared(part)
        return not_comparable(str(obstacle))


def compare_part(
    module: nn.Module,
    inputs: Inputs,
    exported: Exported,
    forward: Part,
    keywords: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, float]:
    """Run the forward part of an exported graph, and compare its outputs with the module's.

    Args:
        module: With the weights to compare with; its buffers stay as they are.
        inputs: What it was exported with.
        exported: As ``export_inference`` or ``export_training`` returns it.
        forward: Its part of type FWD.
        keywords: Further arguments by keyword.

    Returns:
        Largest error of each output by its name, as a fraction of its largest number.

    Raises:
        ExportMismatchError: An output differs; the message names the first operator that does, and
            the user's line.
        EngineRefusalError: The engine refuses an operator of the graph.
        NotComparableError: A tensor has no values, or torch fails on those that there are.
    """
    args, named = arguments(inputs)
    keywords = {**named, **keywords}
    missing = missing_values(module, (args, keywords))
    if missing:
        raise NotComparableError(missing)
    wanted = _eager_outputs(module, args, keywords, exported)
    flat = pytree.tree_leaves((args, keywords))
    values = run_part(forward, feeds_of(module, flat, exported))
    errors = {
        name: (difference(values[name], tensor), tolerance_of(tensor))
        for name, tensor in zip(exported.outputs, wanted, strict=True)
        if name is not None
    }
    for name, (error, tolerance) in errors.items():
        if not error <= tolerance:
            raise _mismatch(module, flat, exported, name, error)
    return {name: error for name, (error, _) in errors.items()}


def _eager_outputs(
    module: nn.Module, args: tuple[Any, ...], keywords: Mapping[str, Any], exported: Exported
) -> list[Any]:
    """Return the flat outputs of a module, with the rates of its dropouts at 0."""
    try:
        with rates_at_zero() if exported.program.argins else contextlib.nullcontext():
            return pytree.tree_leaves(eager(module, args, keywords))
    except NotComparableError:
        raise
    except Exception as error:  # whatever the user's module raises, as for an index out of range
        text = " ".join(str(error).split())[:200]
        raise NotComparableError(
            f"torch itself fails on the given inputs, with {type(error).__name__}: {text}"
        ) from error


def difference(made: NDArray[Any], wanted: torch.Tensor) -> float:
    """Return the largest error as a fraction of the largest number; infinite if none is defined.

    Args:
        made: What is compared.
        wanted: What it should be.
    """
    expected = to_array(wanted)
    if made.shape != expected.shape or made.dtype != expected.dtype:
        return math.inf
    if not expected.size:
        return 0.0
    if expected.dtype.kind in "biu":
        return 0.0 if np.array_equal(made, expected) else math.inf
    kind = np.complex128 if expected.dtype.kind == "c" else np.float64
    one, other = made.astype(kind), expected.astype(kind)
    known = np.isfinite(other)
    if not np.array_equal(one[~known], other[~known], equal_nan=True):
        return math.inf
    if not known.any():
        return 0.0
    error = np.abs(one[known] - other[known]).max()
    scale = np.abs(other[known]).max()
    return float(error / max(scale, np.finfo(np.float32).tiny)) if error else 0.0


def tolerance_of(tensor: torch.Tensor) -> float:
    """Return how far a tensor may be from torch's, as a fraction of its largest number."""
    return of_largest(dtype_name(tensor.dtype))


def to_array(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a tensor's values; of bfloat16 in the type that stands for it in numpy."""
    plain = (tensor.torch_tensor() if isinstance(tensor, SambaTensor) else tensor).detach().cpu()
    if plain.dtype == torch.bfloat16:
        return plain.float().numpy().astype(ml_dtypes.bfloat16)
    return plain.resolve_conj().resolve_neg().numpy()


def _members(module: nn.Module) -> dict[str, torch.Tensor]:
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def feeds_of(module: nn.Module, flat: Sequence[Any], exported: Exported) -> dict[str, NDArray[Any]]:
    """Return the arrays that an exported graph reads, by name.

    Args:
        module: With values of all parameters.
        flat: Flat inputs.
        exported: What the module was exported to. Its argins, rates and seeds of dropouts, are 0.
    """
    members = _members(module)
    feeds = {name: to_array(members[path]) for name, path in exported.members.items()}
    feeds |= {name: to_array(flat[index]) for name, index in exported.inputs.items()}
    argins = {argin.name for argin in exported.program.argins}
    read = (value for part in exported.program.parts for value in part.model.graph.inputs)
    return feeds | {value.name or "": zeros(value) for value in read if value.name in argins}


def zeros(value: ir.Value) -> NDArray[Any]:
    """Return an array of zeros of a value's type and sizes; a float32 where these are not known."""
    shape = () if value.shape is None else tuple(value.shape.numpy())
    return np.zeros(shape, np.float32 if value.dtype is None else value.dtype.numpy())


def run_part(part: Part, feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Run one part of a program on the engine that stands for the device.

    Args:
        part: The part, of static sizes; bfloat16 is computed as the device computes it.
        feeds: Its inputs, and maybe others, by name.

    Returns:
        Its outputs by name.

    Raises:
        EngineRefusalError: The engine refuses an operator, or fails in it.
    """

    def run(model: ir.Model) -> None:
        evaluate(ir.to_proto(model), feeds)

    try:
        return evaluate(ir.to_proto(part.model), feeds)
    except ExecutionError as error:
        raise refusal(part, error, run) from error


def _mismatch(
    module: nn.Module, flat: Sequence[Any], exported: Exported, output: str, error: float
) -> ExportMismatchError:
    """Return an error that names the first operator whose result differs."""
    first = first_difference(module, flat, exported)
    operator = location = None
    where = "no single operator differs by itself: the errors of many add up"
    if first is not None:
        node, amount = first
        operator, location = str(node.target), place(node)
        where = f"the first operator that differs is {operator} at {location}, by {amount:.2g}"
    return ExportMismatchError(
        f"output {output!r} of the exported graph differs from what {type(module).__name__} "
        f"computes in torch by {error:.2g} of its largest number; {where}. Please report this; "
        "write that operator in another way, or skip the comparison",
        operator=operator,
        location=location,
    )


def first_difference(
    module: nn.Module, flat: Sequence[Any], exported: Exported
) -> tuple[fx.Node, float] | None:
    """Return the first operator of a captured graph whose result differs, and by how much.

    Args:
        module: With values of all parameters.
        flat: Flat inputs.
        exported: What the module was exported to.
    """
    captured = without_dropouts(exported.captured)
    given = _placeholders(module, flat, captured)
    truth = _Recording(captured.graph_module)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        truth.run(*(given[p.name] for p in captured.placeholders))
    values, model = _observed(captured)
    feeds = {name: to_array(t) for name, t in given.items() if isinstance(t, torch.Tensor)}
    try:
        made = evaluate(ir.to_proto(model), feeds)
    except ExecutionError:  # with so many outputs; the graph itself was run before
        return None
    for node, value in values.items():
        wanted = truth.results.get(node)
        if wanted is None:
            continue
        amount = difference(made[value.name or ""], wanted)
        if not amount <= tolerance_of(wanted):
            return node, amount
    return None


def _placeholders(module: nn.Module, flat: Sequence[Any], captured: Captured) -> dict[str, Any]:
    """Return the operands of a captured graph."""
    members = _members(module)
    left: Iterable[Any] = iter(flat)
    given = {}
    for placeholder in captured.placeholders:
        if placeholder.kind in (PlaceholderKind.INPUT, PlaceholderKind.STATIC):
            value = next(left)  # type: ignore[call-overload]
        elif placeholder.kind is PlaceholderKind.CONSTANT:
            value = captured.constants[placeholder.name]
        else:
            value = members[placeholder.qualified]
        if isinstance(value, SambaTensor):
            value = value.torch_tensor()
        given[placeholder.name] = value.detach() if isinstance(value, torch.Tensor) else value
    return given


class _Recording(fx.Interpreter):
    """Runs a captured graph in torch and keeps every tensor."""

    def __init__(self, graph_module: fx.GraphModule) -> None:
        super().__init__(graph_module)
        self.results: dict[fx.Node, torch.Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if isinstance(result, torch.Tensor):
            self.results[n] = result
        return result


def _observed(captured: Captured) -> tuple[dict[fx.Node, ir.Value], ir.Model]:
    """Return the graph once more, with the results of all operators as outputs."""
    builder = GraphBuilder("observed")
    inputs = {}
    for node in captured.graph_module.graph.find_nodes(op="placeholder"):
        held = node.meta.get("val")
        if node.name in captured.constants:
            inputs[node.name] = constant(builder, captured.constants[node.name])
        elif isinstance(held, torch.Tensor):
            inputs[node.name] = builder.input(node.name, onnx_type(held.dtype), held.shape)
    made: dict[fx.Node, Any] = {}
    translate(captured.graph_module, builder, inputs, made)
    values = {}
    for node, value in made.items():
        if isinstance(value, ir.Value) and value.producer() is not None:
            if not value.is_graph_output():
                builder.graph.outputs.append(value)
            values[node] = value
    return values, builder.model()
