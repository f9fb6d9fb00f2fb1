"""Random graphs with random homes, for property tests of grouping and planning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from hypothesis import strategies as st

from samba_onnx.passes.targets.reasons import Reason, ReasonCode
from tests.passes.planning.plan_samples import ToyPlacement, ToySupport

FLOAT = ir.TensorType(ir.DataType.FLOAT)


@dataclass(frozen=True)
class Case:
    """A model and the nodes that must run on the CPU."""

    model: ir.Model
    cpu: tuple[ir.Node, ...]

    @property
    def placement(self) -> Any:
        """The placement that says so."""
        reason = Reason(ReasonCode.OPERATOR, "chosen by the test")
        return ToyPlacement(
            dict.fromkeys(self.cpu, reason),
            {node: ToySupport() for node in self.model.graph},
        )

    def __repr__(self) -> str:
        lines = [
            f"{'cpu' if node in self.cpu else 'rdu'} {[o.name for o in node.outputs]} <- "
            f"{[i and i.name for i in node.inputs]}"
            for node in self.model.graph
        ]
        return "\n".join([*lines, f"outputs {[v.name for v in self.model.graph.outputs]}"])


def _value(name: str, size: int) -> ir.Value:
    return ir.Value(name=name, type=FLOAT, shape=ir.Shape([size]))


def _capturing_body(name: str, captured: ir.Value) -> ir.Graph:
    inner = ir.Node("", "Neg", [captured], outputs=[_value(f"{name}_inner", 1)])
    return ir.Graph([], inner.outputs, nodes=[inner], opset_imports={"": 21}, name=f"{name}_body")


@st.composite
def cases(draw: st.DrawFn, most: int = 8) -> Case:
    """Return graphs of up to ``most`` nodes.

    Nodes read graph inputs, weights, omitted operands and values of earlier nodes, the latter also
    from inside a body; values have different sizes; outputs may be inputs, weights or repeated.
    """
    sizes = st.integers(1, 5)
    inputs = [_value(f"x{i}", draw(sizes)) for i in range(draw(st.integers(0, 2)))]
    weights = []
    for index in range(2):
        array = np.zeros(draw(sizes), np.float32)
        weight = ir.Value(name=f"w{index}", type=FLOAT, shape=ir.Shape(array.shape))
        weight.const_value = ir.tensor(array, name=weight.name)
        weights.append(weight)
    known: list[ir.Value] = [*inputs, *weights]
    nodes: list[ir.Node] = []
    cpu: list[ir.Node] = []
    for index in range(draw(st.integers(0, most))):
        operands = draw(st.lists(st.sampled_from([*known, None]), min_size=1, max_size=3))
        attributes = []
        if draw(st.integers(0, 4)) == 0:
            body = _capturing_body(f"n{index}", draw(st.sampled_from(known)))
            attributes.append(ir.AttrGraph("body", body))
        outputs = [_value(f"v{index}_{i}", draw(sizes)) for i in range(draw(st.integers(1, 2)))]
        node = ir.Node("", "Op", operands, attributes, outputs=outputs, name=f"n{index}")
        known.extend(outputs)
        nodes.append(node)
        if attributes or draw(st.booleans()):
            cpu.append(node)
    outputs = draw(st.lists(st.sampled_from(known), min_size=1, max_size=4))
    graph = ir.Graph(
        inputs, outputs, nodes=nodes, initializers=weights, opset_imports={"": 21}, name="random"
    )
    return Case(ir.Model(graph, ir_version=10), tuple(cpu))


def needs(node: ir.Node) -> list[ir.Value]:
    """Return what a node of these graphs reads, found in another way than the code under test."""
    values = [value for value in node.inputs if value is not None]
    if "body" in node.attributes:
        values.extend(next(iter(node.attributes["body"].as_graph())).inputs)  # type: ignore[arg-type]
    return values
