"""The graph of ATen operators that was translated, with the tensors that it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, fx

from samba_onnx.comparing.eager.dropouts import without_dropouts
from samba_onnx.comparing.eager.roundings import wide, widened
from samba_onnx.comparing.eager.running import members_of
from samba_onnx.comparing.eager.torch_runs import FAILURES, Results, TorchRuns
from samba_onnx.comparing.expectations import Expectation, KnownResults
from samba_onnx.comparing.judge import judge
from samba_onnx.export.capture.captured_modules import PlaceholderKind
from samba_onnx.export.differentiation.joint import Joint
from samba_onnx.facts.names import gradient_name, updated_name
from samba_onnx.facts.tolerances import spacing
from samba_onnx.tensor import SambaTensor
from samba_onnx.tensor.arrays import to_array

_UNWRITTEN: Final = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
)


@dataclass(frozen=True)
class CapturedGraph:
    """A functional graph of ATen operators with what its placeholders stand for."""

    module: fx.GraphModule
    operands: Mapping[str, Any]
    """By placeholder; tensors, or values that are part of the graph."""
    constants: Mapping[str, Tensor]
    """The operands that are part of the graph."""
    results: Mapping[str, fx.Node]
    """Nodes of the results that a program has names for."""

    def run(self, change: Callable[[Tensor], Tensor]) -> dict[fx.Node, Any]:
        """Run the graph in torch; return what every node computed.

        Args:
            change: Returns the counterpart of an operand.
        """
        recording = _Recording(self.module)
        operands = [
            change(operand.detach().clone()) if isinstance(operand, Tensor) else operand
            for operand in self.operands.values()
        ]
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            recording.run(*operands)
        return recording.values

    def named(self, values: Mapping[fx.Node, Any]) -> Results:
        """Return the results of a run by their names in the program.

        Args:
            values: What ``run`` returned.
        """
        pairs = ((name, values[node]) for name, node in self.results.items())
        return {name: to_array(value) for name, value in pairs if isinstance(value, Tensor)}


class _Recording(fx.Interpreter):
    """Keeps what every node computed."""

    def __init__(self, graph_module: fx.GraphModule) -> None:
        super().__init__(graph_module, garbage_collect_values=False)
        self.values: dict[fx.Node, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        if n.target is torch.ops.samba.dropout_mask.default:  # at rate 0
            content = n.meta["val"]
            self.values[n] = torch.ones(content.shape, dtype=content.dtype)
        else:
            self.values[n] = super().run_node(n)
        if is_unwritten(n):
            # Otherwise a number that nobody computed, or what is no number, would be compared.
            self.values[n].zero_()
        return self.values[n]


def is_unwritten(node: fx.Node) -> bool:
    """Return whether an operator only takes memory, as circular padding does before it fills it.

    Args:
        node: A node of a graph of ATen operators.
    """
    name = getattr(node.target, "overloadpacket", None)
    return getattr(name, "__name__", "") in _UNWRITTEN


def captured_graph(runs: TorchRuns) -> CapturedGraph | None:
    """Return what was captured of a module: forward and backward if it trains.

    Args:
        runs: The module, its inputs, and what it was exported to; dropouts keep everything.

    Returns:
        None if the backward reads what cannot be told from outside.
    """
    captured = without_dropouts(runs.exported.captured)
    operands = dict(_operands(runs))
    joint = runs.exported.joint
    if joint is not None:
        return _joint_graph(runs, joint, operands)
    names = {path: name for name, path in runs.exported.members.items()}
    results = dict(zip(runs.exported.outputs, captured.outputs, strict=True))
    written = zip(captured.updates, captured.updated, strict=True)
    results |= {updated_name(names[path]): node for path, node in written if path in names}
    nodes = {name: node for name, node in results.items() if name and isinstance(node, fx.Node)}
    return CapturedGraph(captured.graph_module, operands, captured.constants, nodes)


def _operands(runs: TorchRuns) -> Iterator[tuple[str, Any]]:
    """Yield what the placeholders of the forward graph stand for, by name."""
    members = members_of(runs.module)
    left = iter(runs.leaves)
    captured = runs.exported.captured
    for placeholder in captured.placeholders:
        if placeholder.kind in (PlaceholderKind.INPUT, PlaceholderKind.STATIC):
            value = next(left)
        elif placeholder.kind is PlaceholderKind.CONSTANT:
            value = captured.constants[placeholder.name]
        else:
            value = members[placeholder.qualified]
        if isinstance(value, SambaTensor):
            value = value.torch_tensor()
        yield placeholder.name, value.detach() if isinstance(value, Tensor) else value


def _joint_graph(
    runs: TorchRuns, joint: Joint, operands: Mapping[str, Any]
) -> CapturedGraph | None:
    """Return forward and backward with what they read."""
    exported = runs.exported
    argins = {argin.name for argin in exported.program.argins}
    seeds = set(joint.seeds.values())
    roles = {
        placeholder.exported: operands[placeholder.name]
        for placeholder in exported.captured.placeholders
    }
    known: dict[str, Any] = {}
    for role, node in joint.inputs.items():
        content = node.meta["val"]
        if node in seeds:
            known[node.name] = torch.ones(content.shape, dtype=content.dtype)
        elif role in roles:
            known[node.name] = roles[role]
        elif role in argins or not node.users:
            known[node.name] = torch.zeros(content.shape, dtype=content.dtype)
        else:
            return None
    order = joint.module.graph.find_nodes(op="placeholder")
    constants = {
        joint.inputs[placeholder.exported].name: exported.captured.constants[placeholder.name]
        for placeholder in exported.captured.placeholders
        if placeholder.kind is PlaceholderKind.CONSTANT and placeholder.exported in joint.inputs
    }
    nodes = {node.name: known[node.name] for node in order}
    return CapturedGraph(joint.module, nodes, constants, _joint_results(runs, joint))


def _joint_results(runs: TorchRuns, joint: Joint) -> dict[str, fx.Node]:
    """Return the nodes of outputs, new values and gradients by their names."""
    exported = runs.exported
    symbols = {path: name for name, path in exported.members.items()}
    names = {
        placeholder.exported: symbols[placeholder.qualified]
        for placeholder in exported.captured.placeholders
        if placeholder.qualified in symbols and placeholder.kind is not PlaceholderKind.INPUT
    }
    outputs = zip(exported.outputs, joint.outputs, strict=True)
    results = {name: node for name, node in outputs if name is not None and node is not None}
    results |= {updated_name(names[p]): node for p, node in joint.updates.items() if p in names}
    gradients = joint.gradients.items()
    return results | {gradient_name(names[p]): node for p, node in gradients if p in names}


def _doubles(runs: TorchRuns, results: Results) -> KnownResults:
    """Return results in float64 as the judge takes them: they move by roundings of that type."""
    unit = spacing("float64")
    return KnownResults(results, unit, partial(runs.moved, unit=unit))


def is_faithful(graph: CapturedGraph, runs: TorchRuns) -> bool | None:
    """Return whether a captured graph computes in float64 what the module does.

    In float64 nothing is lost to roundings: what differs was captured, decomposed or differentiated
    wrongly.

    Args:
        graph: What was captured of the module.
        runs: Runs of the module.

    Returns:
        None if one of them does not run in float64.
    """
    if runs.exact is None:
        return None
    try:
        with widened():
            results = graph.named(graph.run(wide))
    except FAILURES:
        return None
    names = results.keys() & runs.exact.keys()
    doubles = _doubles(runs, {name: runs.exact[name] for name in names})
    verdicts = judge({name: results[name] for name in names}, Expectation.of_torch(doubles))
    return all(verdict.passed for verdict in verdicts)
