"""Tensors by name, on host and device, between runs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import samba_onnx as samba
from samba_onnx.errors import InputError, NotTracedError, ScheduleError, UsageError
from samba_onnx.sessions import OrderedSet, SambaSession
from samba_onnx.sessions.tensor_access import TensorAccess
from samba_onnx.tensor.marks import Marks
from tests.sessions.conftest import Compiled, Parts


def test_values_are_read_by_tensor_name_and_region(
    session: SambaSession, compiled: Compiled
) -> None:
    outputs = compiled.trace()
    results = session.run(compiled.inputs, outputs)
    for read in (
        session.get_tensors(outputs),
        session.get_tensors_by_name([output.sn_name for output in outputs]),
    ):
        for one, other in zip(read, results, strict=True):
            assert one.sn_name == other.sn_name
            assert one.data_ptr() != other.data_ptr()
            torch.testing.assert_close(one.torch(), other.torch(), rtol=0, atol=0)
    assert not outputs[0].has_data
    (plain,) = session.get_tensors([outputs[0]])
    assert plain._marks == Marks(outputs[0].sn_name)
    outputs[0].sn_region_name = "elsewhere"
    (marked,) = session.get_tensors([outputs[0]])
    assert marked._marks == Marks(outputs[0].sn_name, "elsewhere")
    with pytest.raises(InputError, match="no tensor 'nothing'; traced were 'features'"):
        session.get_tensors_by_name(["nothing"])


def test_an_output_has_no_value_before_a_run(session: SambaSession, compiled: Compiled) -> None:
    outputs = compiled.trace()
    with pytest.raises(ScheduleError, match="has no value"):
        session.get_tensors(outputs)


def test_traced_tensors_are_found_and_updated(session: SambaSession, compiled: Compiled) -> None:
    outputs = compiled.trace()
    assert session.get_samba_tensor_by_name("features") is compiled.features
    weight = session.get_samba_tensor_by_name("classifier__outer__bias")
    assert weight is compiled.model.outer.bias
    before = compiled.model.outer.bias.data.clone()
    with session.expect_transfers(max_count=0):
        session.update_tensor("classifier__outer__bias", samba.ones(3))
    session.to_device()
    torch.testing.assert_close(compiled.model.outer.bias.sn_data, torch.ones(3))
    (_, logits) = session.run(None, outputs)
    torch.testing.assert_close(
        logits.torch(), compiled.expected(*compiled.inputs)[1], rtol=1e-5, atol=1e-6
    )
    session.update_tensor("classifier__outer__bias", before)
    with pytest.raises(InputError, match=r"of shape \[3\]; it was given .* \[4\]"):
        session.update_tensor("classifier__outer__bias", samba.ones(4))
    session.update_tensor("features", None)
    with pytest.raises(InputError, match="'features' was not traced"):
        session.get_samba_tensor_by_name("features")


def test_parameters_go_to_the_host_and_back(session: SambaSession, compiled: Compiled) -> None:
    compiled.trace()
    parameter = compiled.model.inner.bias
    before, memory = parameter.data.clone(), parameter.data_ptr()
    parameter.sn_data = torch.full((5,), 2.0)
    torch.testing.assert_close(parameter.data, before)
    session.to_cpu_(compiled.model)
    torch.testing.assert_close(parameter.data, torch.full((5,), 2.0))
    assert parameter.data_ptr() == memory
    parameter.data.copy_(before)
    session.to_rdu(compiled.model)
    torch.testing.assert_close(parameter.sn_data, before)
    session.to_cpu(compiled.model)
    assert parameter.data_ptr() != memory


def test_the_pef_is_asked_about_its_names(session: SambaSession, compiled: Compiled) -> None:
    session.reset(compiled.path)
    assert session.get_weight_names() == [
        f"classifier__{layer}__{key}" for layer in ("inner", "outer") for key in ("weight", "bias")
    ]
    assert session.get_argin_names() == OrderedSet()
    assert session.get_dropout_rate_argin_names() == session.get_dropout_seed_argin_names() == []
    assert session.get_section_types() == {"FWD"}


def test_traced_tensors_are_listed_by_group(session: SambaSession, compiled: Compiled) -> None:
    outputs = compiled.trace()
    groups = session.tensor_dict
    assert list(groups["inputs"]) == ["features", "shift"]
    assert list(groups["outputs"].values()) == list(outputs)
    assert list(groups["weights"]) == session.get_weight_names()
    assert len(list(session._state)) == 8
    for tensor in session._state:
        if tensor.has_data:
            tensor.rdu()
    assert session.dynamic_dims == {}
    assert session.optim_dict == {}


def test_access_needs_no_session(parts: Parts, compiled: Compiled) -> None:
    access = TensorAccess(parts.program, parts.state)
    with pytest.raises(NotTracedError):
        access.to_device()
    parts.tracer.trace(compiled.model, compiled.inputs, pef=compiled.path)
    before = compiled.features.data.clone()
    access.update_tensor("features", samba.ones(2, 4))
    (read,) = access.get_tensors_by_name("features")
    torch.testing.assert_close(read.torch(), before)
    access.to_device()
    (read,) = access.get_tensors(compiled.features)
    torch.testing.assert_close(read.torch(), torch.ones(2, 4))
    access.update_tensor("features", samba.from_torch_tensor(before))
    with pytest.raises(UsageError, match="was to become int"):
        access.update_tensor("features", 3)  # type: ignore[arg-type]
    access.update_tensor("features", None)
    assert "features" not in parts.state.tensors["inputs"]


def test_programs_write_to_the_device_by_name(session: SambaSession, compiled: Compiled) -> None:
    name, bias = "classifier__outer__bias", compiled.model.outer.bias
    with pytest.raises(NotTracedError):
        session.ctx.set_tensors({name: torch.ones(3)})
    compiled.trace()
    host = bias.data.clone()
    for value in (np.full(3, 2.0, np.float32), torch.full((3,), 4.0), samba.full((3,), 6.0)):
        session.ctx.set_tensors({name: value})
        assert torch.equal(bias.sn_data, samba.to_torch(torch.as_tensor(value)))
    assert torch.equal(bias.data, host)
    with pytest.raises(InputError, match="no tensor 'nothing'; traced were 'features'"):
        session.ctx.set_tensors({"nothing": np.ones(3)})
    with pytest.raises(InputError, match=r"\[4\]"):
        session.ctx.set_tensors({name: np.ones(4, np.float32)})
