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
            {n: ToySupport(reason=reason if n in self.cpu else None) for n in self.model.graph},
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


@st.composite
def switching_cases(draw: st.DrawFn, most: int = 4) -> Case:
    """Return graphs of up to ``most`` RDU nodes beside three switches from the CPU to the RDU.

    The switches are a chain of three nodes on the CPU with one on the RDU after each. All nodes read
    what any earlier one wrote, in sizes from 1 to 5.
    """
    known = [_value("x", draw(st.integers(1, 5)))]
    nodes: list[ir.Node] = []
    cpu: list[ir.Node] = []

    def add(operands: list[ir.Value], outputs: int) -> ir.Node:
        index = len(nodes)
        made = [_value(f"v{index}_{i}", draw(st.integers(1, 5))) for i in range(outputs)]
        nodes.append(ir.Node("", "Op", operands, outputs=made, name=f"n{index}"))
        known.extend(made)
        return nodes[-1]

    def add_free(count: int) -> None:
        for _ in range(count):
            operands = draw(st.lists(st.sampled_from(known), min_size=1, max_size=2))
            add(operands, draw(st.integers(1, 2)))

    free = draw(st.integers(1, most))
    last = known[0]
    for switch in range(3):
        before = draw(st.integers(0, free))
        free -= before
        add_free(before)
        last = add([last], 1).outputs[0] if switch else last
        cpu.append(add([last, draw(st.sampled_from(known))], 1))
        last = cpu[-1].outputs[0]
    end = add([last, draw(st.sampled_from(known))], 1)
    add_free(free)
    outputs = [end.outputs[0], *draw(st.lists(st.sampled_from(known), max_size=1))]
    graph = ir.Graph(known[:1], outputs, nodes=nodes, opset_imports={"": 21}, name="switching")
    return Case(ir.Model(graph, ir_version=10), tuple(cpu))


@st.composite
def chains(draw: st.DrawFn, most: int = 8) -> Case:
    """Return 5 to ``most`` RDU nodes, each of which reads the one before, some an earlier one too."""
    known = [_value("x", draw(st.integers(1, 8)))]
    nodes: list[ir.Node] = []
    for index in range(draw(st.integers(5, most))):
        operands = list(dict.fromkeys([known[-1], draw(st.sampled_from(known))]))
        known.append(_value(f"v{index}", draw(st.integers(0, 8))))
        nodes.append(ir.Node("", "Op", operands, outputs=known[-1:], name=f"n{index}"))
    graph = ir.Graph(known[:1], known[-1:], nodes=nodes, opset_imports={"": 21}, name="chain")
    return Case(ir.Model(graph, ir_version=10), ())


def needs(node: ir.Node) -> list[ir.Value]:
    """Return what a node of these graphs reads, found in another way than the code under test."""
    values = [value for value in node.inputs if value is not None]
    if "body" in node.attributes:
        values.extend(next(iter(node.attributes["body"].as_graph())).inputs)  # type: ignore[arg-type]
    return values
