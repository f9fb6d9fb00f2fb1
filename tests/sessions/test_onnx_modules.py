"""Which module an ONNX model becomes, by what optimizers, weights, losses and a PEF say."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import samba_onnx as samba
from samba_onnx.errors import UsageError
from samba_onnx.importing import Loss
from samba_onnx.sessions.onnx_modules import losses_of, same_model, trained_module
from tests.importing.building import parse, ramp

SHORT = """tiny (float[4, 6] x) => (float[4, 3] y) {
    h = MatMul(x, w) z = Mul(h, c) v = Add(z, b) y = Reshape(v, s) }"""
LOSS = Loss("cross_entropy", "y", "label")
RECORD = {"weights": ["w"], "losses": [dataclasses.asdict(Loss("mse", "y", "target"))]}


def model(bias: float = 1.0, rows: int = 4) -> onnx.ModelProto:
    return parse(SHORT, w=ramp(6, 3), b=ramp(3) * bias, c=ramp(3), s=np.array([rows, 3]))


def names(module: Any) -> set[str]:
    return set(module.trained_names)


def sgd(*modules: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for module in modules for p in module.parameters()], lr=0.1)


def test_without_optimizers_weights_and_losses_make_a_module() -> None:
    one = model()
    assert trained_module(one, [], None, None) is one
    assert names(trained_module(one, [], ["w"], None)) == {"w"}
    assert trained_module(one, [], ["w"], None).losses == ()
    made = trained_module(one, [], None, "cross_entropy")
    assert (made.losses, names(made)) == ((LOSS,), {"w", "b", "c"})
    recorded = trained_module(one, [], None, None, RECORD)
    assert (recorded.losses, names(recorded)) == ((Loss("mse", "y", "target"),), {"w"})
    # What is given counts before what is recorded.
    assert names(trained_module(one, [], ["b"], None, RECORD)) == {"b"}
    assert trained_module(one, [], None, "l1", RECORD).losses == (Loss("l1", "y", "label"),)


def test_optimizers_know_their_module() -> None:
    one = model()
    owner = samba.from_onnx(one, weights=["w", "b"], losses="cross_entropy")
    assert [parameter.sn_name for parameter in owner.parameters()] == ["w", "b"]
    optimizer = sgd(owner)
    for losses in (None, "cross_entropy", [LOSS]):
        assert trained_module(one, [optimizer], None, losses) is owner
    assert trained_module(one, [optimizer], ["b", "w"], None, RECORD) is owner
    with pytest.raises(
        UsageError, match="weights are w, but the optimizer's module was made with b, w: give"
    ):
        trained_module(one, [optimizer], ["w"], None)
    for other in (
        sgd(owner, nn.Linear(1, 1)),
        sgd(nn.Linear(1, 1)),
        sgd(owner, samba.from_onnx(one)),
    ):
        with pytest.raises(UsageError, match="with an optimizer of other parameters"):
            trained_module(one, [other], None, None)
    with pytest.raises(UsageError, match="another ONNX model"):
        trained_module(model(rows=-1), [optimizer], None, None)


def test_other_losses_are_built_on_the_same_weights() -> None:
    one = model()
    owner = samba.from_onnx(one, weights=["w"]).eval()
    optimizer = sgd(owner)
    assert trained_module(one, [optimizer], None, None) is owner
    recorded = trained_module(one, [optimizer], None, None, RECORD)
    assert recorded.losses == (Loss("mse", "y", "target"),)
    assert trained_module(one, [optimizer], None, None, RECORD) is recorded
    made = trained_module(one, [optimizer], None, "l1", RECORD)
    assert made.losses == (Loss("l1", "y", "label"),)
    assert list(map(id, made.parameters())) == list(map(id, owner.parameters()))
    assert names(made) == {"w"}
    assert not made.training
    owner.train()
    assert trained_module(one, [optimizer], None, "l1") is made
    assert made.training


def test_a_model_is_the_same_whatever_its_weights() -> None:
    module = samba.from_onnx(model(), weights=["b"])
    with torch.no_grad():
        next(module.parameters()).zero_()
    assert same_model(module, model())
    assert same_model(module, model(bias=3.0))
    assert not same_model(module, model(rows=-1))


def test_a_loss_may_state_all_of_its_fields() -> None:
    fields = dataclasses.asdict(LOSS)
    assert losses_of(fields, model()) == (LOSS,)
    with pytest.raises(UsageError, match=r"^a loss is \{'output': 'y'\}; give its kind"):
        losses_of({"output": "y"}, model())
    with pytest.raises(
        UsageError, match=r"^a loss cannot be \{'kind': 'mse', .*'label_smoothing': 'a'\}: "
    ):
        losses_of({"kind": "mse", "output": "y", "label_smoothing": "a"}, model())


def test_other_warnings_of_a_variant_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    one = model()
    owner = samba.from_onnx(one)
    module = "samba_onnx.sessions.onnx_modules"
    made = samba.from_onnx(one, losses="l1")

    def make(*_arguments: Any, **_options: Any) -> Any:
        warnings.warn("something else", UserWarning, stacklevel=1)
        return made

    monkeypatch.setattr(f"{module}.module_from_onnx", make)
    with pytest.warns(UserWarning, match="something else"):
        trained_module(one, [sgd(owner)], None, "l1")
