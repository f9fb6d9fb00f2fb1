"""Gradients of inputs that require them, against torch's autograd: split learning, and modules without weights."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import samba_onnx as samba
from samba_onnx.errors import NoDeviceError
from samba_onnx.pef import load_pef
from samba_onnx.sessions import SambaSession

# One pass through a small network: a few float32 products in another order.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-6}


class ReLUNet(nn.Module):
    """What a micro-benchmark of the vendor's users is: no parameter at all."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x * 3 - 1)


class Server(nn.Module):
    """The second half of a network that is split between two parties, with the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, cut: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.layer(cut.tanh())
        return nn.functional.cross_entropy(logits, y), logits


def types_of(path: str) -> set[str]:
    with load_pef(path) as pef:
        return {section.type.value for section in pef.manifest.sections}


@pytest.mark.parametrize("how", ["keyword", "method", "property", "torch"])
def test_a_program_whose_only_gradients_are_those_of_inputs(
    how: str, session: SambaSession, tmp_path: Path
) -> None:
    if how == "keyword":
        x = samba.randn(2, 4, name="x", requires_grad=True)
    elif how == "torch":
        x = samba.from_torch_tensor(torch.randn(2, 4, requires_grad=True), name="x")
    else:
        x = samba.randn(2, 4, name="x")
        if how == "method":
            x.requires_grad_(True)
        else:
            x.requires_grad = True
    model = ReLUNet()
    samba.from_torch_model_(model)
    path = session.compile(model, (x,), output=tmp_path / "relu.pef")
    assert types_of(path) == {"FWD", "BCKWD"}
    outputs = samba.utils.trace_graph(model, (x,), pef=path)
    weight = torch.randn(2, 4)
    outputs[0].sn_grad = weight
    values = torch.randn(2, 4)
    given = samba.from_torch_tensor(values.clone(), name="x")
    (result,) = session.run((given,), outputs)
    leaf = values.requires_grad_()
    expected = ReLUNet()(leaf)
    expected.backward(weight)
    torch.testing.assert_close(result.torch(), expected.detach(), **TOLERANCE)
    for tensor in (x, given):
        torch.testing.assert_close(tensor.sn_grad, leaf.grad, **TOLERANCE)


def test_the_server_of_split_learning_tells_the_client_its_gradient(
    session: SambaSession, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    server, twin = Server(), Server()
    twin.load_state_dict(server.state_dict())
    samba.from_torch_model_(server)
    inputs = (
        samba.randn(4, 5, name="cut", requires_grad=True),
        samba.randint(3, (4,), name="y"),
    )
    optimizer = samba.optim.SGD(server.parameters(), lr=0.1)
    path = session.compile(server, inputs, optimizer, output=tmp_path / "server.pef")
    # Whether a later process says it again does not matter: the PEF knows.
    again = (samba.randn(4, 5, name="cut"), inputs[1])
    outputs = samba.utils.trace_graph(server, again, optimizer, pef=path)
    reference = torch.optim.SGD(twin.parameters(), lr=0.1)
    for _ in range(3):
        cut, y = torch.randn(4, 5), torch.randint(3, (4,))
        given = samba.from_named_dict({"cut": cut.clone(), "y": y})
        loss, _ = session.run(list(given.values()), outputs)
        leaf = cut.requires_grad_()
        reference.zero_grad()
        expected, _ = twin(leaf, y)
        expected.backward()
        reference.step()
        torch.testing.assert_close(loss.torch(), expected.detach(), **TOLERANCE)
        torch.testing.assert_close(given["cut"].sn_grad, leaf.grad, **TOLERANCE)
    torch.testing.assert_close(server.layer.weight.sn_data, twin.layer.weight.data, **TOLERANCE)


def test_gradients_of_inputs_do_not_accumulate(session: SambaSession, tmp_path: Path) -> None:
    """Those of weights do: an input is another tensor in every run."""
    model = Server()
    twin = copy.deepcopy(model)
    samba.from_torch_model_(model)
    inputs = (samba.randn(4, 5, name="cut", requires_grad=True), samba.randint(3, (4,), name="y"))
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    path = session.compile(
        model, inputs, optimizer, output=tmp_path / "m.pef", gradient_accumulation=True
    )
    outputs = samba.utils.trace_graph(model, inputs, optimizer, pef=path)
    session.run(section_types=["ZEROGRAD"])
    for _ in range(2):
        cut, y = torch.randn(4, 5), torch.randint(3, (4,))
        given = samba.from_named_dict({"cut": cut.clone(), "y": y})
        session.run(list(given.values()), outputs, section_types=["FWD", "BCKWD"])
        leaf = cut.requires_grad_()
        twin(leaf, y)[0].backward()
        torch.testing.assert_close(given["cut"].sn_grad, leaf.grad, **TOLERANCE)
        torch.testing.assert_close(model.layer.weight.sn_grad, twin.layer.weight.grad, **TOLERANCE)


def test_a_program_for_inference_has_none(session: SambaSession, tmp_path: Path) -> None:
    model = ReLUNet()
    samba.from_torch_model_(model)
    x = samba.randn(2, 4, name="x", requires_grad=True)
    path = session.compile(model, (x,), output=tmp_path / "x.pef", inference=True)
    assert types_of(path) == {"FWD"}
    samba.utils.trace_graph(model, (x,), pef=path)
    with pytest.raises(NoDeviceError, match="an input that requires gradients"):
        _ = x.sn_grad
