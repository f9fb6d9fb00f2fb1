"""Users' own operators: written as their programs say, compared with their kernels, refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

import samba_onnx as samba
from samba_onnx import translations
from samba_onnx.compiling.torch.torch_programs import (
    Training,
    forward_program,
    recorded_program,
)
from samba_onnx.errors import ExportMismatchError, GradientError, ModelError, UsageError
from samba_onnx.sessions import SESSION


@torch.library.custom_op("tests::swish", mutates_args=())
def swish(x: Tensor, beta: float = 1.5) -> Tensor:
    numbers = x.detach().numpy()
    return torch.from_numpy(numbers / (1 + np.exp(-np.float32(beta) * numbers)))


@swish.register_fake
def _(x: Tensor, beta: float = 1.5) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("tests::halves", mutates_args=())
def halves(x: Tensor) -> tuple[Tensor, Tensor]:
    return x / 2, x.sum(1)


@halves.register_fake
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty(x.shape[0])


@torch.library.custom_op("tests::scale_", mutates_args=("x",))
def scale_(x: Tensor) -> None:
    x.mul_(2)


class Net(nn.Module):
    def __init__(self, function: Callable[[Tensor], Any] = swish) -> None:
        super().__init__()
        self.function = function
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        return self.function(self.layer(x))


INPUTS = {"x": samba.from_torch_tensor(torch.randn(2, 4), name="x")}


@pytest.fixture(autouse=True)
def no_rules() -> Iterator[None]:
    """Leave no rule behind."""
    SESSION.reset()
    yield
    for operator in (swish, halves, "tests::swish.default"):
        translations.unregister(operator)
    SESSION.reset()


def write_swish(context: translations.TranslationContext, x: ir.Value, beta: float) -> ir.Value:
    return context.op("Mul", x, context.op("Sigmoid", context.op("Mul", x, beta)))


@pytest.mark.parametrize("named", [swish, "tests::swish", torch.ops.tests.swish.default])
def test_a_translation_computes_what_the_kernel_computes(named: Any, tmp_path: Path) -> None:
    translations.translates(named)(write_swish)
    model = Net()
    path = SESSION.compile(model, INPUTS, output=tmp_path / "m.pef")
    outputs = samba.utils.trace_graph(model, INPUTS, pef=path)
    fresh = samba.randn(2, 4, name="x")
    (result,) = SESSION.run(fresh, outputs)
    # A product of four terms and a sigmoid, in float32.
    torch.testing.assert_close(result.torch(), model(fresh.torch()).detach(), rtol=1e-5, atol=1e-6)
    translations.unregister(named)


def test_several_results_from_nodes_that_are_built(tmp_path: Path) -> None:
    @translations.translates(halves)
    def write(context: translations.TranslationContext, x: ir.Value) -> list[ir.Value]:
        one, other = context.ops("Split", x, [1, 2], outputs=2, axis=1)
        total = context.op("ReduceSum", context.build.concat([one, other], 1), [1], keepdims=0)
        assert [spec.shape for spec in context.results if spec] == [(2, 3), (2,)]
        return [context.op("Mul", x, 0.5), total]

    program = forward_program(Net(halves), INPUTS, check=True)
    (part,) = program.parts
    assert [node.op_type for node in part.model.graph] == [
        *("Gemm", "Split", "Concat", "ReduceSum", "Mul")
    ]


def test_a_decomposition_is_traced() -> None:
    translations.decomposes(swish)(lambda x, beta: x * torch.sigmoid(beta * x))
    (part,) = forward_program(Net(), INPUTS, check=True).parts
    assert {"Sigmoid", "Mul"} <= {node.op_type for node in part.model.graph}


WRITTEN: dict[str, tuple[Callable[..., Any], str]] = {
    "too many": (
        lambda context, x, beta: [x, x],
        r"test_custom_operators\.py:\d+ returned 2 values, but the operator has 1 result: return a list",
    ),
    "none": (
        lambda context, x, beta: None,
        r"returned NoneType as result 0, which is FLOAT \[2, 3\] by the operator's fake kernel",
    ),
    "another type": (
        lambda context, x, beta: context.build.cast(x, ir.DataType.INT64),
        r"returned INT64 \[2, 3\] as result 0, which is FLOAT \[2, 3\] by the operator's fake kernel",
    ),
    "another shape": (
        lambda context, x, beta: context.op("Transpose", x),
        r"returned FLOAT \[3, 2\] as result 0, which is FLOAT \[2, 3\] by the operator's fake kernel",
    ),
    "an error": (
        lambda context, x, beta: context.unknown(x),
        r"its translation failed at test_custom_operators\.py:\d+: AttributeError: .*'unknown'",
    ),
    "too few parameters": (
        lambda context, x: x,
        r"its translation failed at test_custom_operators\.py:\d+: TypeError: .*3 were given",
    ),
    "an operator that ONNX lacks": (
        lambda context, x, beta: context.op("Swish9", x),
        r"cannot be used: operator Swish9 of ONNX cannot be written so: No schema",
    ),
    "numbers alone": (
        lambda context, x, beta: context.op("Mul", 2.0, beta),
        r"operator Mul of ONNX is given numbers only: give it a tensor",
    ),
    "a value of no graph as an operand": (
        lambda context, x, beta: context.op(
            "Mul", x, ir.Value(name="y", type=x.type, shape=x.shape)
        ),
        r"operator Mul of ONNX is given a value of another graph: a translation computes with what",
    ),
    "a value of no graph as a result": (
        lambda context, x, beta: ir.Value(name="y", type=x.type, shape=x.shape),
        r"returned a value of another graph as result 0: compute it for each use",
    ),
    "sizes that depend on values": (
        lambda context, x, beta: context.op("NonZero", x),
        r"operator NonZero of ONNX has a result whose sizes depend on values",
    ),
}
COMPUTED: dict[str, tuple[Callable[..., Any], str]] = {
    "another shape": (
        lambda x, beta: x.sum(),
        r"its decomposition at .* returned FLOAT \[\] as result 0, which is FLOAT \[2, 3\]",
    ),
    "an error": (
        lambda x, beta: x @ x,
        r"its decomposition failed at test_custom_operators\.py:\d+: RuntimeError: a and b must",
    ),
    "itself": (
        lambda x, beta: swish(x, beta),
        r"cannot be used: it calls the operator itself: let it compute with others",
    ),
}


@pytest.mark.parametrize("mistake", WRITTEN)
def test_translations_that_do_not_fit(mistake: str) -> None:
    function, sentence = WRITTEN[mistake]
    translations.translates(swish)(function)
    with pytest.raises(
        ModelError, match=r"^tests\.swish\.default at .*: its translation"
    ) as caught:
        forward_program(Net(), INPUTS)
    caught.match(sentence)


@pytest.mark.parametrize("mistake", COMPUTED)
def test_decompositions_that_do_not_fit(mistake: str) -> None:
    function, sentence = COMPUTED[mistake]
    translations.decomposes(swish)(function)
    with pytest.raises(ModelError, match=sentence):
        forward_program(Net(), INPUTS)


def test_decompositions_that_come_back_to_an_operator() -> None:
    translations.decomposes(swish)(lambda x, beta: halves(x)[0] * beta)
    translations.decomposes(halves)(lambda x: [swish(x, 0.5), x.sum(1)])
    with pytest.raises(ModelError, match="it calls the operator itself, by way of") as caught:
        forward_program(Net(), INPUTS)
    assert str(caught.value).endswith(
        "by way of tests.swish.default, tests.halves.default: let it compute with others"
    )


def test_other_numbers_than_those_of_the_kernel() -> None:
    translations.translates(swish)(lambda context, x, beta: context.op("Sigmoid", x))
    with pytest.raises(ExportMismatchError, match=r"first operator that differs is tests\.swish"):
        forward_program(Net(), INPUTS, check=True)


def test_an_operator_without_a_translation_is_named() -> None:
    with pytest.raises(ModelError) as caught:
        forward_program(Net(), INPUTS)
    assert "tests.swish.default at " in str(caught.value)
    assert (
        "has no translation: register one, with "
        "@samba_onnx.translations.translates('tests::swish'), in the program or in a file that "
        "--translations names"
    ) in str(caught.value)
    assert caught.value.operator == "tests.swish.default"


def test_an_operator_that_writes_into_its_arguments() -> None:
    def written(x: Tensor) -> Tensor:
        x = x.clone()
        scale_(x)
        return x

    with pytest.raises(ModelError, match=r"is tests\.scale_\.default, which writes into its arg"):
        forward_program(Net(written), INPUTS)


def test_an_operator_without_a_gradient_is_not_trained() -> None:
    translations.translates(swish)(write_swish)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(
        GradientError, match=r"tests\.swish\.default.*no autograd formula was regis"
    ):
        recorded_program(model, INPUTS, [optimizer], Training())


def first(context: translations.TranslationContext, x: ir.Value, beta: float) -> ir.Value:
    return x


def second(context: translations.TranslationContext, x: ir.Value, beta: float) -> ir.Value:
    return x


def test_one_rule_for_one_operator() -> None:
    translations.translates(swish)(first)
    translations.translates(swish)(first)  # as a cell of a notebook that is executed again
    place = f"test_custom_operators.py:{first.__code__.co_firstlineno}"
    with pytest.raises(UsageError, match=rf"tests::swish has a translation at {place} already"):
        translations.translates("tests::swish")(second)
    with pytest.raises(UsageError, match=r"and the decomposition at .* would be another one"):
        translations.decomposes(swish)(second)
    translations.unregister(swish)
    translations.translates(swish)(second)


def test_two_functions_without_a_name_are_two() -> None:
    @translations.translates(swish)
    def _(context: translations.TranslationContext, x: ir.Value, beta: float) -> ir.Value:
        return x

    with pytest.raises(UsageError, match=r"tests::swish has a translation at .* already"):

        @translations.translates(swish)
        def _(context: translations.TranslationContext, x: ir.Value, beta: float) -> ir.Value:
            return x


@pytest.mark.parametrize(
    ("operator", "sentence"),
    [
        ("aten::relu", "aten::relu .* is not needed: samba-onnx translates that operator itself"),
        ("tests::swash", "torch has no operator 'tests::swash': define it before its translation"),
        ("tests::swish.out", "torch has no operator 'tests::swish.out'"),
        ("tests::swish.", "torch has no operator 'tests::swish.'"),
        ("swish", "torch has no operator 'swish': .* names are as 'mylib::swish'"),
        (3, "an operator is int; give what torch.library.custom_op returned, or its name"),
    ],
)
def test_names_of_no_operator_to_translate(operator: Any, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        translations.translates(operator)(first)
