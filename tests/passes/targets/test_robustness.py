"""Whatever a node looks like, a target answers and does not raise."""

from __future__ import annotations

import time
from collections.abc import Iterable

import onnx
import onnx_ir as ir
from hypothesis import given, settings
from hypothesis import strategies as st

from samba_onnx.passes.targets import Support, load_target
from samba_onnx.passes.targets.reasons import ReasonCode
from tests.backend_cases import BackendCase, disk_cases, node_cases
from tests.passes.targets.samples import parse

TARGET = load_target("sn40l")
OPERATORS = sorted({row.op_type for row in (*TARGET.rows, *TARGET.unsupported) if not row.domain})
FLOAT = ir.TensorType(ir.DataType.FLOAT)

types = st.sampled_from(
    [
        None,
        *(ir.TensorType(dtype) for dtype in ir.DataType),
        *[FLOAT] * 20,
        ir.SequenceType(FLOAT),
        ir.OptionalType(ir.SequenceType(FLOAT)),
        ir.SparseTensorType(ir.DataType.FLOAT),
        ir.SequenceType(ir.TensorType(ir.DataType.UNDEFINED)),
    ]
)
dims = st.one_of(st.integers(0, 4), st.sampled_from(["n", "a b", None]))
shapes = st.one_of(st.none(), st.lists(dims, max_size=6))
constants = st.sampled_from(
    [None, None, ir.tensor([1]), ir.tensor(0.5), ir.tensor([], ir.DataType.INT64)]
)
attribute_values = st.one_of(
    st.integers(-9, 9),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.integers(-2, 9), max_size=3),
    st.just(ir.tensor([1.0])),
)
attribute_names = st.sampled_from(
    ["axis", "largest", "mode", "dilations", "reduction", "exclusive", "training_mode", "value"]
)


@st.composite
def values(draw: st.DrawFn) -> ir.Value | None:
    if draw(st.integers(0, 9)) == 0:
        return None
    shape = draw(shapes)
    return ir.Value(
        name=draw(st.sampled_from(["x", None])),
        type=draw(types),
        shape=None if shape is None else ir.Shape(shape),
        const_value=draw(constants),
    )


@given(
    operator=st.sampled_from([*OPERATORS, "Nonsense"]),
    domain=st.sampled_from(["", "", "", "ai.onnx", "ai.onnx.ml", "com.example"]),
    inputs=st.lists(values(), max_size=5),
    outputs=st.lists(values().filter(bool), max_size=3),
    attributes=st.dictionaries(attribute_names, attribute_values, max_size=2),
    version=st.sampled_from([None, 1, 7, 18, 21, 10**6]),
)
@settings(max_examples=200, deadline=None, database=None, derandomize=True)
def test_any_node_has_an_answer(
    operator: str,
    domain: str,
    inputs: list[ir.Value | None],
    outputs: list[ir.Value],
    attributes: dict[str, object],
    version: int | None,
) -> None:
    listed = [
        ir.Attr(name, ir.AttributeType.TENSOR, value)
        if isinstance(value, ir.Tensor)
        else ir.convenience.convert_attribute(name, value or 0)  # type: ignore[arg-type]
        for name, value in attributes.items()
    ]
    fresh = [ir.Value(name=v.name, type=v.type, shape=v.shape) for v in outputs]
    node = ir.Node(domain, operator, inputs, listed, outputs=fresh, version=version)

    check_answer(TARGET.support(node))
    assert all(node.inputs[position] is not None for position in TARGET.static_inputs(node))


def check_answer(support: Support) -> None:
    """An answer is either a reason in one line or evidence."""
    if support.reason is None:
        assert support.evidence in ("documented", "observed", "assumed")
        return
    assert support.reason.code in ReasonCode
    assert support.reason.message
    assert "\n" not in support.reason.message + support.reason.hint
    assert support.evidence is None


def check_cases(cases: Iterable[BackendCase]) -> int:
    nodes = 0
    for case in cases:
        model = ir.serde.deserialize_model(case.model)
        for graph in (model.graph, *(function.graph for function in model.functions.values())):
            for node in ir.traversal.RecursiveGraphIterator(graph):
                check_answer(TARGET.support(node))
                TARGET.static_inputs(node)
                nodes += 1
    return nodes


def test_every_node_of_the_backend_suite_on_disk_has_an_answer() -> None:
    assert check_cases(disk_cases()) > 1000


def test_every_node_of_the_backend_suite_has_an_answer() -> None:
    assert check_cases(node_cases()) > 5000


def test_the_table_knows_the_operators_of_the_backend_suite_by_version() -> None:
    """No model of the suite at a supported opset is refused for its operators' versions."""
    refused = [
        node.op_type
        for case in disk_cases()
        if TARGET.opsets[0] <= case.opset <= TARGET.opsets[1]
        for node in ir.serde.deserialize_model(case.model).graph
        if (reason := TARGET.support(node).reason) and reason.code is ReasonCode.VERSION
    ]

    assert refused == []


def test_1500_nodes_take_less_than_50_milliseconds() -> None:
    body = " ".join(f"x{i + 1} = Add(x{i}, w)" for i in range(1500))
    model = parse("float[2,3] x0", "float[2,3] x1500", body, "float[3] w = {1, 2, 3}")
    for value in (output for node in model.graph for output in node.outputs):
        value.type, value.shape = FLOAT, ir.Shape([2, 3])
    nodes = list(model.graph)

    seconds = []
    for _ in range(5):
        start = time.process_time()
        refused = [node for node in nodes if TARGET.support(node).reason]
        seconds.append(time.process_time() - start)

    assert refused == []
    assert min(seconds) < 0.05


def test_no_operator_name_is_misspelt() -> None:
    unknown = {name for name in OPERATORS if not onnx.defs.has(name)}

    # Only operators that the installed onnx is too old for may be missing.
    assert onnx.defs.onnx_opset_version() < TARGET.opsets[1] or not unknown
