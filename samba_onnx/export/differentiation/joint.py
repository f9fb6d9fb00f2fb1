"""Forward and backward of a module in one functional graph of ATen operators."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, fx
from torch._decomp import core_aten_decompositions, decomposition_table
from torch._guards import detect_fake_mode
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

import samba_onnx.export.operators  # noqa: F401  fills the table
from samba_onnx.errors import GradientError, InternalError
from samba_onnx.export.capture.simplification import simplify
from samba_onnx.export.decomposition.dropout import Draw, Site, refuse_randomness
from samba_onnx.export.decomposition.mutations import made_functional
from samba_onnx.export.differentiation.recording import ModuleTrace, OriginMarks, where
from samba_onnx.export.operators.registry import find

aten = torch.ops.aten

# Their backward needs a comparison only, which decomposition brings to light.
_ALWAYS_DECOMPOSED: Final = frozenset({"threshold_backward"})


@dataclass(frozen=True)
class JointRequest:
    """What is to be differentiated, in terms of an exported graph."""

    exported: ExportedProgram
    leaves: Mapping[str, str]
    """Placeholders to differentiate by, each with the first placeholder of the same tensor."""
    losses: Sequence[int]
    """Positions among the flat outputs."""
    sites: Mapping[fx.Node, Site]
    """Where values are dropped."""


@dataclass(frozen=True)
class Joint:
    """One graph from the inputs of a module to its outputs, gradients and what it writes.

    Placeholders carry the names of what they stand for: the exported graph's placeholders, argins
    as their specification names them, and ``loss 0``, ... for gradients of outputs.
    """

    module: fx.GraphModule
    inputs: Mapping[str, fx.Node]
    outputs: tuple[fx.Node | None, ...]
    """The module's outputs, without nesting; None for a constant."""
    updates: Mapping[str, fx.Node]
    """New values, by the exported placeholder of the buffer or parameter that is written."""
    gradients: Mapping[str, fx.Node]
    """By exported placeholder, for those that a loss reaches."""
    seeds: Mapping[int, fx.Node]
    """Gradients of losses, by position of the output."""


def flat_outputs(exported: ExportedProgram) -> list[Any]:
    """Return what a module returns, without nesting: nodes of its graph, or constants.

    Args:
        exported: The module.
    """
    returned: Any = exported.graph.output_node().args[0]
    specs = exported.graph_signature.output_specs
    pairs = zip(specs, returned, strict=True)
    return [value for spec, value in pairs if spec.kind is OutputKind.USER_OUTPUT]


def joint_graph(request: JointRequest) -> Joint:
    """Differentiate an exported module.

    Nothing is computed: the trace runs on tensors without content.

    Args:
        request: The module, its losses, and what to differentiate by.

    Returns:
        Forward and backward, without mutation and in operators that can be written in ONNX.
        Metadata of nodes: ``stack_trace`` and ``nn_module_stack`` of the exported node that they
        come from; those of the backward carry the key ``backward``.

    Raises:
        GradientError: A loss reaches nothing to differentiate by, or an operator has no gradient.
        ModelError: Something other than dropout draws random numbers.
    """
    trace = _Trace(request)
    table = _table()
    with _quiet():
        traced = make_fx(trace, decomposition_table=table, tracing_mode="fake")(*trace.examples)
        trace.marks.flush()
        traced = made_functional(traced, table, trace.marks.replay)
        trace.marks.flush()
    refuse_randomness(traced.graph.nodes, where)
    return trace.joint(traced)


