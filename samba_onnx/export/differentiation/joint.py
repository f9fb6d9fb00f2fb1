"""Forward and backward of a module in one functional graph of ATen operators."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from samba_onnx.errors import GradientError, InternalError, SambaError
from samba_onnx.export.capture.gradient_rules import GradientRule
from samba_onnx.export.capture.simplification import simplify
from samba_onnx.export.decomposition.dropout import Draw, Site, refuse_randomness
from samba_onnx.export.decomposition.functionalizing import is_mutated
from samba_onnx.export.decomposition.mutations import made_functional
from samba_onnx.export.differentiation.decompositions import decompositions
from samba_onnx.export.differentiation.parameter_hooks import (
    after_accumulation,
    refuse_accumulator_hooks,
    register_hooks,
)
from samba_onnx.export.differentiation.recording import ModuleTrace, OriginMarks
from samba_onnx.export.differentiation.substitution import Substitution
from samba_onnx.export.places import node_place
from samba_onnx.safety.collecting import collections_deferred
from samba_onnx.tensor.gradient_hooks import accumulation_hooks


@dataclass(frozen=True)
class Rules:
    """What the user's program does with gradients."""

    noted: Sequence[GradientRule]
    """Functions and hooks, which nodes of the exported graph refer to by number."""
    members: Mapping[str, Tensor]
    """Parameters and buffers of the module itself, with their hooks, by placeholder."""
    accumulates: bool
    """Whether gradients are added to what earlier passes left."""


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
    rules: Rules
    """What becomes of gradients on the way."""
    keeps_activations: bool = False
    """Whether the forward keeps what the backward reads, rather than what that is computed from."""


