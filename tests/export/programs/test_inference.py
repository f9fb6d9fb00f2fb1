from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from transformers.modeling_outputs import BaseModelOutput

import models
from samba_onnx.errors import ModelError, UsageError
from samba_onnx.export.capture.precision import computing_in
from samba_onnx.export.programs.inference import Exported, export_inference, inference_program
from samba_onnx.facts.precisions import Precision
from samba_onnx.program.fingerprint import difference, fingerprint
from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.program.source_location import source_location
from samba_onnx.tensor import SambaTensor, from_torch_model_, from_torch_tensor
from tests.export.exporting import check, outputs_of


class Small(nn.Module):
    """A linear layer and a buffer."""

    offset: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.unused = nn.Linear(2, 2)
        self.register_buffer("offset", torch.arange(3.0))

    def forward(self, value: Tensor) -> Tensor:
        return torch.relu(self.layer(value)) + self.offset


class Calls(nn.Module):
    """Calls a function of its arguments."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **keywords: Any) -> Any:
        return self.function(*args, **keywords)


@pytest.mark.parametrize("name", models.MODELS)
def test_example_models_compute_what_torch_does(name: str) -> None:
    example = models.build(name, "tiny")
    check(example.module, example.inputs, relative=1e-5)


def test_program_of_a_module() -> None:
    program = inference_program(Small(), (torch.ones(2, 4),), name="graph")
    assert program.name == "graph"
    assert [part.type for part in program.parts] == [SectionType.FWD]
    assert program.inputs == ("value",)
    assert program.outputs == ("small__add__outputs__0",)
    with computing_in(Precision.BF16):
        narrow = inference_program(Small(), (torch.ones(2, 4),), name="graph")
    assert narrow.outputs == program.outputs
    assert dict(program.residents) == {
        "small__layer__weight": SymbolKind.WEIGHT,
        "small__layer__bias": SymbolKind.WEIGHT,
        "small__offset": SymbolKind.BUFFER,
    }
    assert not program.regions
    assert not program.argins


def test_nodes_are_named_after_modules_and_know_the_line() -> None:
    graph = inference_program(Small(), (torch.ones(2, 4),)).parts[0].model.graph
    names = [node.name for node in graph]
    assert names == ["small__layer__gemm", "small__relu", "small__add"]
    assert all(source_location(node).startswith("test_inference.py:") for node in graph)


def test_prefix_leads_all_names() -> None:
    program = inference_program(Small(), (torch.ones(2, 4),), prefix="left")
    assert program.outputs == ("left__small__add__outputs__0",)
    assert all(name.startswith("left__small__") for name in program.residents)


def test_names_of_samba_tensors_are_kept() -> None:
    module = Small()
    from_torch_model_(module, "outer")
    given = from_torch_tensor(torch.ones(2, 4), name="features")
    program = inference_program(module, (given,), prefix="outer")
    assert program.inputs == ("features",)
    assert set(program.residents) == {
        "outer__small__layer__weight",
        "outer__small__layer__bias",
        "outer__small__offset",
    }


def test_input_names_can_be_given() -> None:
    module = Calls(lambda one, other: one + other)
    given = (torch.ones(2), torch.ones(2))
    assert inference_program(module, given, input_names=["a", "b"]).inputs == ("a", "b")
    with pytest.raises(UsageError, match="1 input names were given for 2 tensors"):
        inference_program(module, given, input_names=["a"])


def test_converted_module_computes_the_same() -> None:
    module = Small()
    from_torch_model_(module)
    exported = export_inference(module, (torch.randn(2, 4),))
    plain = Small()
    plain.load_state_dict(module.state_dict())
    assert fingerprint(exported.program) == fingerprint(
        export_inference(plain, (torch.randn(2, 4),)).program
    )


def test_nested_inputs_are_named_after_the_way_to_them() -> None:
    def combine(pair: Any, table: Any, nothing: None, scale: int, *, flag: bool) -> Tensor:
        assert nothing is None
        total: Tensor = pair[0] * scale + table["left"] - pair[1][0]
        return total if flag else -total

    class Nested(nn.Module):
        def forward(
            self, pair: Any, table: Any, nothing: None, scale: int, *, flag: bool
        ) -> Tensor:
            return combine(pair, table, nothing, scale, flag=flag)

    one, two, three = (torch.randn(3) for _ in range(3))
    inputs = {
        "pair": (one, [two]),
        "table": {"left": three},
        "nothing": None,
        "scale": 3,
        "flag": True,
    }
    exported = check(Nested(), inputs)
    assert exported.program.inputs == ("pair__0", "pair__1__0", "table__left")


def test_keywords_in_another_order() -> None:
    class Two(nn.Module):
        def forward(self, first: Tensor, second: Tensor) -> Tensor:
            return first - second

    exported = check(Two(), {"second": torch.ones(2), "first": torch.zeros(2)})
    assert set(exported.program.inputs) == {"first", "second"}


@dataclass
class Pair:
    left: Tensor
    right: Tensor


def nested(exported: Exported, values: Mapping[str, Tensor]) -> Any:
    """Return outputs in the form in which the module returns them."""
    flat = [
        literal if name is None else values[name]
        for name, literal in zip(exported.outputs, exported.captured.outputs, strict=True)
    ]
    return pytree.tree_unflatten(flat, exported.captured.out_spec)


def test_nested_outputs_keep_their_form() -> None:
    def several(value: Tensor) -> Any:
        return {"a": value + 1, "b": (value * 2, None, 5, [value])}

    module = Calls(several)
    inputs = (torch.randn(2),)
    exported = check(module, inputs)
    assert [name is None for name in exported.outputs] == [False, False, True, True, False]
    made = nested(exported, outputs_of(exported, module, inputs))
    assert made.keys() == {"a", "b"}
    assert made["b"][1:3] == (None, 5)
    torch.testing.assert_close(made["a"], inputs[0] + 1)
    torch.testing.assert_close(made["b"][3][0], inputs[0])


def test_model_outputs_of_transformers() -> None:
    module = Calls(lambda value: BaseModelOutput(last_hidden_state=value * 2))
    exported = check(module, (torch.randn(2),))
    values = {exported.program.outputs[0]: torch.ones(2)}
    assert isinstance(nested(exported, values), BaseModelOutput)


def test_one_tensor_as_two_outputs() -> None:
    def twice(value: Tensor) -> tuple[Tensor, Tensor]:
        result = value + 1
        return result, result

    exported = check(Calls(twice), (torch.randn(2),))
    assert len(set(exported.program.outputs)) == 2


def test_tied_parameters_are_one_resident() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(5, 4)
            self.head = nn.Linear(4, 5, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens: Tensor) -> Any:
            return self.head(self.embedding(tokens))

    exported = check(Tied(), (torch.tensor([1, 2, 4]),))
    assert list(exported.program.residents) == ["tied__embedding__weight"]


def test_constants_of_the_module_are_constants_of_the_graph() -> None:
    class Held(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.randn(3)

        def forward(self, value: Tensor) -> Tensor:
            return value * self.table + torch.tensor([1.0, 2.0, 3.0])

    exported = check(Held(), (torch.randn(3),))
    assert not exported.program.residents
    assert len(exported.program.parts[0].model.graph.initializers) == 2


@pytest.mark.parametrize("inplace", [False, True])
def test_written_buffers_are_outputs_in_their_own_region(inplace: bool) -> None:
    class Normalised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(4)

        def forward(self, value: Tensor) -> Tensor:
            return nn.functional.relu(self.norm(value), inplace=inplace)

    module, value = Normalised(), torch.randn(5, 4)
    exported = export_inference(module, (value,))
    made = outputs_of(exported, module, (value,))
    names = ("running_mean", "running_var", "num_batches_tracked")
    assert exported.program.regions == {
        f"normalised__norm__{name}__updated": f"normalised__norm__{name}" for name in names
    }
    with torch.no_grad():
        wanted = module(value)
    torch.testing.assert_close(made[exported.program.outputs[0]], wanted)
    for name in names:
        new = made[f"normalised__norm__{name}__updated"]
        torch.testing.assert_close(new, getattr(module.norm, name))


class Cache(nn.Module):
    """Writes a row of a buffer through a view."""

    rows: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(4, 3))

    def forward(self, value: Tensor, place: Tensor) -> Tensor:
        self.rows[1:2] += value
        self.rows.index_copy_(0, place, value * 2)
        return self.rows.sum(0)


def test_buffers_written_through_views() -> None:
    module = Cache()
    inputs = (torch.randn(1, 3), torch.tensor([2]))
    exported = export_inference(module, inputs)
    made = outputs_of(exported, copy.deepcopy(module), inputs)
    wanted = module(*inputs)
    torch.testing.assert_close(made[exported.program.outputs[0]], wanted)
    torch.testing.assert_close(made["cache__rows__updated"], module.rows)
    assert exported.program.residents["cache__rows__updated"] is SymbolKind.BUFFER


def test_in_place_operators_keep_their_meaning() -> None:
    def compute(value: Tensor) -> tuple[Tensor, Tensor]:
        held = value * 2
        view = held[0]
        held.add_(1)
        other = torch.zeros_like(value)
        other[:, 1] = view
        other.mul_(2).clamp_(max=3)
        return view + held, other

    check(Calls(compute), (torch.randn(3, 3),))


def test_nothing_is_materialised_on_the_meta_device() -> None:
    with torch.device("meta"):
        module = Small()
    program = inference_program(module, (torch.ones(2, 4, device="meta"),))
    assert program.outputs == ("small__add__outputs__0",)
    assert all(parameter.is_meta for parameter in module.parameters())


def test_lazy_parameters_stay_empty() -> None:
    module = Small()
    from_torch_model_(module)
    module.layer.weight.clear_data()  # type: ignore[operator]
    inference_program(module, (SambaTensor(shape=(2, 4), name="x"),))
    assert not module.layer.weight.has_data


def test_a_module_is_left_as_it_was() -> None:
    module = nn.LSTM(3, 4, batch_first=True)
    before = {name: id(tensor) for name, tensor in module.named_parameters()}
    export_inference(module, (torch.ones(1, 2, 3),))
    assert {name: id(tensor) for name, tensor in module.named_parameters()} == before
    assert [id(w) for w in module._flat_weights] == list(before.values())


def test_gradients_may_be_switched_off_inside() -> None:
    def partly(value: Tensor) -> Tensor:
        with torch.no_grad():
            scale = value.abs().sum()
        return value / scale

    check(Calls(partly), (torch.randn(3),))


def test_bfloat16_stays_bfloat16() -> None:
    module = Small().to(torch.bfloat16)
    graph = inference_program(module, (torch.ones(2, 4).bfloat16(),)).parts[0].model.graph
    assert {str(value.dtype) for node in graph for value in node.outputs} == {"BFLOAT16"}
    check(module, (torch.randn(2, 4).bfloat16(),), relative=1.6e-2)


def test_linear_layers_are_one_gemm_each() -> None:
    example = models.build("mlp", "tiny")
    program = inference_program(example.module, example.inputs)
    kinds = Counter(node.op_type for node in program.parts[0].model.graph)
    assert kinds == {"Gemm": 3, "Relu": 2}


def test_dropout_in_training_mode_has_argins() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    program = inference_program(module, (torch.ones(1, 2),))
    names = [argin.name for argin in program.argins]
    assert names == ["sequential__1__dropout__rate", "sequential__1__dropout__seed"]
    assert [argin.default for argin in program.argins] == [0.5, 0.0]
    assert {value.name for value in program.parts[0].model.graph.inputs} > set(names)
    assert not check(module.eval(), (torch.ones(1, 2),)).program.argins


def test_random_operators_are_refused() -> None:
    with pytest.raises(ModelError, match="draws random numbers"):
        inference_program(Calls(lambda value: value + torch.rand(2)), (torch.ones(2),))


def test_fingerprints_do_not_depend_on_weights() -> None:
    one, other, larger = (
        fingerprint(export_inference(Small(), (torch.ones(rows, 4),)).program) for rows in (2, 2, 3)
    )
    assert one == other
    assert difference(one, other) == ""
    assert "input 'value'" in difference(one, larger)


def test_fingerprints_depend_on_operators() -> None:
    one, other = (
        fingerprint(export_inference(Calls(function), (torch.ones(2),)).program)
        for function in (lambda value: value + 1, lambda value: value - 1)
    )
    assert "calls__add__outputs__0" in difference(one, other)


class Pooled(nn.Module):
    """Computes something that it does not return."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.pooler = nn.Linear(3, 3)

    def forward(self, value: Tensor) -> Tensor:
        result: Tensor = self.layer(value)
        torch.tanh(self.pooler(result))
        return result


def test_weights_that_no_result_depends_on_are_left_out() -> None:
    exported = check(Pooled().eval(), (torch.randn(2, 3),))
    assert set(exported.members) == {"pooled__layer__weight", "pooled__layer__bias"}
