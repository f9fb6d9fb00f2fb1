"""Losses by name are those of torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn
from torch.nn import functional

from samba_onnx.errors import UsageError
from samba_onnx.importing import Loss, module_from_onnx


def _linear(shape: list[int], classes: int = 5) -> onnx.ModelProto:
    """A product of an input and a weight."""
    generator = np.random.default_rng(0)
    weight = generator.standard_normal((shape[-1], classes)).astype(np.float32)
    return helper.make_model(
        helper.make_graph(
            [helper.make_node("MatMul", ["x", "weight"], ["y"])],
            "linear",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [*shape[:-1], classes])],
            [numpy_helper.from_array(weight, "weight")],
        ),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )


def _classes(shape: tuple[int, ...], number: int = 5) -> Tensor:
    return torch.randint(number, shape, generator=torch.Generator().manual_seed(2))


CASES: list[tuple[Loss, nn.Module, str]] = [
    (Loss("cross_entropy", "y", "t"), nn.CrossEntropyLoss(), "classes"),
    (
        Loss("cross_entropy", "y", "t", reduction="sum", ignore_index=2, label_smoothing=0.1),
        nn.CrossEntropyLoss(reduction="sum", ignore_index=2, label_smoothing=0.1),
        "classes",
    ),
    (
        Loss("cross_entropy", "y", "t", reduction="none"),
        nn.CrossEntropyLoss(reduction="none"),
        "classes",
    ),
    (
        Loss("cross_entropy", "y", "t", label_smoothing=0.2),
        nn.CrossEntropyLoss(label_smoothing=0.2),
        "probabilities",
    ),
    (Loss("nll", "y", "t", ignore_index=1), nn.NLLLoss(ignore_index=1), "classes"),
    (Loss("mse", "y", "t"), nn.MSELoss(), "numbers"),
    (Loss("mse", "y", "t", reduction="none"), nn.MSELoss(reduction="none"), "numbers"),
    (Loss("l1", "y", "t", reduction="sum"), nn.L1Loss(reduction="sum"), "numbers"),
    (Loss("bce_with_logits", "y", "t"), nn.BCEWithLogitsLoss(), "probabilities"),
]


@pytest.mark.parametrize(("loss", "reference", "kind"), CASES)
def test_losses_and_gradients_equal_torch(loss: Loss, reference: nn.Module, kind: str) -> None:
    module = module_from_onnx(_linear([6, 4]), losses=[loss])
    value = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    label = {
        "classes": _classes((6,)),
        "numbers": torch.randn(6, 5, generator=torch.Generator().manual_seed(3)),
        "probabilities": torch.softmax(torch.randn(6, 5), -1),
    }[kind]
    weight = module.get_parameter("weight").detach().clone().requires_grad_()
    wanted = reference(value @ weight, label)
    got, output = module(value, label)
    torch.testing.assert_close(got, wanted, rtol=1e-6, atol=0)
    torch.testing.assert_close(output, value @ weight, rtol=0, atol=0)
    got.sum().backward()
    wanted.sum().backward()
    torch.testing.assert_close(
        module.get_parameter("weight").grad, weight.grad, rtol=1e-6, atol=1e-7
    )
    assert module.output_names == ("y_loss", "y")
    assert module.input_names == ("x", "t")
    assert module.loss_indices == (0,)


@pytest.mark.parametrize("axis", [-1, 2])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_language_models_have_their_classes_last(axis: int, reduction: Any) -> None:
    loss = Loss("cross_entropy", "y", "t", class_axis=axis, reduction=reduction)
    module = module_from_onnx(_linear([2, 3, 4]), losses=[loss])
    value, label = torch.randn(2, 3, 4), _classes((2, 3))
    got, output = module(value, label)
    wanted = functional.cross_entropy(output.transpose(1, 2), label, reduction=reduction)
    torch.testing.assert_close(got, wanted, rtol=1e-6, atol=0)


def test_losses_can_share_a_label_and_have_names() -> None:
    losses = [Loss("mse", "y", "t"), Loss("l1", "y", "t", name="distance")]
    module = module_from_onnx(_linear([6, 4]), losses=losses)
    assert module.input_names == ("x", "t")
    assert module.output_names == ("y_loss", "distance", "y")
    value, label = torch.randn(6, 4), torch.randn(6, 5)
    square, distance, output = module(t=label, x=value)
    torch.testing.assert_close(square, functional.mse_loss(output, label))
    torch.testing.assert_close(distance, functional.l1_loss(output, label))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "hinge"}, "unknown loss 'hinge'"),
        ({"reduction": "median"}, "unknown reduction 'median'"),
        ({"label_smoothing": 1.5}, "must be from 0 to 1"),
        ({"kind": "mse", "label_smoothing": 0.1}, "for cross_entropy, not for mse"),
        ({"kind": "l1", "ignore_index": 0}, "not for l1"),
    ],
)
def test_meaningless_losses_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Loss(**{"kind": "cross_entropy", "output": "y", "label": "t", **fields})


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        ([Loss("mse", "z", "t")], "'z', but the model's outputs are y"),
        ([Loss("mse", "y", "x")], "'x' is an input of the model already"),
        ([Loss("mse", "y", "t"), Loss("l1", "y", "t")], "two outputs are named 'y_loss'"),
    ],
)
def test_losses_must_fit_the_model(losses: list[Loss], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        module_from_onnx(_linear([6, 4]), losses=losses)


def test_a_loss_may_be_part_of_the_graph() -> None:
    model = _linear([6, 4])
    graph = model.graph
    graph.node.append(helper.make_node("SoftmaxCrossEntropyLoss", ["y", "t"], ["loss"]))
    graph.input.append(helper.make_tensor_value_info("t", TensorProto.INT64, [6]))
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("loss", TensorProto.FLOAT, []))
    module = module_from_onnx(model)
    value, label = torch.randn(6, 4), _classes((6,))
    loss = module(value, label)
    weight = module.get_parameter("weight")
    torch.testing.assert_close(loss, functional.cross_entropy(value @ weight, label))
    loss.backward()
    assert weight.grad is not None
