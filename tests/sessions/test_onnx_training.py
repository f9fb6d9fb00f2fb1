"""Training of ONNX models through the session: steps, names, losses, and models written back."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import numpy_helper
from torch import Tensor, nn

import samba_onnx as samba
from models import build
from models.cache import cached_onnx
from models.example import Example
from samba_onnx.compiling.torch.session_records import read_records
from samba_onnx.errors import (
    FoldedWeightsWarning,
    GraphMismatchError,
    ModelFileError,
    PefFormatError,
    UsageError,
)
from samba_onnx.importing import Loss
from samba_onnx.pef import load_pef
from samba_onnx.sessions import SambaSession
from samba_onnx.sessions.onnx_modules import losses_of, trained_module
from tests.importing.building import parse, ramp

# Five steps: float32 sums in another order, some 1e-7 each, which Adam's division amplifies while
# second moments are small.
TOLERANCE = {"rtol": 2e-5, "atol": 5e-6}
SHORT = """tiny (float[4, 6] x) => (float[4, 3] y) { h = MatMul(x, w) y = Add(h, b) }"""


def tiny(scale: float = 1.0) -> onnx.ModelProto:
    return parse(SHORT, w=ramp(6, 3) * scale, b=ramp(3))


def batch() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(4, 6), torch.randint(3, (4,))


@dataclass(frozen=True)
class Case:
    """A model of the zoo, and an optimizer twice: ours and torch's."""

    name: str
    optimizer: Callable[..., torch.optim.Optimizer]
    reference: Callable[..., torch.optim.Optimizer]
    class_axis: int = 1
    output: int = 0

    @property
    def path(self) -> Path:
        return cached_onnx(self.name, "tiny", raw=True)


def sgd(parameters: object) -> torch.optim.Optimizer:
    return samba.optim.SGD(parameters, lr=0.05, momentum=0.9)


def torch_sgd(parameters: object) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)  # type: ignore[arg-type]


def adam(parameters: object) -> torch.optim.Optimizer:
    return samba.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.99))


def torch_adam(parameters: object) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.99), weight_decay=0)  # type: ignore[arg-type]


CASES = [
    Case("mlp", adam, torch_adam),
    pytest.param(Case("lenet", sgd, torch_sgd), marks=pytest.mark.slow),
    pytest.param(Case("bert", sgd, torch_sgd, class_axis=-1), marks=pytest.mark.slow),
]


