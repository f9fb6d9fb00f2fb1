"""Training programs, run with plain onnxruntime, against torch's autograd."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from models import build
from samba_onnx.comparing.eager.training import compare_training
from samba_onnx.comparing.outcome import ComparisonOutcome
from samba_onnx.errors import GradientError
from samba_onnx.export.programs.training import export_training
from samba_onnx.facts.names import gradient_name, updated_name, zeroed_name
from samba_onnx.program.kinds import SectionType, SymbolKind
from tests.export.training_models import (
    Shared,
    WithLoss,
    lenet,
    mobilenet,
    prepared,
    resnet,
    trained,
    with_labels,
)
from tests.export.training_runs import assert_within, compare


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    "name",
    [
        "logistic_regression",
        "mlp",
        "lenet",
        "lstm",
        "bert",
        pytest.param("vit", marks=pytest.mark.slow),
        pytest.param("gpt2", marks=pytest.mark.slow),
        pytest.param("llama", marks=pytest.mark.slow),
        pytest.param("mobilenet_v3", marks=pytest.mark.slow),
        pytest.param("whisper_decoder", marks=pytest.mark.slow),
    ],
)
def test_models_train_as_in_torch(name: str) -> None:
    example = build(name, "tiny")
    trained(*with_labels(example.module, tuple(example.inputs.values())))


@pytest.mark.parametrize("make", [resnet, mobilenet])
def test_batch_normalisation_updates_its_statistics(make: Any) -> None:
    module, inputs = with_labels(make(), (torch.randn(4, 3, 16, 16),))
    machine = trained(module, inputs)
    updated = [name for name in machine.program.residents if name.endswith("__updated")]
    count = sum(isinstance(inner, nn.BatchNorm2d) for inner in module.modules())
    assert len(updated) == 3 * count
    for name in updated:
        assert machine.program.regions[name] == name.removesuffix("__updated")


def test_the_backward_never_reads_a_buffer_that_the_forward_has_changed() -> None:
    module, inputs = with_labels(resnet(), (torch.randn(4, 3, 16, 16),))
    program = export_training(module, inputs).program
    forward, backward = (part.model.graph for part in program.parts)
    changed = {n.removesuffix("__updated") for n in program.residents if n.endswith("__updated")}
    assert changed
    assert not changed & {value.name for value in backward.inputs}
    # What is updated in place is read on the way to its new value only.
    results = {value.name: value for value in forward.outputs}
    for value in forward.inputs:
        if value.name in changed:
            way = _computed_by(results[f"{value.name}__updated"])
            assert {usage.node for usage in value.uses()} <= way, value.name


def _computed_by(value: ir.Value) -> set[ir.Node]:
    """Return the nodes that a value depends on."""
    found: set[ir.Node] = set()
    pending = [value.producer()]
    while pending:
        node = pending.pop()
        if node is not None and node not in found:
            found.add(node)
            pending += [given.producer() for given in node.inputs if given is not None]
    return found


def test_what_is_written_through_views_is_differentiated() -> None:
    class Writing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 6)
            self.register_buffer("seen", torch.zeros(6))

        def forward(self, value: Tensor) -> tuple[Tensor, Tensor]:
            found = torch.relu_(self.linear(value))
            field = torch.zeros(3, 6)
            field[:, :2] = found[:, :2]
            field[1].add_(found[0])
            self.seen.add_(found.detach().mean(0))
            self.seen[:2] = 5.0
            return functional.mse_loss(field + self.seen.sum(), found), found

    trained(Writing(), (torch.randn(3, 4),))


class _Attending(nn.Module):
    """Attention whose result is laid out by heads behind positions, as torch's own kernel does."""

    def __init__(self, writing: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 24)
        self.writing = writing

    def forward(self, value: Tensor) -> Tensor:
        query, key, content = self.linear(value).view(2, 6, 3, 2, 4).permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(query, key, content).transpose(1, 2)
        merged = found.view(2, 6, 8)
        if self.writing:
            merged.mul_(2.0)
        return (merged * found.reshape(2, 6, 8)).mean()


def test_a_view_of_what_is_laid_out_in_another_way_is_differentiated() -> None:
    trained(_Attending(), (torch.randn(2, 6, 8),))


def test_writing_to_a_view_of_what_is_laid_out_in_another_way_is_never_lost() -> None:
    with pytest.raises(GradientError, match=r"view.* at test_training\.py:\d+"):
        trained(_Attending(writing=True), (torch.randn(2, 6, 8),))


