"""``sambaflow.samba``: its own names, its modules, and those of ``samba_onnx``."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch

import samba_onnx
from samba_onnx.errors import UnsupportedSymbolError, UsageError
from samba_onnx.sambaflow.sambacollections import OrderedSet
from samba_onnx.sessions import SESSION, SambaSession

pytestmark = pytest.mark.usefixtures("sambaflow")


@pytest.fixture
def samba(sambaflow: None) -> Any:
    return importlib.import_module("sambaflow.samba")


def test_the_session_stays_the_object_when_its_module_is_imported(samba: Any) -> None:
    module = importlib.import_module("sambaflow.samba.session")
    assert module.SambaSession is SambaSession
    assert samba.session is SESSION is module.session
    with pytest.raises(UsageError, match=r"samba\.session was set to a int"):
        samba.session = 3


def test_names_are_those_of_samba_onnx(samba: Any) -> None:
    assert samba.randn is samba_onnx.randn
    assert samba.addmm is samba_onnx.addmm
    assert samba.from_torch_ is samba_onnx.from_torch_model_
    assert samba.to_torch_tensor is samba_onnx.to_torch
    assert samba.utils is not samba_onnx.utils
    assert set(dir(samba)) >= {"session", "from_torch_", "conv2d", "SambaTensor"}
    assert all(hasattr(samba, name) for name in dir(samba))
    with pytest.raises(AttributeError, match=r"module 'sambaflow\.samba' has no attribute 'rann'"):
        _ = samba.rann


def test_functions_of_torch_are_sambas_inside_and_outside(samba: Any) -> None:
    x = samba.ones(2)
    with samba.patched_torch():
        assert isinstance(torch.add(x, x), samba.SambaTensor)
    assert isinstance(torch.add(x, x), samba.SambaTensor)
    assert samba.is_internal() is False


def test_what_nobody_published_is_refused_by_name(samba: Any) -> None:
    with pytest.raises(UnsupportedSymbolError, match=r"sambaflow\.samba\.groupby is not part"):
        samba.groupby(torch.ones(2), num_bins=4)


def test_modules_of_torch_are_under_nn(samba: Any) -> None:
    assert samba.nn.Linear is torch.nn.Linear
    assert samba.nn.parameter.SambaParameter is samba_onnx.SambaParameter
    assert "Linear" in dir(samba.nn)
    assert samba.functional.relu is samba_onnx.functional.relu
    assert samba.functional.stir.sn_imm is samba_onnx.sn_imm


def test_tensors_are_members_by_identity(samba: Any) -> None:
    first, second = samba.ones(2), samba.ones(2)
    members = OrderedSet([second, first, second])
    assert [id(member) for member in members] == [id(second), id(first)]
    assert samba.ones(2) not in members
    assert ("w", first) in OrderedSet([("w", first)])
    assert ("w", second) not in OrderedSet([("w", first)])
