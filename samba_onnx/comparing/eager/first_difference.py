"""Which operator of an exported graph is the first whose translation computes something else.

Every operator is computed by itself, from the very operands that torch had: so no error of another
one gets in, and what a ReLU or a maximum decides is decided alike.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from samba_onnx.comparing.eager.captured_graphs import CapturedGraph, is_unwritten
from samba_onnx.comparing.eager.roundings import Roundings, wide, widened
from samba_onnx.comparing.eager.torch_runs import FAILURES, Results
from samba_onnx.comparing.expectations import Expectation
from samba_onnx.comparing.judge import judge
from samba_onnx.comparing.walk import Difference, Walk
from samba_onnx.export.translation.builder import GraphBuilder, element, sizes
from samba_onnx.export.translation.element_types import onnx_type
from samba_onnx.export.translation.graphs import constant, translate
from samba_onnx.facts.dtypes import dtype_name
from samba_onnx.facts.tolerances import TIMES_ALLOWED, spacing
from samba_onnx.runtime.engine.evaluation import evaluate
from samba_onnx.tensor.arrays import to_array


def first_difference(
    graph: CapturedGraph, *, whole_numbers: bool = True
) -> Difference[fx.Node] | None:
    """Return the first operator of a captured graph that is translated wrongly.

    Args:
        graph: The graph, with values of all operands.
        whole_numbers: Whether to compare indices and booleans, which may differ where a sort or a
            search has a choice among equals.

    Returns:
        None if each operator by itself is near enough.

    Raises:
        ExecutionError: The engine cannot show the results of all operators at once.
    """
    values = graph.run(lambda tensor: tensor)
    isolated = _Isolated(graph, values)
    computed = evaluate(ir.to_proto(isolated.model), isolated.feeds)
    # Of a sum that cancels torch's few roundings may be small by luck; a wrong one is off by more.
    walk = Walk[fx.Node](TIMES_ALLOWED)
    for node, results in isolated.results.items():
        runs = _OperatorRuns(node, values, tuple(results))
        if not whole_numbers:
            runs = _OperatorRuns(node, values, tuple(i for i in results if runs.is_floating(i)))
        ours = {str(index): computed[name] for index, name in results.items()}
        walk.take(node, judge(ours, Expectation.of_torch(runs)))
        if walk.first is not None:
            break
    return walk.first


class _Isolated:
    """The graph once more, each of whose operators reads graph inputs and writes graph outputs."""

    def __init__(self, graph: CapturedGraph, values: Mapping[fx.Node, Any]) -> None:
        self._build = GraphBuilder("operators")
        self.feeds: dict[str, NDArray[Any]] = {}
        self.results: dict[fx.Node, dict[int, str]] = {}
        """Names of the results of every operator, by their positions."""
        translated: dict[fx.Node, Any] = {}
        translate(graph.module, self._build, self._operands(graph), translated)
        for node, results in translated.items():
            if node.op == "call_function" and not (
                node.target is operator.getitem or is_unwritten(node)
            ):
                for index, value in enumerate(_listed(results)):
                    self._isolate(node, index, value, _listed(values[node]))
        self.model = self._build.model()

    def _operands(self, graph: CapturedGraph) -> dict[str, ir.Value]:
        inputs = {}
        for name, operand in graph.operands.items():
            if name in graph.constants:
                inputs[name] = constant(self._build, graph.constants[name])
            elif isinstance(operand, Tensor):
                inputs[name] = self._build.input(name, onnx_type(operand.dtype), operand.shape)
                self.feeds[name] = to_array(operand)
        return inputs

    def _isolate(self, node: fx.Node, index: int, value: Any, torchs: Sequence[Any]) -> None:
        """Let those who read a result read torch's instead, and return our own."""
        if not isinstance(value, ir.Value) or value.producer() is None or value.is_graph_output():
            return
        if not isinstance(torchs[index], Tensor):
            return
        name = self._build.unique(f"{value.name}__torch")
        fed = ir.Value(name=name, type=ir.TensorType(element(value)), shape=ir.Shape(sizes(value)))
        self._build.graph.inputs.append(fed)
        self.feeds[name] = to_array(torchs[index])
        value.replace_all_uses_with(fed)
        self._build.graph.outputs.append(value)
        self.results.setdefault(node, {})[index] = value.name or ""


def _listed(results: Any) -> Sequence[Any]:
    return results if isinstance(results, tuple | list) else [results]


@dataclass(frozen=True)
class _OperatorRuns:
    """One operator in torch, on the operands that it had when the graph ran."""

    node: fx.Node
    values: Mapping[fx.Node, Any]
    indices: tuple[int, ...]
    """Positions of the results that are compared."""

    @property
    def native(self) -> Results:
        """What it computed when the graph ran."""
        return self._named(self.values[self.node])

    @property
    def exact(self) -> Results | None:
        """What it computes in float64."""
        return self._computed(wide)

    @property
    def unit(self) -> float:
        """One rounding of the coarsest type among its operands and results."""
        operands = [self.values[node] for node in self.node.all_input_nodes]
        tensors = pytree.tree_leaves([operands, self.values[self.node]])
        units = [spacing(dtype_name(t.dtype)) for t in tensors if isinstance(t, Tensor)]
        return max(units, default=0.0)

    def moved(self, seed: int, amplitude: float) -> Results | None:
        """Return what it computes after its operands moved by roundings."""
        roundings = Roundings(amplitude * self.unit, seed)
        return self._computed(lambda tensor: roundings.moved(wide(tensor)))

    def is_floating(self, index: int) -> bool:
        """Return whether a result is not made of whole numbers."""
        tensor = _listed(self.values[self.node])[index]
        return bool(tensor.is_floating_point() or tensor.is_complex())

    def _named(self, results: Any) -> Results:
        return {str(index): to_array(_listed(results)[index]) for index in self.indices}

    def _computed(self, change: Callable[[Tensor], Tensor]) -> Results | None:
        if not isinstance(self.node.target, torch._ops.OpOverload):
            return None

        def read(node: fx.Node) -> Any:
            leaves = self.values[node]
            return pytree.tree_map(lambda x: change(x) if isinstance(x, Tensor) else x, leaves)

        args, keywords = fx.node.map_arg((self.node.args, dict(self.node.kwargs)), read)
        try:
            with widened(), torch.no_grad():
                return self._named(self.node.target(*args, **keywords))
        except FAILURES:
            return None
