"""What ``compile`` writes is compared first: refusals, mismatches, and what cannot be compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

import samba_onnx as samba
from samba_onnx.errors import EngineRefusalError, ExportMismatchError
from samba_onnx.export.operators import registry
from samba_onnx.export.programs import optimizers
from samba_onnx.export.translation.builder import GraphBuilder
from samba_onnx.graph import FwdGraph
from samba_onnx.pef import load_pef
from samba_onnx.runtime.device import Device
from samba_onnx.sessions import SambaSession
from tests.comparing.eager.planted import (
    LINE,
    REFUSED,
    Hopeless,
    Net,
    absent_update,
    batch,
    clumsy_batch,
    net,
    wrong_number,
    wrong_update,
)

Compile = Callable[..., str]


def notes(path: str | Path) -> tuple[str, ...]:
    with load_pef(path) as pef:
        return pef.manifest.notes


def inference(session: SambaSession, folder: Path, model: Net | None = None) -> str:
    model = net().eval() if model is None else model
    return session.compile(model, batch(), output=folder / "deep" / "m.pef")


def training(
    session: SambaSession, folder: Path, model: Net | None = None, inputs: Any = None
) -> str:
    model = net() if model is None else model
    samba.from_torch_model_(model)
    optimizer = samba.optim.AdamW(model.parameters(), lr=0.1, max_grad_norm=1.0)
    return session.compile(
        model,
        batch() if inputs is None else inputs,
        optimizer,
        output=folder / "deep" / "m.pef",
        gradient_accumulation=True,
    )


WAYS = {"inference": inference, "training": training}


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("operator", list(REFUSED))
def test_refused_operators(
    session: SambaSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    operator: str,
) -> None:
    monkeypatch.setitem(registry._TABLE, "silu", REFUSED[operator])
    with pytest.raises(EngineRefusalError, match=rf"FWD part.* {operator} at {LINE};"):
        WAYS[way](session, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("way", list(WAYS))
def test_wrong_numbers(
    session: SambaSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setitem(registry._TABLE, "silu", wrong_number)
    with pytest.raises(ExportMismatchError, match=rf"aten\.silu\.default at {LINE}"):
        WAYS[way](session, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("operator", list(REFUSED))
def test_refused_operators_of_the_backward(
    session: SambaSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operator: str
) -> None:
    monkeypatch.setitem(registry._TABLE, "silu_backward", REFUSED[operator])
    with pytest.raises(EngineRefusalError, match=rf"BCKWD part.* {operator} at {LINE};") as caught:
        training(session, tmp_path)
    assert caught.value.section_type == "BCKWD"
    assert list(tmp_path.iterdir()) == []


def test_wrong_numbers_of_the_backward(
    session: SambaSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry._TABLE, "silu_backward", wrong_number)
    with pytest.raises(ExportMismatchError, match="gradient of 'net__layer__"):
        training(session, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("inputs", [batch, clumsy_batch], ids=["compared", "not comparable"])
def test_refused_operators_of_the_optimizer(
    session: SambaSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inputs: Any
) -> None:
    monkeypatch.setattr(optimizers, "adam_update", absent_update)
    with pytest.raises(
        EngineRefusalError, match=r"OPT part.*operator Swirl, node 'net__"
    ) as caught:
        training(session, tmp_path, inputs=inputs())
    assert caught.value.section_type == "OPT"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("inputs", [batch, clumsy_batch], ids=["compared", "not comparable"])
def test_wrong_numbers_of_the_optimizer(
    session: SambaSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inputs: Any
) -> None:
    monkeypatch.setattr(optimizers, "adam_update", wrong_update)
    with pytest.raises(ExportMismatchError, match=r"step 1 of AdamW .* 'net__layer__"):
        training(session, tmp_path, inputs=inputs())
    assert list(tmp_path.iterdir()) == []


def test_gradients_that_are_not_set_to_zero_are_refused(
    session: SambaSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = GraphBuilder.full

    def ones(build: GraphBuilder, shape: Any, value: Any, *rest: Any) -> Any:
        return right(build, shape, 1 if value == 0 else value, *rest)

    monkeypatch.setattr(GraphBuilder, "full", ones)
    with pytest.raises(ExportMismatchError, match=r"sets 'net__layer__\w+__grad' to other numbers"):
        training(session, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_refused_operators_of_gradient_norms(
    session: SambaSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(build: GraphBuilder, value: Any) -> Any:
        return build.emit("Swirl", [value], value.dtype, ())

    monkeypatch.setattr(optimizers, "_sum_of_squares", absent)
    with pytest.raises(EngineRefusalError, match=r"GRADNORM part.*operator Swirl"):
        training(session, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_models_without_values_get_a_note(session: SambaSession, tmp_path: Path) -> None:
    note = "What was compiled is not compared with eager torch: parameter 'layer.weight' has no values."
    assert note in notes(inference(session, tmp_path, net().to("meta").eval()))
    assert note in notes(training(session, tmp_path, net().to("meta")))


def test_inputs_without_values_get_others(session: SambaSession, tmp_path: Path) -> None:
    x = samba.SambaTensor(shape=(2, 4), name="x")
    model = net().eval()
    path = session.compile(model, (x, batch()[1]), output=tmp_path / "m.pef")
    assert "is compared with eager torch on values of its own for 'x'." in notes(path)[-1]


def test_inputs_that_torch_refuses_get_others(session: SambaSession, tmp_path: Path) -> None:
    path = training(session, tmp_path, inputs=clumsy_batch())
    assert "is compared with eager torch on values of its own for 'target'." in notes(path)[-1]


def test_models_that_torch_refuses_get_a_note(session: SambaSession, tmp_path: Path) -> None:
    path = training(session, tmp_path, Hopeless(0.0))
    assert "torch itself fails on the given inputs, with IndexError: index" in notes(path)[-1]


def test_dropouts_get_a_note(session: SambaSession, tmp_path: Path) -> None:
    path = training(session, tmp_path, net(0.5).train())
    assert notes(path)[-1].endswith("eager torch with the rates of all dropouts at 0.")


@pytest.mark.parametrize("way", list(WAYS))
def test_what_is_compared_needs_no_note(session: SambaSession, tmp_path: Path, way: str) -> None:
    assert not any("compared" in note for note in notes(WAYS[way](session, tmp_path)))


def strange(operator: str) -> onnx.ModelProto:
    """Return an ONNX model with an operator of another domain, or one that draws numbers."""
    header = (
        '<ir_version: 10, opset_import: ["": 21, "acme": 1]> g (float[2, 4] x) => (float[2, 4] y)'
    )
    return onnx.parser.parse_model(f"{header} {{ t = Tanh(x) \n y = {operator}(t) }}")


def test_refused_operators_of_an_onnx_model(session: SambaSession, tmp_path: Path) -> None:
    with pytest.raises(EngineRefusalError, match="operator acme::Swirl"):
        session.compile(
            strange("acme.Swirl"), (samba.ones(2, 4, name="x"),), output=tmp_path / "m.pef"
        )
    assert list(tmp_path.iterdir()) == []


def test_wrong_numbers_of_an_onnx_model(
    session: SambaSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Device, "run", lambda self, inputs: {"y": np.zeros((2, 4), np.float32)})
    with pytest.raises(ExportMismatchError, match=r"than the ONNX model, for outputs \['y'\]"):
        session.compile(strange("Exp"), (samba.ones(2, 4, name="x"),), output=tmp_path / "m.pef")
    assert list(tmp_path.iterdir()) == []


def test_onnx_models_that_cannot_be_compared_get_a_note(
    session: SambaSession, tmp_path: Path
) -> None:
    x = samba.ones(2, 4, name="x")
    path = session.compile(strange("RandomNormalLike"), (x,), output=tmp_path / "m.pef")
    assert "RandomNormalLike draws other numbers in every run." in notes(path)[-1]
    shape = samba.SambaTensor(shape=(2, 4), name="x")
    path = session.compile(strange("Exp"), (shape,), output=tmp_path / "m.pef")
    assert "with the ONNX model on onnxruntime on values of its own for 'x'." in notes(path)[-1]


@pytest.mark.parametrize("operator", list(REFUSED))
def test_refused_operators_of_an_onnx_model_that_trains(
    session: SambaSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operator: str
) -> None:
    monkeypatch.setitem(registry._TABLE, "tanh_backward", REFUSED[operator])
    weight = np.ones((4, 3), np.float32)
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("MatMul", ["x", "weight"], ["product"]),
            onnx.helper.make_node("Tanh", ["product"], ["y"]),
        ],
        "trained",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 4])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 3])],
        [onnx.numpy_helper.from_array(weight, "weight")],
    )
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)])
    model = samba.from_onnx(proto)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(EngineRefusalError, match=rf"BCKWD part.* operator {operator}"):
        session.compile(model, (torch.ones(2, 4),), optimizer, output=tmp_path / "m.pef")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("operator", list(REFUSED))
def test_refused_operators_of_several_graphs(
    session: SambaSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operator: str
) -> None:
    monkeypatch.setitem(registry._TABLE, "silu", REFUSED[operator])
    model = net().eval()
    samba.from_torch_model_(model)
    inputs = tuple(samba.from_torch_tensor(t, name=n) for t, n in zip(batch(), "xy", strict=True))
    outputs = samba.utils.trace_multigraph(model, inputs)
    session.add_graph(FwdGraph(inputs, outputs, name="only"))
    with pytest.raises(EngineRefusalError, match=rf"FWD part.* {operator} at {LINE};"):
        session.compile_multigraph(output=tmp_path / "m.pef")
    assert list(tmp_path.iterdir()) == []
