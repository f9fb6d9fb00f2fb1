"""Runs an exported module under automatic differentiation, and keeps track of who made what."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor, fx
from torch.autograd.graph import Node as Function
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.utils import _pytree as pytree

from samba_onnx.errors import GradientError, InternalError, ModelError, SambaError
from samba_onnx.export.capture.explanations import explained, raised_at
from samba_onnx.export.capture.gradient_rules import RULE, GradientRule
from samba_onnx.export.decomposition.dropout import Draw, applied, is_dropout
from samba_onnx.export.decomposition.functionalizing import is_written
from samba_onnx.export.decomposition.rewriting import rewritten
from samba_onnx.export.differentiation.substitution import Substitution
from samba_onnx.export.naming import operator_name, whole_operator
from samba_onnx.export.places import node_place
from samba_onnx.program.scopes import OPERATOR_KEY

BACKWARD: Final = "backward"
"""Key of a traced node's metadata: whether automatic differentiation made it."""

_CHECKS: Final = frozenset({"assert_tensor_metadata", "assert_async", "assert_scalar"})


class OriginMarks:
    """Writes onto the nodes of a graph that is being traced which exported node they belong to."""

    def __init__(self) -> None:
        self.origin: fx.Node | None = None
        self._backward = False
        self._last: fx.Node | None = None
        self._owners: dict[Function, fx.Node] = {}

    def begin(self) -> None:
        """Start at the end of the graph that is being traced now."""
        mode = get_proxy_mode()
        if mode is None:
            raise InternalError("nothing is being traced: please report this")
        self._last = next(reversed(mode.tracer.graph.nodes))

    def enter(self, origin: fx.Node, *, backward: bool = False) -> None:
        """Say what is executed from now on."""
        # What was traced so far belongs to whoever came before.
        self.flush()
        self.origin, self._backward = origin, backward

    def flush(self) -> None:
        """Mark what was traced since the last call."""
        # Nodes are a ring, which begins and ends at "root".
        while self._last is not None and self._last.next.op != "root":
            self._last = self._last.next
            if self.origin is not None:
                _mark(self._last, self.origin, self._backward)

    def replay(self, node: fx.Node) -> None:
        """Say that a node of a graph that was marked before is executed again."""
        if node.op == "placeholder":
            return
        # The replay writes another graph, of which nothing is marked yet.
        if self._last is None or self._last.graph is node.graph:
            self.begin()
        self.enter(node)

    def claim(self, result: Any, origin: fx.Node) -> None:
        """Say which exported node made tensors, and with them their steps of differentiation."""
        leaves = result if isinstance(result, tuple | list) else (result,)
        pending = [leaf.grad_fn for leaf in leaves if isinstance(leaf, Tensor)]
        while pending:
            function = pending.pop()
            # Behind a step that has an owner, all steps are owned already.
            if function is not None and function not in self._owners:
                self._owners[function] = origin
                pending += [following for following, _ in function.next_functions]

    def hook(self, losses: Sequence[Tensor]) -> None:
        """Have every step of differentiation say whose it is."""
        self.claim(losses, self.origin)  # type: ignore[arg-type]
        for function, origin in self._owners.items():
            if type(function).__name__ != "AccumulateGrad":
                function.register_prehook(functools.partial(self._step, origin))

    def _step(self, origin: fx.Node, _gradients: Any) -> None:
        self.enter(origin, backward=True)


def _mark(node: fx.Node, origin: fx.Node, backward: bool) -> None:
    """Give a traced node the place in the model of the one that it comes from."""
    modules = dict(origin.meta.get("nn_module_stack") or {})
    backward = backward or origin.meta.get(BACKWARD, False)
    # Of a backward that is differentiated again, the mark is there already.
    if backward and BACKWARD not in modules:
        path = next((path for path, _ in reversed(list(modules.values()))), "")
        step = f"{operator_name(origin)}_bwd"
        modules[BACKWARD] = (f"{path}.{step}" if path else step, step)
    node.meta[OPERATOR_KEY] = whole_operator(origin)
    node.meta["nn_module_stack"] = modules
    node.meta["stack_trace"] = origin.meta.get("stack_trace", "")
    node.meta[BACKWARD] = backward