def test_buffers_written_through_out_arguments_without_gradient() -> None:
    linear = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3))
    module = WithLoss(nn.Sequential(linear, nn.Tanh()))
    machine = trained(module, (torch.randn(5, 4), torch.randint(0, 3, (5,))))
    assert sum(name.endswith("__updated") for name in machine.program.residents) == 2


def test_mixed_precision_and_parts_without_gradient() -> None:
    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, value: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                found = self.linear(value)
            with torch.no_grad():
                centre = found.float().mean(0) * 2
            return (found.float() - centre).pow(2).mean()

    module, value = Parts(), torch.randn(3, 4)
    machine = prepared(module, (value,))
    machine.run()
    module(value).backward()
    assert module.linear.weight.grad is not None
    # The product is rounded to 8 bits in both directions.
    ours = machine["parts__linear__weight__grad"]
    torch.testing.assert_close(ours, module.linear.weight.grad, rtol=2e-2, atol=1e-2)


def test_gradients_are_summed_over_runs_until_they_are_zeroed() -> None:
    module = WithLoss(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)))
    batches = [(torch.randn(2, 4), torch.randint(0, 3, (2,))) for _ in range(3)]
    machine = prepared(module, batches[0], gradient_accumulation=True)
    assert [part.type for part in machine.program.parts] == [
        SectionType.ZEROGRAD,
        SectionType.FWD,
        SectionType.BCKWD,
    ]
    program = machine.program
    assert not program.parts[0].model.graph.inputs
    for name in machine.exported.members:
        # Zeros and sums are written where the old gradient lies, whatever it was.
        for change in (zeroed_name, updated_name):
            assert program.regions[change(gradient_name(name))] == gradient_name(name)
            assert program.residents[change(gradient_name(name))] is SymbolKind.GRADIENT
        machine[gradient_name(name)] = torch.full_like(machine[name], math.nan)
    for _ in range(2):
        machine.run(SectionType.ZEROGRAD)
        for batch in batches:
            machine.give(batch)
            machine.run(SectionType.FWD, SectionType.BCKWD)
    for batch in batches:
        module(*batch)[0].backward()
    for name, path in machine.exported.members.items():
        gradient = module.get_parameter(path).grad
        assert gradient is not None
        # Sums of three float32 numbers.
        torch.testing.assert_close(machine[f"{name}__grad"], gradient, rtol=1e-5, atol=1e-7)


def test_bfloat16_and_mixed_types() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(6, 8, dtype=torch.bfloat16)
            self.second = nn.Linear(8, 3)

        def forward(self, value: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
            hidden = torch.tanh(self.first(value.bfloat16()))
            logits = self.second(hidden.float())
            return functional.cross_entropy(logits, labels), hidden

    inputs = (torch.randn(4, 6), torch.randint(0, 3, (4,)))
    module = Mixed()
    machine = prepared(module, inputs)
    machine.run()
    loss, _ = module(*inputs)
    loss.backward()
    assert machine[machine.exported.outputs[1] or ""].dtype == torch.bfloat16
    for name, path in machine.exported.members.items():
        gradient = module.get_parameter(path).grad
        assert gradient is not None
        ours = machine[f"{name}__grad"]
        assert ours.dtype == gradient.dtype
        # Two roundings to 8 bits on the way, of values below one.
        torch.testing.assert_close(ours, gradient, rtol=2e-2, atol=2e-3)


def test_a_module_in_bfloat16_trains() -> None:
    module = WithLoss(nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3)))
    module = module.bfloat16()
    inputs = (torch.randn(4, 6, dtype=torch.bfloat16), torch.randint(0, 3, (4,)))
    machine = prepared(module, inputs)
    machine.run()
    compare(machine, module, inputs)


def test_only_parameters_that_a_loss_reaches_have_gradients() -> None:
    inputs = (torch.randint(0, 7, (5,)), torch.randint(0, 7, (5,)))
    machine = trained(Shared(), inputs)
    residents = machine.program.residents
    weights = [name for name, kind in residents.items() if kind is SymbolKind.WEIGHT]
    assert weights == [
        "shared__embedding__weight",
        "shared__frozen__weight",
        "shared__frozen__bias",
        "shared__aside__weight",
        "shared__aside__bias",
    ]
    gradients = {name for name, kind in residents.items() if kind is SymbolKind.GRADIENT}
    (loss,) = machine.losses
    assert gradients == {"shared__embedding__weight__grad", f"{loss}__grad"}
    assert residents[f"{loss}__grad"] is SymbolKind.GRADIENT


