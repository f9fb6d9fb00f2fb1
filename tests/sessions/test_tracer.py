"""Tracing: which PEF fits which model, and what moves to the device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import samba_onnx as samba
from samba_onnx.errors import (
    DeviceError,
    GraphMismatchError,
    InputError,
    NoDeviceError,
    NotTracedError,
    PefError,
    UsageError,
)
from samba_onnx.pef.manifest import Cause
from samba_onnx.sessions import SambaSession
from samba_onnx.sessions.session_options import SessionOptions
from samba_onnx.version import __version__
from tests.sessions.conftest import Compiled, Parts
from tests.sessions.modules import Classifier, Counter, Nested


class Wider(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 6)
        self.outer = nn.Linear(6, 3)

    forward = Classifier.forward


class Sharper(Classifier):
    def forward(self, features: torch.Tensor, shift: torch.Tensor) -> tuple[torch.Tensor, ...]:
        logits = self.outer(torch.tanh(self.inner(features))) + shift
        return torch.softmax(logits, -1), logits


def named(kind: type[nn.Module]) -> nn.Module:
    """A module of another class that has the names of the one that was compiled."""
    return type("Classifier", (kind,), {})().eval()


def test_outputs_have_names_and_no_values(compiled: Compiled) -> None:
    probabilities, logits = compiled.trace()
    assert probabilities.sn_name == "classifier__softmax__outputs__0"
    assert (probabilities.shape, probabilities.dtype) == ((2, 3), torch.float32)
    assert not probabilities.has_data
    assert logits.sn_name != probabilities.sn_name


def test_weights_and_inputs_are_sent_unless_told_otherwise(
    session: SambaSession, compiled: Compiled
) -> None:
    compiled.trace()
    sizes = {move.symbol: (move.bytes, move.cause) for move in session.transfers}
    assert sizes["classifier__inner__weight"] == (80, Cause.WEIGHT)
    assert sizes["features"] == (32, Cause.EXPLICIT)
    assert len(sizes) == 6
    compiled.trace(transfer_device=False)
    assert session.transfers.count == 0
    with pytest.raises(Exception, match="classifier__inner__weight"):
        _ = compiled.model.inner.weight.sn_data
    session.to_device()
    torch.testing.assert_close(
        compiled.model.inner.weight.sn_data, compiled.model.inner.weight.data
    )
    torch.testing.assert_close(compiled.features.sn_data, compiled.features.data)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            Wider,
            r"the PEF has weight 'classifier__inner__weight' float\[5, 4\]; the model has .*6, 4",
        ),
        (Sharper, "node .* of FWD: the PEF has Relu, the model Tanh"),
    ],
)
def test_another_model_is_refused_and_the_first_difference_named(
    compiled: Compiled, other: type[nn.Module], message: str
) -> None:
    with pytest.raises(GraphMismatchError, match=message):
        samba.utils.trace_graph(named(other), compiled.inputs, pef=compiled.path)


def test_inputs_of_another_shape_are_refused(compiled: Compiled) -> None:
    inputs = (samba.randn(3, 4, name="features"), compiled.shift)
    with pytest.raises(GraphMismatchError, match="input 'features'"):
        samba.utils.trace_graph(compiled.model, inputs, pef=compiled.path)


def test_a_module_that_was_not_converted_works_as_well(
    session: SambaSession, compiled: Compiled
) -> None:
    plain = Classifier().eval()
    outputs = samba.utils.trace_graph(plain, compiled.inputs, pef=compiled.path)
    assert type(plain.inner.weight) is nn.Parameter
    with torch.no_grad():
        expected = plain(*[t.torch() for t in compiled.inputs])
    for result, wanted in zip(session.run(compiled.inputs, outputs), expected, strict=True):
        torch.testing.assert_close(result.torch(), wanted, rtol=1e-5, atol=1e-6)
    before = plain.inner.weight
    session.get_samba_tensor_by_name("classifier__inner__weight").sn_data = torch.ones(5, 4)
    session.to_cpu(plain)
    assert plain.inner.weight is before
    torch.testing.assert_close(before.detach(), torch.ones(5, 4))


def test_nested_inputs_and_outputs(session: SambaSession, tmp_path: Path) -> None:
    left, right, bias = (samba.randn(2, 3, name=name) for name in ("left", "right", "bias"))
    unused = samba.randn(5, name="unused")
    model = Nested()
    inputs = {
        "pair": (left, right),
        "options": {"bias": bias, "other": None},
        "unused": unused,
        "flag": True,
    }
    path = session.compile(model, inputs, output=tmp_path / "nested.pef")
    total, doubled, tripled = samba.utils.trace_graph(model, inputs, pef=path)
    results = session.run([right, left, bias, unused], [tripled, total, doubled])
    expected = (right * 3, left - right + bias, left * 2)
    for result, wanted in zip(results, expected, strict=True):
        torch.testing.assert_close(result.torch(), samba.to_torch(wanted))


def test_inputs_without_a_name_are_called_as_forward_calls_them(
    session: SambaSession, tmp_path: Path
) -> None:
    model = Classifier().eval()
    features, shift = torch.randn(2, 4), samba.randn(3)
    path = session.compile(model, (features, shift), output=tmp_path / "named.pef")
    outputs = samba.utils.trace_graph(model, (features, shift), pef=path)
    assert shift.sn_name == "shift"
    (result,) = session.run({"features": features, "shift": shift}, outputs[1])
    with torch.no_grad():
        torch.testing.assert_close(result.torch(), model(features, shift.torch())[1])


def test_buffers_that_a_run_changes_come_back_on_request(
    session: SambaSession, tmp_path: Path
) -> None:
    model = Counter().eval()
    samba.from_torch_model_(model)
    x = samba.ones(2, 3, name="x")
    path = session.compile(model, (x,), output=tmp_path / "counter.pef")
    assert model.total.sum() == 0
    outputs = samba.utils.trace_graph(model, (x,), pef=path)
    for count in (1, 2, 3):
        (result,) = session.run([x], outputs)
        torch.testing.assert_close(result.torch(), torch.full((2, 3), 1.0 + 2.0 * count))
    assert model.total.sum() == 0
    buffer = model.total
    session.sync_buffers_to_cpu(model, inplace=True)
    torch.testing.assert_close(buffer, torch.full((3,), 6.0))
    session.buffer_dict["counter__total"].data.zero_()
    session.sync_buffers_to_rdu(model)
    (result,) = session.run([x], outputs)
    torch.testing.assert_close(result.torch(), torch.full((2, 3), 3.0))


def test_arguments_are_checked(session: SambaSession, compiled: Compiled) -> None:
    with pytest.raises(NotTracedError, match="has no PEF"):
        samba.utils.trace_graph(compiled.model, compiled.inputs)
    with pytest.raises(UsageError, match="section, spatial"):
        compiled.trace(mapping="everywhere")
    with pytest.raises(UsageError, match="normal, inorder, optimal"):
        compiled.trace(data_parallel_mode="fast")
    with pytest.raises(UsageError, match=r"give a torch\.nn\.Module, an onnx"):
        samba.utils.trace_graph(3, compiled.inputs, pef=compiled.path)
    with pytest.raises(UsageError, match="inputs are int"):
        samba.utils.trace_graph(compiled.model, 3, pef=compiled.path)
    twice = (samba.randn(2, 4, name="same"), samba.randn(3, name="same"))
    with pytest.raises(UsageError, match="two inputs are called 'same'"):
        samba.utils.trace_graph(compiled.model, twice, pef=compiled.path)


def test_reset_begins_anew_in_place(session: SambaSession, compiled: Compiled) -> None:
    compiled.trace()
    same = samba.session
    session.reset()
    assert samba.session is same is session
    assert session.transfers.count == 0
    with pytest.raises(NotTracedError):
        session.get_argin_names()
    with pytest.raises(NoDeviceError):
        session.to_cpu(compiled.model)
    with pytest.raises(InputError, match="traced were none"):
        session.get_samba_tensor_by_name("features")


def test_a_tracer_fills_program_and_state(parts: Parts, compiled: Compiled, tmp_path: Path) -> None:
    with pytest.raises(NotTracedError, match="no PEF"):
        parts.tracer.trace(compiled.model, compiled.inputs)
    outputs = parts.tracer.trace(compiled.model, compiled.inputs, pef=compiled.path)
    device = parts.program.required_device()
    assert parts.state.graphs["forward"].outputs == outputs
    assert list(parts.state.tensors["inputs"]) == ["features", "shift"]
    np.testing.assert_array_equal(
        device.read("classifier__outer__bias"), compiled.model.outer.bias.data.numpy()
    )
    # What cannot be loaded changes nothing; another PEF takes the place of the first.
    with pytest.raises(PefError):
        parts.tracer.load(tmp_path)
    assert parts.program.device is device
    parts.tracer.load(compiled.path)
    assert parts.program.device is None
    assert parts.state.graphs == {}
    with pytest.raises(DeviceError, match="closed"):
        device.read("features")


def test_a_tracer_keeps_the_traces_of_several_graphs(parts: Parts, compiled: Compiled) -> None:
    first = parts.tracer.trace_multigraph(compiled.model, compiled.inputs)
    second = parts.tracer.trace_multigraph(compiled.model, compiled.inputs, trace_prefix="again")
    assert [traced.outputs for traced in parts.traces.traces] == [first, second]
    assert parts.traces.output_names == {tensor.sn_name for tensor in (*first, *second)}
    assert second[0].sn_name == f"again__{first[0].sn_name}"
    parts.tracer.init_multigraph_runtime(compiled.path)
    assert parts.state.graphs["forward"].outputs == first
    parts.traces.traces.clear()
    with pytest.raises(GraphMismatchError, match="none of those that were traced"):
        parts.tracer.init_multigraph_runtime(compiled.path)


def test_a_traced_model_is_saved_whole(session: SambaSession, tmp_path: Path) -> None:
    """``torch.save(model)``, as programs do after training, with ``output_tensors`` on the module."""
    model = nn.Linear(3, 2)
    samba.from_torch_model_(model)
    x = samba.ones(1, 3, name="x")
    path = session.compile(model, (x,), output=tmp_path / "m.pef")
    outputs = samba.utils.trace_graph(model, (x,), pef=path)
    torch.save(model, tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    assert torch.equal(loaded.weight, model.weight.torch())
    (kept,) = loaded.output_tensors
    assert (kept.is_meta, kept.shape, kept.dtype) == (True, outputs[0].shape, outputs[0].dtype)
    # A tensor that is no output, and has lost its values, is not saved without them in silence.
    x.clear_data()
    with pytest.raises(UsageError, match="tensor 'x' of shape"):
        torch.save(x, tmp_path / "x.pt")


def test_what_a_mapping_was_compiled_for_is_said_with_the_pef(compiled: Compiled) -> None:
    with pytest.raises(UsageError, match=f"^{compiled.path} was compiled for mapping 'section'"):
        compiled.trace(mapping="spatial")


def test_optimizers_of_a_program_that_only_runs_forward(
    parts: Parts, compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, weights = compiled.model, compiled.model.parameters()
    optimizers = [torch.optim.SGD([next(weights)], 0.1), torch.optim.Adam([next(weights)], 0.1)]
    given = r"has no backward pass, but trace_graph was given SGD, Adam: to train"
    with pytest.raises(UsageError, match=given):
        parts.tracer.trace(model, compiled.inputs, optimizers, pef=compiled.path)
    monkeypatch.setattr(SessionOptions, "command_line", {"inference": True})
    outputs = parts.tracer.trace(model, compiled.inputs, optimizers, pef=compiled.path)
    assert len(outputs) == 2


def test_another_version_is_named(
    parts: Parts, compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusal() -> str:
        with pytest.raises(GraphMismatchError) as error:
            parts.tracer.trace(named(Sharper), compiled.inputs, pef=compiled.path)
        return str(error.value)

    same = f"{compiled.path} was compiled from another model than this Classifier: node"
    assert refusal().startswith(same)
    monkeypatch.setattr("samba_onnx.sessions.trace_checks.__version__", "0.0")
    wrote = f"{compiled.path} (samba-onnx {__version__} wrote it) was compiled from another model"
    assert refusal().startswith(wrote)


def test_no_trace_for_a_graph_is_told_with_the_first_difference(
    parts: Parts, compiled: Compiled
) -> None:
    other = r"those that were traced: .*Trace all graphs with"
    none = r"^graph 'forward' of .* is none of those that were traced\. Trace all graphs with"
    with pytest.raises(GraphMismatchError, match=none):
        parts.tracer.init_multigraph_runtime(compiled.path)
    parts.tracer.trace_multigraph(named(Sharper), compiled.inputs)
    parts.tracer.trace_multigraph(named(Wider), compiled.inputs)
    with pytest.raises(GraphMismatchError, match=other) as error:
        parts.tracer.init_multigraph_runtime(compiled.path)
    assert "the model Tanh" in str(error.value)


@pytest.mark.parametrize(
    ("losses", "places"),
    [(None, [0, 1]), (1, [1]), ([0], [0]), ([1, (0,)], [0, 1]), ([(0, 1)], [0, 1]), ([], [])],
)
def test_ones_are_the_gradients_of_losses(
    parts: Parts,
    compiled: Compiled,
    monkeypatch: pytest.MonkeyPatch,
    losses: object,
    places: list[int],
) -> None:
    asked: list[list[samba.SambaTensor]] = []
    monkeypatch.setattr(parts.tracer, "set_output_grads", asked.append)
    options = {"pef": compiled.path, "loss_indices": losses}
    outputs = parts.tracer.trace(compiled.model, compiled.inputs, **options)
    assert asked == [[outputs[place] for place in places]]


class Second(nn.Module):
    def forward(self, unread: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_inputs_without_values_or_readers_do_not_keep_others_back(
    session: SambaSession, tmp_path: Path
) -> None:
    unread, x = samba.ones(2, name="unread"), samba.ones(3, name="x")
    path = session.compile(Second(), (unread, x), output=tmp_path / "m.pef", check=False)
    empty = samba.SambaTensor(shape=(2,), dtype=torch.float32, name="unread")
    for first in (unread, empty):
        outputs = samba.utils.trace_graph(Second(), (first, x), pef=path)
        (made,) = session.run(None, outputs)
        assert made.torch().tolist() == [2, 2, 2]
