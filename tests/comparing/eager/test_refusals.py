"""Whom a refusal names: the operator, the user's line, the type of the section."""

from __future__ import annotations

import dataclasses
import re

import onnx_ir as ir
import pytest

from samba_onnx.comparing.eager.inference import compare_with_eager
from samba_onnx.comparing.eager.refusals import refusal, refuse_unless_prepared
from samba_onnx.comparing.eager.running import feeds_of, run_part
from samba_onnx.comparing.eager.training import compare_training
from samba_onnx.errors import EngineRefusalError, ExecutionError
from samba_onnx.export.operators import registry
from samba_onnx.export.programs.inference import export_inference
from samba_onnx.export.programs.training import export_training
from samba_onnx.program.kinds import SectionType
from samba_onnx.program.program import Part
from samba_onnx.program.source_location import STACK_TRACE
from tests.comparing.eager.planted import LINE, REFUSED, batch, net


def chain(length: int) -> ir.Model:
    """Return a chain of absolute values; each node has a line of its own."""
    value = ir.val("x", ir.DataType.FLOAT, (2,))
    nodes, given = [], value
    for number in range(length):
        trace = f'  File "model.py", line {number + 1}, in forward\n    x = x.abs()\n'
        output = ir.val(f"y{number}", ir.DataType.FLOAT, (2,))
        node = ir.node("Abs", [given], outputs=[output], metadata_props={STACK_TRACE: trace})
        nodes.append(node)
        given = output
    graph = ir.Graph([value], [given], nodes=nodes, opset_imports={"": 21}, name="chain")
    return ir.Model(graph, ir_version=10)


@pytest.mark.parametrize("length", [1, 2, 7])
def test_bisection_finds_every_node(length: int) -> None:
    for culprit in range(length):
        model = chain(length)
        asked: list[int] = []

        def trial(beginning: ir.Model, culprit: int = culprit, asked: list[int] = asked) -> None:
            asked.append(len(beginning.graph))
            assert len(beginning.graph.outputs) == 1
            if len(beginning.graph) > culprit:
                raise ExecutionError("no", reason="it is too much")

        error = refusal(Part(SectionType.FWD, model), ExecutionError("no"), trial)
        assert f"operator Abs at model.py:{culprit + 1};" in str(error)
        assert error.reason == "it is too much"
        assert len(model.graph) == length
        assert len(asked) <= 6


def test_what_is_no_fault_of_one_operator_is_said_to_be_none() -> None:
    part = Part(SectionType.OPT, chain(3))
    error = refusal(part, ExecutionError("no", reason="no memory"), lambda beginning: None)
    assert re.search("no single operator of it;.* words: no memory", str(error))
    assert (error.operator, error.location, error.node) == (None, None, None)
    assert (error.section_type, error.reason) == ("OPT", "no memory")


def test_a_node_without_a_line_or_a_name_is_named_by_its_operator() -> None:
    model = chain(1)
    model.graph[0].metadata_props.clear()
    model.graph[0].name = None

    def trial(beginning: ir.Model) -> None:
        raise ExecutionError("no memory")

    error = refusal(Part(SectionType.FWD, model), ExecutionError("no"), trial)
    assert "refuses operator Abs, node '';" in str(error)
    assert "words: no memory" in str(error)
    assert (error.location, error.node, error.reason) == (None, None, "no memory")


def test_functions_of_a_model_come_with_its_first_nodes() -> None:
    model = chain(2)
    body = chain(1).graph
    model.functions[("mine", "Twice", "")] = ir.Function("mine", "Twice", graph=body, attributes=[])
    known: list[int] = []
    trial = lambda beginning: known.append(len(beginning.functions))  # noqa: E731
    refusal(Part(SectionType.FWD, model), ExecutionError("no"), trial)
    assert known
    assert set(known) == {1}


def test_an_engine_without_complaints_raises_nothing() -> None:
    refuse_unless_prepared(Part(SectionType.FWD, chain(3)))