def test_a_loss_without_any_gradient_has_no_backward() -> None:
    class Counting(nn.Linear):
        def forward(self, value: Tensor) -> Tensor:
            return torch.linalg.vector_norm(super().forward(value), 0)

    module, value = Counting(4, 3), torch.randn(2, 4)
    exported = export_training(module, (value,))
    assert [part.type for part in exported.program.parts] == [SectionType.FWD]
    assert compare_training(module, (value,), exported).outcome is ComparisonOutcome.DONE
    module(value).backward()
    assert module.weight.grad is None


def test_a_product_of_nothing_has_a_gradient_of_zeros() -> None:
    class Product(nn.Linear):
        def forward(self, value: Tensor) -> Tensor:
            return super().forward(value)[:, :0].prod(1).sum()

    trained(Product(4, 3), (torch.randn(2, 4),))


def test_chosen_losses_and_inputs_have_gradients() -> None:
    inputs = {"value": torch.randn(3, 4), "rest": (None, {"scale": torch.randn(3, 2)})}

    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 2)

        def forward(self, value: Tensor, rest: Any) -> dict[str, Any]:
            found = self.linear(value) * rest[1]["scale"]
            return {"sum": found.sum(), "pair": (found.exp(), found.argmax(-1)), "none": None}

    module = Nested()
    options: dict[str, Any] = {"input_gradients": ["value", "rest__1__scale"]}
    machine = trained(module, inputs, loss_indices=[0, (1, 0)], **options)
    given = {
        "value": inputs["value"].clone(),
        "rest": (None, {"scale": inputs["rest"][1]["scale"].clone()}),
    }  # type: ignore[index, union-attr]
    leaves = (given["value"].requires_grad_(), given["rest"][1]["scale"].requires_grad_())  # type: ignore[index, union-attr]
    found = module(**given)
    torch.autograd.backward([found["sum"], found["pair"][0].sum()])
    for name, leaf in zip(options["input_gradients"], leaves, strict=True):
        torch.testing.assert_close(machine[f"{name}__grad"], leaf.grad)


def test_gradients_follow_the_seed_of_the_loss() -> None:
    module = WithLoss(nn.Linear(4, 3))
    inputs = (torch.randn(2, 4), torch.randint(0, 3, (2,)))
    machine = trained(module, inputs)
    before = machine["withloss__model__weight__grad"]
    (loss,) = machine.losses
    machine[f"{loss}__grad"] = torch.tensor(1024.0)
    machine.run(SectionType.BCKWD)
    assert torch.equal(machine["withloss__model__weight__grad"], before * 1024)


def test_modules_without_content_give_the_same_program() -> None:
    inputs = (torch.randn(4, 1, 16, 16), torch.zeros(4, dtype=torch.int64))
    programs = []
    for device in ("cpu", "meta"):
        with torch.device(device):
            module = WithLoss(lenet())
        programs.append(export_training(module, inputs).program)
    one, other = programs
    assert [*one.residents.items()] == [*other.residents.items()]
    for ours, theirs in zip(one.parts, other.parts, strict=True):
        assert [n.op_type for n in ours.model.graph] == [n.op_type for n in theirs.model.graph]


def test_exporting_twice_gives_equal_programs() -> None:
    inputs = (torch.randn(4, 3, 16, 16), torch.zeros(4, dtype=torch.int64))
    module = WithLoss(resnet())
    texts = [
        [str(part.model.graph) for part in export_training(module, inputs).program.parts]
        for _ in range(2)
    ]
    assert texts[0] == texts[1]


def test_every_backward_node_knows_the_line_that_it_comes_from() -> None:
    module, inputs = with_labels(lenet(), (torch.randn(6, 1, 16, 16),))
    program = export_training(module, inputs).program
    graph = program.parts[1].model.graph
    for node in graph:
        assert "forward" in node.metadata_props["pkg.torch.onnx.stack_trace"], node.name
    named = [node.name or "" for node in graph]
    assert any(name.startswith("withloss__model__0__conv2d_bwd__") for name in named)
    assert any(name.startswith("withloss__cross_entropy_loss_bwd__") for name in named)


def test_the_comparison_refuses_a_wrong_gradient() -> None:
    module = WithLoss(nn.Linear(4, 3))
    inputs = (torch.randn(2, 4), torch.randint(0, 3, (2,)))
    machine = trained(module, inputs)
    name = "withloss__model__weight__grad"
    machine[name] = machine[name] * (1 + 1e-4)
    with pytest.raises(AssertionError, match=name):
        compare(machine, module, inputs)
    with pytest.raises(AssertionError, match="shape"):
        assert_within("shape", torch.zeros(2), torch.zeros(3), torch.zeros(3), 1e-6)
