"""Fingerprints: equal for equal programs, and words for the first difference."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir
import pytest
import torch
from torch import nn

from samba_onnx.errors import PefFormatError
from samba_onnx.export.programs.inference import inference_program
from samba_onnx.export.translation.builder import GraphBuilder
from samba_onnx.program.fingerprint import Fingerprint, difference, fingerprint
from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.program.program import Part, Program

FLOAT = ir.DataType.FLOAT


def program(
    operator: str = "Relu",
    shape: tuple[int, ...] = (2,),
    constant: float = 1.0,
    scope: str = "graph",
    alpha: float | None = None,
) -> Program:
    build = GraphBuilder(scope)
    x, weight = build.input("x", FLOAT, shape), build.input("weight", FLOAT, shape)
    value = build.unary(operator, build.add(x, weight), alpha=alpha)
    build.output(build.multiply(value, constant), "y")
    part = Part(SectionType.FWD, build.model())
    return Program("forward", (part,), ("x",), ("y",), {"weight": SymbolKind.WEIGHT})


def test_names_between_nodes_do_not_count() -> None:
    one, other = fingerprint(program()), fingerprint(program(scope="another"))
    assert one == other
    assert difference(one, other) == ""
    assert Fingerprint.parse(one.text()) == one
    assert len(one.text()) < 400


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (program(operator="Tanh"), "node 1 of FWD: the PEF has Relu, the model Tanh"),
        (program(constant=2.0), "node 2 of FWD: both have Mul, with other operands"),
        (program(shape=(3,)), "the PEF has input 'x' float[2]; the model has input 'x' float[3]"),
        (
            dataclasses.replace(program(), residents={"weight": SymbolKind.BUFFER}),
            "the PEF has weight 'weight' float[2]; the model has buffer",
        ),
    ],
)
def test_the_first_difference_is_named(other: Program, message: str) -> None:
    assert message in difference(fingerprint(program()), fingerprint(other))


def test_attributes_and_length_count() -> None:
    one = fingerprint(program("LeakyRelu", alpha=0.1))
    assert "both have LeakyRelu" in difference(one, fingerprint(program("LeakyRelu", alpha=0.2)))
    kind, lines = one.parts[0]
    longer = Fingerprint(one.interface, ((kind, (*lines, "Relu:0")),))
    assert difference(one, longer) == "the PEF has 4 nodes of FWD, the model 5"
    more = Fingerprint((*one.interface, "output 'z'"), one.parts)
    assert difference(one, more) == "only the model has output 'z'"
    assert difference(more, one) == "only the PEF has output 'z'"


def test_parts_that_only_the_pef_has_do_not_count() -> None:
    one = fingerprint(program())
    trained = Fingerprint((*one.interface, "argin 'lr'"), (*one.parts, ("OPT", ("Mul:0",))))
    assert difference(trained, one) == ""
    assert "the PEF has parts FWD; the model has FWD, OPT" in difference(one, trained)


@pytest.mark.parametrize("text", ["", "nonsense", "c-jqY+y=t", Fingerprint((), ()).text()[:-3]])
def test_damage_is_refused(text: str) -> None:
    with pytest.raises(PefFormatError, match="compile it again"):
        Fingerprint.parse(text)


class Sum(nn.Module):
    """Adds two results; which one is computed first makes no difference."""

    def __init__(self, *, turned: bool) -> None:
        super().__init__()
        self.turned = turned

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        results: dict[str, torch.Tensor] = {}
        for name in ("less", "more")[:: -1 if self.turned else 1]:
            results[name] = torch.tanh(x) * 2 if name == "more" else torch.sigmoid(x) - 3
        return results["less"] / results["more"]


def test_the_order_of_independent_operators_does_not_count() -> None:
    one, other = (
        fingerprint(inference_program(Sum(turned=turned).eval(), (torch.ones(2),)))
        for turned in (False, True)
    )
    assert one == other