def torch_step(
    case: Case, example: Example, optimizer: torch.optim.Optimizer, inputs: object, label: Tensor
) -> Tensor:
    """One step of the module that was exported."""
    result = example.module(**inputs)  # type: ignore[arg-type]
    logits = (result if isinstance(result, tuple) else (result,))[case.output]
    loss = nn.functional.cross_entropy(logits.movedim(case.class_axis, 1), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def labels(case: Case, example: Example, step: int) -> Tensor:
    with torch.no_grad():
        result = example.module(**example.inputs)
    logits = (result if isinstance(result, tuple) else (result,))[case.output]
    shape = list(logits.shape)
    classes = shape.pop(case.class_axis)
    return torch.randint(classes, shape, generator=torch.Generator().manual_seed(step))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_five_steps_and_the_model_written_back_equal_torch(
    case: Case, session: SambaSession, tmp_path: Path
) -> None:
    example = build(case.name, "tiny")
    reference = case.reference(example.module.parameters())
    loss = Loss("cross_entropy", example.outputs[case.output], "t", class_axis=case.class_axis)
    module = samba.from_onnx(case.path, losses=loss)
    optimizer = case.optimizer(module.parameters())
    inputs = {**example.inputs, "t": labels(case, example, 0)}
    # Not compared when it is compiled: that is what this test does.
    path = session.compile(case.path, inputs, optimizer, output=tmp_path / "m.pef", check=False)
    outputs = samba.utils.trace_graph(case.path, inputs, optimizer, pef=path)
    assert [output.sn_name for output in outputs] == [loss.output_name, *example.outputs]
    for step in range(5):
        given, label = example.draw(step), labels(case, example, step)
        (got,) = session.run({**given, "t": label}, outputs[0])
        wanted = torch_step(case, example, reference, given, label)
        torch.testing.assert_close(got.torch(), wanted, rtol=1e-5, atol=1e-6)
    session.to_onnx(case.path, tmp_path / "trained.onnx")
    originals = dict(example.module.named_parameters(remove_duplicate=False))
    for attribute, parameter in module.named_parameters():
        twin = originals[module.onnx_names[attribute]]
        torch.testing.assert_close(parameter.torch_tensor().detach(), twin.detach(), **TOLERANCE)
    given = example.draw(9)
    with torch.no_grad():
        result = example.module(**given)
    made = onnxruntime.InferenceSession(tmp_path / "trained.onnx").run(
        None, {name: value.numpy() for name, value in given.items()}
    )
    for one, other in zip(made, result if isinstance(result, tuple) else [result], strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-4, atol=1e-4)


def test_a_model_in_memory_trains_with_an_optimizer_of_its_weights(
    session: SambaSession, tmp_path: Path
) -> None:
    model = tiny()
    before = model.SerializeToString()
    x, t = batch()
    # Nothing but the optimizer refers to the module.
    optimizer = samba.optim.SGD(samba.from_onnx(model).parameters(), lr=0.1)
    loss = {"kind": "cross_entropy", "label": "t"}
    path = session.compile(model, (x, t), optimizer, output=tmp_path / "m.pef", losses=loss)
    # The PEF knows the loss.
    outputs = samba.utils.trace_graph(model, {"x": x, "t": t}, optimizer, pef=path)
    assert [output.sn_name for output in outputs] == ["y_loss", "y"]
    weight, bias = (torch.from_numpy(a.copy()).requires_grad_() for a in (ramp(6, 3), ramp(3)))
    wanted = nn.functional.cross_entropy(x @ weight + bias, t)
    wanted.backward()
    got, y = session.run(model, {"x": x, "t": t}, outputs)
    torch.testing.assert_close(got.torch(), wanted.detach(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(y.torch(), (x @ weight + bias).detach(), rtol=1e-6, atol=1e-6)
    trained = session.to_onnx(model)
    assert model.SerializeToString() == before
    arrays = {t.name: numpy_helper.to_array(t) for t in trained.graph.initializer}
    np.testing.assert_allclose(
        arrays["w"], (weight - 0.1 * weight.grad).detach().numpy(), rtol=1e-6, atol=1e-7
    )
    np.testing.assert_allclose(
        arrays["b"], (bias - 0.1 * bias.grad).detach().numpy(), rtol=1e-6, atol=1e-7
    )


def test_the_module_itself_can_be_given(session: SambaSession, tmp_path: Path) -> None:
    module = samba.from_onnx(tiny(), losses="cross_entropy")
    assert [parameter.sn_name for parameter in module.parameters()] == ["w", "b"]
    optimizer = samba.optim.AdamW(module.parameters(), lr=0.1)
    twin = copy.deepcopy(module)
    x, label = batch()
    path = session.compile(module, (x, label), optimizer, output=tmp_path / "m.pef")
    outputs = samba.utils.trace_graph(module, (x, label), optimizer, pef=path)
    session.run({"x": x, "label": label}, outputs)
    session.to_cpu(module, optimizer)
    reference = torch.optim.AdamW(twin.parameters(), lr=0.1, betas=(0.9, 0.997), weight_decay=0)
    samba.to_torch(twin(x, label)[0]).backward()
    reference.step()
    for one, other in zip(module.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(
            one.torch_tensor().detach(), other.torch_tensor().detach(), rtol=1e-5, atol=1e-6
        )
    assert set(module.state_dict()) == {"w", "b"}


def test_weights_that_are_named_are_the_only_ones_that_train(
    session: SambaSession, tmp_path: Path
) -> None:
    model = tiny()
    module = samba.from_onnx(model, weights=["b"], losses="cross_entropy")
    optimizer = samba.optim.SGD(module.parameters(), lr=0.5)
    inputs = batch()
    path = session.compile(model, inputs, optimizer, output=tmp_path / "m.pef", weights=["b"])
    with load_pef(path) as pef:
        assert "w__grad" not in {symbol.name for symbol in pef.manifest.symbols}
    samba.utils.trace_graph(model, inputs, optimizer, pef=path)
    session.run({"x": inputs[0], "label": inputs[1]})
    trained = session.to_onnx(model, tmp_path / "trained.onnx")
    arrays = {t.name: numpy_helper.to_array(t) for t in trained.graph.initializer}
    np.testing.assert_array_equal(arrays["w"], ramp(6, 3))
    assert np.abs(arrays["b"] - ramp(3)).max() > 1e-3
    onnx.checker.check_model(onnx.load(tmp_path / "trained.onnx"))
    with pytest.raises(UsageError, match=r"weights are w, but .* was made with b: give weights to"):
        session.compile(model, inputs, optimizer, output=tmp_path / "n.pef", weights=["w"])


def test_a_loss_may_be_an_output_of_the_model(session: SambaSession, tmp_path: Path) -> None:
    model = parse(
        """with_loss (float[4, 6] x, int64[4] t) => (float[4, 3] y, float loss) {
        y = MatMul(x, w) loss = SoftmaxCrossEntropyLoss(y, t) }""",
        w=ramp(6, 3),
    )
    x, t = batch()
    optimizer = samba.optim.SGD(samba.from_onnx(model).parameters(), lr=1.0)
    path = session.compile(model, (x, t), optimizer, output=tmp_path / "m.pef")
    y, loss = samba.utils.trace_graph(model, (x, t), optimizer, pef=path)
    assert (y.sn_name, loss.sn_name, loss.sn_grad.item()) == ("y", "loss", 1.0)
    weight = torch.from_numpy(ramp(6, 3)).requires_grad_()
    nn.functional.cross_entropy(x @ weight, t).backward()
    session.run({"x": x, "t": t})
    gradient = session.get_tensors_by_name(["w__grad"])[0].torch()
    torch.testing.assert_close(gradient, weight.grad, rtol=1e-5, atol=1e-7)


def test_names_that_python_does_not_allow_are_kept(session: SambaSession, tmp_path: Path) -> None:
    model = tiny()
    for old, new in (("x", "input.1"), ("w", "onnx::MatMul_7"), ("b", "/head/b"), ("y", "out:0")):
        for node in model.graph.node:
            node.input[:] = [new if name == old else name for name in node.input]
            node.output[:] = [new if name == old else name for name in node.output]
        for value in (*model.graph.input, *model.graph.output, *model.graph.initializer):
            value.name = new if value.name == old else value.name
    module = samba.from_onnx(model, losses={"kind": "mse", "label": "the label"})
    optimizer = samba.optim.SGD(module.parameters(), lr=0.1)
    inputs = {"input.1": torch.randn(4, 6), "the label": torch.randn(4, 3)}
    path = session.compile(model, inputs, optimizer, output=tmp_path / "m.pef")
    outputs = samba.utils.trace_graph(model, tuple(inputs.values()), optimizer, pef=path)
    assert [output.sn_name for output in outputs] == ["out:0_loss", "out:0"]
    first, second = (session.run(inputs, ["out:0_loss"])[0].item() for _ in range(2))
    assert second < first
    assert {"onnx::MatMul_7", "/head/b"} <= set(session.get_weight_names())


def test_without_optimizers_the_losses_of_the_pef_are_computed(
    session: SambaSession, tmp_path: Path
) -> None:
    model = tiny()
    x, label = batch()
    optimizer = samba.optim.SGD(samba.from_onnx(model).parameters(), lr=0.1)
    path = session.compile(
        model, (x, label), optimizer, output=tmp_path / "m.pef", losses="cross_entropy"
    )
    outputs = samba.utils.trace_graph(model, (x, label), pef=path)
    (loss,) = session.run({"x": x, "label": label}, outputs[:1], section_types=["FWD"])
    wanted = nn.functional.cross_entropy(
        x @ torch.tensor(ramp(6, 3)) + torch.tensor(ramp(3)), label
    )
    torch.testing.assert_close(loss.torch(), wanted, rtol=1e-5, atol=1e-6)
    alone = session.compile(model, (x, label), output=tmp_path / "n.pef", losses="cross_entropy")
    assert samba.utils.trace_graph(model, (x, label), pef=alone)[0].sn_name == "y_loss"
    assert session.get_section_types() == {"FWD"}


def test_another_model_is_refused(session: SambaSession, tmp_path: Path) -> None:
    model, inputs = tiny(), batch()
    optimizer = samba.optim.SGD(samba.from_onnx(model, losses="cross_entropy").parameters(), lr=0.1)
    other = parse(SHORT.replace("Add", "Sub"), w=ramp(6, 3), b=ramp(3))
    with pytest.raises(UsageError, match="the weights of another ONNX model"):
        session.compile(other, inputs, optimizer, output=tmp_path / "m.pef")
    stranger = samba.optim.SGD([samba.SambaParameter(torch.ones(3))], lr=0.1)
    with pytest.raises(UsageError, match=r"samba\.from_onnx\(model\)"):
        session.compile(model, inputs, stranger, output=tmp_path / "m.pef")
    assert not (tmp_path / "m.pef").exists()
    # Equal but for its weights, which are those of the optimizer.
    path = session.compile(tiny(2.0), inputs, optimizer, output=tmp_path / "m.pef")
    samba.utils.trace_graph(model, inputs, optimizer, pef=path)
    fresh = samba.from_onnx(other, losses="cross_entropy")
    with pytest.raises(GraphMismatchError, match=r"node .* of FWD"):
        samba.utils.trace_graph(fresh, inputs, pef=path)


def test_losses_and_weights_are_for_onnx_models(session: SambaSession) -> None:
    model = tiny()
    module = samba.from_onnx(model)
    for options in ({"losses": "mse"}, {"weights": ["w"]}):
        with pytest.raises(UsageError, match=r"give them to .*from_onnx"):
            session.compile(module, batch(), **options)
    with pytest.raises(UsageError, match="was not traced with optimizers"):
        session.to_onnx(model)
    with pytest.raises(UsageError, match=r"torch\.onnx\.export"):
        session.to_onnx(nn.Linear(2, 2))
    with pytest.raises(ModelFileError):
        samba.from_onnx("missing.onnx")
    assert session.to_onnx(module) == model


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("hinge", "unknown loss 'hinge'; choose one of cross_entropy"),
        ({"output": "y"}, "give its kind"),
        ({"kind": "mse", "target": "t"}, "kind and any of class_axis, ignore_index, label"),
        ([3], "a loss is 3"),
        ({"kind": "mse", "label_smoothing": "much"}, "a loss cannot be"),
        ({"kind": "mse", "label": "w"}, "label 'w' is an initializer of the model"),
        ({"kind": "mse", "label": "x"}, "label 'x' is an input of the model"),
        ({"kind": "mse", "output": "z"}, "the model's outputs are y"),
    ],
)
def test_losses_without_a_meaning_are_refused(given: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        samba.from_onnx(tiny(), losses=given)


def test_a_loss_must_say_on_which_of_several_outputs_it_is_built() -> None:
    model = parse(
        "two (float[4, 6] x) => (float[4, 3] y, float[4, 3] z) { y = MatMul(x, w) z = Relu(y) }",
        w=ramp(6, 3),
    )
    with pytest.raises(UsageError, match=r"the model has y, z: give a dict, as \{'kind': 'mse'"):
        samba.from_onnx(model, losses="mse")
    assert losses_of(["l1", Loss("mse", "y", "t")], tiny()) == (
        Loss("l1", "y", "label"),
        Loss("mse", "y", "t"),
    )


@pytest.mark.parametrize("recorded", [3, {}, {"weights": [], "losses": [{"kind": "x"}]}])
def test_a_damaged_record_is_refused(recorded: object) -> None:
    with pytest.raises(PefFormatError, match="record of losses"):
        trained_module(tiny(), [], None, None, recorded)


def test_the_pef_says_what_was_trained(session: SambaSession, tmp_path: Path) -> None:
    module = samba.from_onnx(tiny(), losses="cross_entropy")
    optimizer = samba.optim.SGD(module.parameters(), lr=0.1)
    path = session.compile(module, batch(), optimizer, output=tmp_path / "m.pef")
    with load_pef(path) as pef:
        record = read_records(pef)["forward"]
    assert record.onnx["weights"] == ["w", "b"]
    assert record.onnx["losses"][0]["kind"] == "cross_entropy"
    assert record.loss_indices == [0]


def test_of_a_folded_model_is_warned_once(session: SambaSession, tmp_path: Path) -> None:
    model = parse(
        """merged (float[2, 6] x) => (float[2, 8] y) {
        a = MatMul(x, w) c = Add(a, shared) r = Relu(c) d = MatMul(r, v) y = Add(d, shared) }""",
        w=ramp(6, 8),
        v=ramp(8, 8),
        shared=np.zeros(8, np.float32),
    )
    with pytest.warns(FoldedWeightsWarning, match="shared is read by layers"):
        module = samba.from_onnx(model)
    optimizer = samba.optim.SGD(module.parameters(), lr=0.1)
    inputs = (torch.randn(2, 6), torch.randint(8, (2,)))
    session.compile(model, inputs, optimizer, output=tmp_path / "m.pef", losses="cross_entropy")