@dataclass(frozen=True)
class Joint:
    """One graph from the inputs of a module to its outputs, gradients and what it writes.

    Placeholders carry the names of what they stand for: the exported graph's placeholders, argins
    as their specification names them, ``loss 0``, ... for gradients of outputs, and ``before name``
    for what earlier passes accumulated.
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
    accumulated: Mapping[str, fx.Node]
    """What earlier passes left, by exported placeholder, for the gradients that the graph itself
    adds to it: a hook is given the sum."""


def flat_outputs(exported: ExportedProgram) -> list[Any]:
    """Return what a module returns, without nesting: nodes of its graph, or constants.

    Args:
        exported: The module.
    """
    returned: Any = exported.graph.output_node().args[0]
    specs = exported.graph_signature.output_specs
    pairs = zip(specs, returned, strict=True)
    return [value for spec, value in pairs if spec.kind is OutputKind.USER_OUTPUT]


@collections_deferred()
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
        GradientError: A loss reaches nothing to differentiate by, an operator has no gradient, or a
            hook cannot be compiled.
        ModelError: Something other than dropout draws random numbers.
    """
    # Before the trace, which would only leave such hooks out.
    for name in request.leaves.keys() & request.rules.members.keys():
        refuse_accumulator_hooks(request.rules.members[name])
    trace = _Trace(request)
    table = decompositions()
    with _quiet():
        # Tensors that the user's hooks know are not fake: they become constants, which are checked.
        traced = make_fx(
            trace, decomposition_table=table, tracing_mode="fake", _allow_non_fake_inputs=True
        )(*trace.examples)
        # The last step has nothing behind it that would mark what it traced.
        trace.marks.flush()
        trace.check_constants(traced)
        traced = made_functional(traced, table, trace.marks.replay)
        trace.marks.flush()
    refuse_randomness(traced.graph.nodes)
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
        # New examples must be of the same mode: torch does not mix two.
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
        self._summed = [leader for leader in self._leaders() if self._is_summed(leader)]
        for leader in self._summed:
            self._give(_before(leader), values[leader].shape, values[leader].dtype)
        # Of tied parameters, the first stands for all.
        self._members = [
            spec.arg.name
            for spec in request.exported.graph_signature.input_specs
            if spec.kind in (InputKind.BUFFER, InputKind.PARAMETER)
            and request.leaves.get(spec.arg.name, spec.arg.name) == spec.arg.name
        ]
        self._results: list[tuple[str, Any]] = []

    def check_constants(self, traced: fx.GraphModule) -> None:
        """Refuse tensors of the user's that are no constants, but were found outside of the graph.

        Args:
            traced: What was traced; ``get_attr`` nodes stand for tensors that hooks and functions
                know and the module does not hold.

        Raises:
            GradientError: A parameter is among them, a tensor of an earlier run, or one that a hook
                or function writes to.
        """
        for node in traced.graph.find_nodes(op="get_attr"):
            content: Any = getattr(traced, str(node.target))
            if not isinstance(content, Tensor):
                continue
            written = any(is_mutated(user, node) for user in node.users)
            user = next(iter(node.users), node)
            if written or self._known.is_member(content) or _is_empty(content):
                raise GradientError(
                    f"a hook or backward {node_place(user).phrase} "
                    + ("writes to" if written else "uses")
                    + " a tensor that the graph does not know: give it to the function as an "
                    "argument and save it with save_for_backward, or register it as a buffer"
                )

    def _is_summed(self, leader: str) -> bool:
        """Return whether the sum of a gradient and what earlier passes left is given to a hook."""
        own = self._request.rules.members.get(leader)
        return self._request.rules.accumulates and own is not None and bool(accumulation_hooks(own))

    def _give(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> None:
        with self._mode:
            self.examples.append(torch.empty(list(map(int, shape)), dtype=dtype))
        self._names.append(name)

    def __call__(self, *flat: Tensor) -> list[Tensor]:
        self.marks.begin()
        values: dict[str, Any] = {**self._fixed, **dict(zip(self._names, flat, strict=True))}
        # One leaf for all tied parameters, so that its gradient is the sum of theirs.
        leaves = {name: values[name].detach().requires_grad_() for name in self._leaders()}
        for name, leader in self._request.leaves.items():
            values[name] = leaves[leader]
        draws = {
            node: Draw(site, values[site.rate.name], values[site.seed.name])
            for node, site in self._request.sites.items()
        }
        own = self._request.rules.members
        known = Substitution((own[name], values[name]) for name in own if name in values)
        self._known = known
        graph_module = self._request.exported.graph_module
        run = ModuleTrace(graph_module, self.marks, draws, self._request.rules.noted, known)
        inputs = [
            values[node.name] for node in self._request.exported.graph.find_nodes(op="placeholder")
        ]
        # Whatever mode the caller is in.
        with torch.enable_grad():
            # A mode costs time in every call, and without rules nobody needs it.
            with known if self._request.rules.noted else contextlib.nullcontext():
                # What is written comes first among an exported graph's results.
                outputs = run.run(*inputs)[-len(flat_outputs(self._request.exported)) :]
            gradients = self._gradients(outputs, leaves, values, run, known)
        results = [("output", o) for o in outputs]
        # The module wrote into these very tensors, which have the new values now.
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
        known: Substitution,
    ) -> dict[str, Tensor]:
        losses = [outputs[index] for index in self._request.losses]
        for index, loss in zip(self._request.losses, losses, strict=True):
            if not loss.requires_grad:
                raise GradientError(run.why_constant(index))
        self.marks.hook(losses)
        own = self._request.rules.members
        for name in leaves.keys() & own.keys():
            register_hooks(own[name], leaves[name], known)
        seeds = [values[_seed(index)] for index in self._request.losses]
        try:
            # A parameter that no loss reaches is left without a gradient.
            gradients = torch.autograd.grad(losses, list(leaves.values()), seeds, allow_unused=True)
        except SambaError:
            raise
        except Exception as error:  # whatever torch or a backward of the user's raises
            raise run.refused(error) from error
        pairs = zip(leaves, gradients, strict=True)
        return {
            name: self._accumulated(name, leaves[name], gradient, values, known)
            for name, gradient in pairs
            if gradient is not None
        }

    def _accumulated(
        self,
        name: str,
        leaf: Tensor,
        gradient: Tensor,
        values: Mapping[str, Any],
        known: Substitution,
    ) -> Tensor:
        """Return a gradient after the hooks that run when it was accumulated."""
        own = self._request.rules.members.get(name)
        if own is None:
            return gradient
        if name in self._summed:
            # Before the hooks, which in torch see what has been accumulated.
            gradient = values[_before(name)] + gradient
        with torch.no_grad():
            return after_accumulation(own, leaf, gradient, known)

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
            # What has its old value still is not written at all.
            updates={name: node for name, node in updates.items() if node is not values[name]},
            gradients=_with_prefix(roles, "gradient "),
            seeds={index: values[_seed(index)] for index in self._request.losses},
            accumulated={name: values[_before(name)] for name in self._summed},
        )


def _with_prefix(roles: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {k.removeprefix(prefix): node for k, node in roles.items() if k.startswith(prefix)}


def _seed(index: int) -> str:
    return f"loss {index}"


def _is_empty(tensor: Tensor) -> bool:
    return tensor.is_meta or (isinstance(tensor, FakeTensor) and tensor.constant is None)


def _before(leaf: str) -> str:
    return f"before {leaf}"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Trace kernels that every machine has, and keep torch's warnings about tracing to ourselves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.backends.mkldnn.flags(enabled=False):
            yield
