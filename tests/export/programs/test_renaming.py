"""Names of outputs: those of an ONNX model, and those that no other program has."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from samba_onnx.export.programs.renaming import with_free_outputs, with_output_names
from samba_onnx.export.translation.builder import GraphBuilder
from samba_onnx.facts.names import gradient_name
from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.program.program import Part, Program


def program() -> Program:
    """y = relu(x + w) with the gradient that its loss y starts from; an inner value is named h."""
    build = GraphBuilder("graph")
    x, w = (build.input(name, ir.DataType.FLOAT, (2,)) for name in ("x", "w"))
    build.input(gradient_name("y"), ir.DataType.FLOAT, (2,))
    inner = build.add(x, w)
    inner.name = "h"
    build.output(build.unary("Relu", inner), "y")
    return Program(
        "forward",
        (Part(SectionType.FWD, build.model()),),
        ("x",),
        ("y",),
        {"w": SymbolKind.WEIGHT, gradient_name("y"): SymbolKind.GRADIENT},
    )


def values(renamed: Program) -> tuple[set[str | None], set[str | None]]:
    """Names of the ends of the only graph, and of what is between them."""
    graph = renamed.parts[0].model.graph
    ends = {value.name for value in (*graph.inputs, *graph.outputs)}
    return ends, {value.name for node in graph for value in node.outputs} - ends


def test_an_output_gets_its_name_and_its_gradient_too() -> None:
    renamed = with_output_names(program(), ["logits"])
    assert renamed.outputs == ("logits",)
    assert set(renamed.residents) == {"w", gradient_name("logits")}
    assert values(renamed)[0] == {"x", "w", "logits", gradient_name("logits")}


@pytest.mark.parametrize("names", [None, [], ["one", "two"], ["x"], ["w"]])
def test_names_that_do_not_fit_change_nothing(names: list[str] | None) -> None:
    assert with_output_names(program(), names).outputs == ("y",)


def test_a_value_between_nodes_gives_way() -> None:
    renamed = with_output_names(program(), ["h"])
    assert renamed.outputs == ("h",)
    ends, inner = values(renamed)
    assert "h" in ends
    assert "h" not in inner


def test_outputs_of_several_programs_have_names_of_their_own() -> None:
    first = with_free_outputs(program(), ())
    second = with_free_outputs(program(), {"y"})
    third = with_free_outputs(program(), {"y", "y_1"}, "left")
    assert (first.outputs, second.outputs, third.outputs) == (("y",), ("y_1",), ("left__y",))
    assert "y_1" in values(second)[0]