class ModuleTrace(fx.Interpreter):
    """Executes an exported graph on tensors that are traced and differentiated.

    Operators that cannot be differentiated in a form that ONNX has are replaced on the way, and
    dropout takes its mask from the graph.
    """

    def __init__(
        self,
        graph_module: fx.GraphModule,
        marks: OriginMarks,
        draws: Mapping[fx.Node, Draw],
        rules: Sequence[GradientRule] = (),
        known: Substitution | None = None,
    ) -> None:
        super().__init__(graph_module)
        self._marks = marks
        self._draws = draws
        self._rules = rules
        self._known = known or Substitution(())
        self._node: fx.Node | None = None
        self._requiring: set[fx.Node] = set()

    def run_node(self, n: fx.Node) -> Any:
        """Execute a node, and note who made what."""
        if n.op != "call_function":
            return super().run_node(n)
        self._marks.enter(n)
        self._node = n
        try:
            result = super().run_node(n)
        except SambaError:
            raise
        except Exception as error:  # whatever torch or a function of the user's raises
            raise self.refused(error) from error
        self._marks.claim(result, n)
        if any(isinstance(t, Tensor) and t.requires_grad for t in pytree.tree_leaves(result)):
            self._requiring.add(n)
        return result

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Execute an operator, or what is in its place."""
        node = self._node
        assert node is not None
        if target is RULE:
            return self._rules[args[0]].run(args[1:], self._known)
        if isinstance(target, torch._ops.HigherOrderOperator):
            return self._nested(target, args, kwargs)
        # They return nothing, and what they check holds for the given examples.
        if operator_name(node) in _CHECKS:
            return None
        draw = self._draws.get(node)
        if is_dropout(node) and draw is not None:
            return applied(node, draw, args[0])
        rewriting = rewritten(target, args, draw)
        if rewriting is not None:
            return rewriting(*args, **kwargs)
        if target is torch.ops.aten.view.default and not is_written(node):
            # What is in an operator's place may lay its result out in another way.
            return args[0].reshape(args[1])
        if kwargs.get("device") is not None:
            # A module on the meta device is compiled for the same device as any other.
            kwargs = {**kwargs, "device": torch.device("cpu")}
        return super().call_function(target, args, kwargs)

    def _nested(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Execute a graph within the graph."""
        index = next((i for i, a in enumerate(args) if isinstance(a, fx.GraphModule)), None)
        if index is None or target.name() not in _CONTEXTS:
            raise ModelError(
                f"{target.name()} {node_place(self._node).phrase} cannot be differentiated: "  # type: ignore[arg-type]
                "training needs a module without control flow that depends on values"
            )
        inner = ModuleTrace(args[index], self._marks, self._draws, self._rules, self._known)
        with _CONTEXTS[target.name()](*args[:index]):
            return inner.run(*args[index + 1 :])

    def why_constant(self, index: int) -> str:
        """Say why an output has no gradient.

        Args:
            index: Its position among the flat outputs.
        """
        start = (
            f"output {index} is to be a loss, but it reaches no parameter that requires a gradient"
        )
        cut = self._cut(self.graph.output_node().args[0][index])  # type: ignore[index]
        if cut is None:
            return f"{start}: compute it from parameters, or name another output in loss_indices"
        if isinstance(cut.target, torch._ops.HigherOrderOperator):
            return (
                f"{start}: what is computed {node_place(_first(cut)).phrase} is under torch.no_grad"
            )
        return f"{start}: {cut.target} {node_place(cut).phrase} has no gradient"

    def _cut(self, output: Any) -> fx.Node | None:
        """Return the operator, closest to an output, that stops all gradients."""
        pending, seen = [output], set[fx.Node]()
        while pending:
            # From the front: the operator closest to the output is the one to tell of.
            node = pending.pop(0)
            if not isinstance(node, fx.Node) or node in seen:
                continue
            seen.add(node)
            # It reads what has a gradient, and nothing behind it has one.
            if any(source in self._requiring for source in node.all_input_nodes):
                return node
            pending += node.all_input_nodes
        return None

    def refused(self, error: Exception) -> ModelError:
        """Return an error in the user's words for one of torch's."""
        node = self._marks.origin
        what = "an operator"
        # What the user's function does shows in the stack, while the node is only its call.
        if node is not None and node.target is RULE:
            what = f"the function {node_place(node).phrase}, which has a backward of its own,"
            line = raised_at(error).line
            what += f" fails at {line}, and" if line else ""
        elif node is not None:
            what = f"{node.target} {node_place(node).phrase}"
        return GradientError(f"{what} cannot be differentiated: {explained(error)}")


def _first(call: fx.Node) -> fx.Node:
    """Return the first operator of the graph that a node calls."""
    owner = call.graph.owning_module
    assert owner is not None
    called = next(str(node.target) for node in call.all_input_nodes if node.op == "get_attr")
    inner = owner.get_submodule(called)
    assert isinstance(inner, fx.GraphModule)
    nodes: list[fx.Node] = list(inner.graph.nodes)
    return next(node for node in nodes if node.op == "call_function")


def _no_context(*_: Any) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def _autocast(
    device: str, dtype: torch.dtype | None, enabled: bool, cache: bool | None
) -> torch.autocast:
    # All is traced on the CPU, whatever device the program names.
    return torch.autocast("cpu", dtype, enabled, cache)


_CONTEXTS: Final[Mapping[str, Any]] = {
    "wrap_with_set_grad_enabled": torch.set_grad_enabled,
    "wrap_with_autocast": _autocast,
    "invoke_subgraph": _no_context,
}
"""What a graph within the graph is executed under, by the operator that calls it."""