@pytest.mark.parametrize("operator", list(REFUSED))
def test_refused_operators_are_named_with_the_line(
    operator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry._TABLE, "silu", REFUSED[operator])
    module, inputs = net().eval(), batch()
    exported = export_inference(module, inputs)
    with pytest.raises(EngineRefusalError, match=rf"FWD part.*{operator} at {LINE};") as caught:
        compare_with_eager(module, inputs, exported)
    assert caught.value.operator == operator
    assert re.fullmatch(LINE, caught.value.location or "")
    assert caught.value.node == f"net__{operator.lower()}"
    assert caught.value.section_type == "FWD"
    assert operator in caught.value.reason


@pytest.mark.parametrize("operator", list(REFUSED))
def test_refused_gradients_are_named_with_the_line_and_the_type(
    operator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry._TABLE, "silu_backward", REFUSED[operator])
    module, inputs = net(), batch()
    exported = export_training(module, inputs)
    with pytest.raises(EngineRefusalError, match=rf"BCKWD part.*{operator} at {LINE};"):
        compare_training(module, inputs, exported)


def test_an_operator_that_fails_while_it_runs_is_named() -> None:
    """Reshape is prepared whatever the sizes are that it is given."""
    x, sizes = ir.val("x", ir.DataType.FLOAT, (2, 3)), ir.val("sizes", ir.DataType.INT64, (1,))
    shaped = ir.val("shaped", ir.DataType.FLOAT, (5,))
    node = ir.node("Reshape", [x, sizes], outputs=[shaped], name="mine")
    graph = ir.Graph([x, sizes], [shaped], nodes=[node], opset_imports={"": 21}, name="reshaping")
    part = Part(SectionType.BCKWD, ir.Model(graph, ir_version=10))
    refuse_unless_prepared(part)
    feeds = {"x": x.dtype.numpy().type(0).repeat(6).reshape(2, 3)}  # type: ignore[union-attr]
    feeds["sizes"] = sizes.dtype.numpy().type(5).reshape(1)  # type: ignore[union-attr]
    with pytest.raises(EngineRefusalError, match=r"BCKWD part.*operator Reshape, node 'mine';"):
        run_part(part, feeds)


@pytest.mark.parametrize("operator", list(REFUSED))
def test_modules_without_values_are_prepared_all_the_same(
    operator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry._TABLE, "silu", REFUSED[operator])
    module, inputs = net().to("meta").eval(), batch()
    with pytest.raises(EngineRefusalError, match=f"{operator} at {LINE}"):
        compare_with_eager(module, inputs, export_inference(module, inputs))
    with pytest.raises(EngineRefusalError, match=f"{operator} at {LINE}"):
        compare_training(module, inputs, export_training(module, inputs))


def test_feeds_have_all_that_a_graph_reads() -> None:
    module, inputs = net(0.5), batch()
    exported = export_training(module, inputs)
    feeds = feeds_of(module, list(inputs), exported)
    forward = next(part for part in exported.program.parts if part.type is SectionType.FWD)
    assert {value.name for value in forward.model.graph.inputs} == set(feeds)


def test_parts_that_are_not_run_are_prepared() -> None:
    x = ir.val("x", ir.DataType.FLOAT, (2,))
    swirled = ir.val("swirled", ir.DataType.FLOAT, (2,))
    node = ir.node("Swirl", [x], outputs=[swirled])
    graph = ir.Graph([x], [swirled], nodes=[node], opset_imports={"": 21}, name="zeros")
    module, inputs = net(), batch()
    exported = export_training(module, inputs, gradient_accumulation=True)
    zeros, *others = exported.program.parts
    assert zeros.type is SectionType.ZEROGRAD
    broken = Part(zeros.type, ir.Model(graph, ir_version=10))
    program = dataclasses.replace(exported.program, parts=(broken, *others))
    with pytest.raises(EngineRefusalError, match=r"the ZEROGRAD part of.*operator Swirl"):
        compare_training(module, inputs, dataclasses.replace(exported, program=program))