class _Trace:
    """The function that is traced, and what its flat inputs and outputs are."""

    def __init__(self, request: JointRequest) -> None:
        self._request = request
        self.marks = OriginMarks()
        self._fixed: dict[str, Any] = {}
        self._names: list[str] = []
        self.examples: list[Tensor] = []
        graph = request.exported.graph
        values = {node.name: node.meta.get("val") for node in graph.find_nodes(op="placeholder")}
        mode = detect_fake_mode(list(values.values()))
        if mode is None:
            raise InternalError("an exported graph has no examples: please report this")
        self._mode = mode
        for name, value in values.items():
            if isinstance(value, Tensor):
                self._give(name, value.shape, value.dtype)
            else:
                self._fixed[name] = value
        for site in request.sites.values():
            self._give(site.rate.name, (), torch.float32)
            self._give(site.seed.name, (), torch.int32)
        results = flat_outputs(request.exported)
        for index in request.losses:
            loss = results[index].meta["val"]
            self._give(_seed(index), loss.shape, loss.dtype)
        # Of tied parameters, the first stands for all.
        self._members = [
            spec.arg.name
            for spec in request.exported.graph_signature.input_specs
            if spec.kind in (InputKind.BUFFER, InputKind.PARAMETER)
            and request.leaves.get(spec.arg.name, spec.arg.name) == spec.arg.name
        ]
        self._results: list[tuple[str, Any]] = []

    def _give(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> None:
        with self._mode:
            self.examples.append(torch.empty(list(map(int, shape)), dtype=dtype))
        self._names.append(name)

    def __call__(self, *flat: Tensor) -> list[Tensor]:
        self.marks.begin()
        values: dict[str, Any] = {**self._fixed, **dict(zip(self._names, flat, strict=True))}
        leaves = {name: values[name].detach().requires_grad_() for name in self._leaders()}
        for name, leader in self._request.leaves.items():
            values[name] = leaves[leader]
        draws = {
            node: Draw(site, values[site.rate.name], values[site.seed.name])
            for node, site in self._request.sites.items()
        }
        run = ModuleTrace(self._request.exported.graph_module, self.marks, draws)
        inputs = [
            values[node.name] for node in self._request.exported.graph.find_nodes(op="placeholder")
        ]
        with torch.enable_grad():
            outputs = run.run(*inputs)[-len(flat_outputs(self._request.exported)) :]
        gradients = self._gradients(outputs, leaves, values, run)
        results = [("output", o) for o in outputs]
        results += [(f"update {name}", values[name]) for name in self._members if name in values]
        results += [(f"gradient {name}", g) for name, g in gradients.items()]
        self._results = [(role, isinstance(r, Tensor)) for role, r in results]
        return [r.detach() for _, r in results if isinstance(r, Tensor)]

    def _leaders(self) -> list[str]:
        return list(dict.fromkeys(self._request.leaves.values()))

    def _gradients(
        self,
        outputs: Sequence[Any],
        leaves: Mapping[str, Tensor],
        values: Mapping[str, Any],
        run: ModuleTrace,
    ) -> dict[str, Tensor]:
        losses = [outputs[index] for index in self._request.losses]
        for index, loss in zip(self._request.losses, losses, strict=True):
            if not loss.requires_grad:
                raise GradientError(run.why_constant(index))
        self.marks.hook(losses)
        seeds = [values[_seed(index)] for index in self._request.losses]
        try:
            gradients = torch.autograd.grad(losses, list(leaves.values()), seeds, allow_unused=True)
        except RuntimeError as error:
            raise run.refused(error) from error
        pairs = zip(leaves, gradients, strict=True)
        return {name: gradient for name, gradient in pairs if gradient is not None}

    def joint(self, traced: fx.GraphModule) -> Joint:
        """Name what the traced graph takes and returns."""
        placeholders = traced.graph.find_nodes(op="placeholder")
        values = dict(zip(self._names, placeholders, strict=True))
        simplify(traced.graph)
        flat = iter(pytree.tree_leaves(traced.graph.output_node().args[0]))
        results = [(role, next(flat) if is_tensor else None) for role, is_tensor in self._results]
        roles = dict(results)
        updates = _with_prefix(roles, "update ")
        return Joint(
            module=traced,
            inputs=values,
            outputs=tuple(node for role, node in results if role == "output"),
            updates={name: node for name, node in updates.items() if node is not values[name]},
            gradients=_with_prefix(roles, "gradient "),
            seeds={index: values[_seed(index)] for index in self._request.losses},
        )


def _with_prefix(roles: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {k.removeprefix(prefix): node for k, node in roles.items() if k.startswith(prefix)}


def _seed(index: int) -> str:
    return f"loss {index}"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Trace kernels that every machine has, and keep torch's warnings about tracing to ourselves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.backends.mkldnn.flags(enabled=False):
            yield


@functools.cache
def _table() -> dict[Any, Any]:
    """Return the decompositions to trace with: none of what can be written in ONNX as it is."""
    core = core_aten_decompositions()
    table = {}
    for target, decomposition in decomposition_table.items():
        if not isinstance(target, torch._ops.OpOverload):
            continue
        namespace, _, name = target._schema.name.partition("::")
        if name not in _ALWAYS_DECOMPOSED and find(namespace, name, target._overloadname):
            continue
        if target in core or name.endswith(("_backward", "_backward_data")):
            table[target] = decomposition
    for target in (
        aten._native_batch_norm_legit.default,
        aten._native_batch_norm_legit_functional.default,
        aten._native_batch_norm_legit_no_training.default,
    ):
        table.pop(target, None)
    table[aten.native_batch_norm.default] = _batch_norm
    table[aten._embedding_bag_backward.default] = _embedding_bag_backward
    table[aten._embedding_bag_per_sample_weights_backward.default] = _bag_weights_backward
    return table


def _embedding_bag_backward(
    gradient: Tensor,
    indices: Tensor,
    offsets: Tensor,
    bags: Tensor,
    sizes: Tensor,
    maxima: Tensor,
    rows: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    weights: Tensor | None,
    padding_idx: int = -1,
) -> Tensor:
    """Compute a dense gradient."""
    bags = _bags(indices, offsets, bags)
    dense = aten._embedding_bag_dense_backward.default
    result: Tensor = dense(
        gradient,
        indices,
        bags,
        sizes,
        maxima,
        rows,
        scale_grad_by_freq,
        mode,
        weights,
        padding_idx,
    )
    return result


def _bag_weights_backward(
    gradient: Tensor,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    bags: Tensor,
    mode: int,
    padding_idx: int = -1,
) -> Tensor:
    """Compute the gradient of the weights of a bag's members: what each adds to its bag."""
    bags = _bags(indices, offsets, bags)
    products = (gradient.index_select(0, bags) * weight.index_select(0, indices)).sum(1)
    return products if padding_idx < 0 else torch.where(indices == padding_idx, 0.0, products)


def _bags(indices: Tensor, offsets: Tensor, bags: Tensor) -> Tensor:
    """Return which bag each index lies in; a fast forward leaves that out."""
    if bags.numel() == indices.numel():
        return bags
    positions = torch.arange(indices.numel(), device=indices.device)
    return (positions.unsqueeze(0) >= offsets.unsqueeze(1)).sum(0) - 1


def _batch_norm(
    value: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """Normalise a batch, and say that the running statistics change, which torch's schema hides."""
    if mean is None or variance is None:
        no_stats = aten._native_batch_norm_legit.no_stats
        result: tuple[Tensor, ...] = no_stats(value, weight, bias, training, momentum, eps)
        return result
    operands = (value, weight, bias, mean, variance)
    if not training:
        result = aten._native_batch_norm_legit_no_training.default(*operands, momentum, eps)
        return result
    functional = aten._native_batch_norm_legit_functional.default
    *result, new_mean, new_variance = functional(*operands, training, momentum, eps)
    mean.copy_(new_mean)
    variance.copy_(new_variance)
    return tuple(result)
