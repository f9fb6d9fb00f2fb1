"""Runs that are repeated with as little as possible around them: what they take, and what they count."""

from __future__ import annotations

import pytest
import torch

import samba_onnx as samba
from samba_onnx.errors import UsageError
from samba_onnx.pef import Pef, load_pef
from samba_onnx.sessions import SambaSession, loaded
from samba_onnx.sessions.shortcuts import Shortcut
from tests.runtime.test_accounting import misplan
from tests.sessions.conftest import Compiled
from tests.sessions.test_runner import check, draw


def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Note for each run that comes to a shortcut whether it was made by it."""
    answers: list[bool] = []
    find = Shortcut.sources

    def noted(*arguments: object) -> object:
        sources = find(*arguments)  # type: ignore[arg-type]
        answers.append(sources is not None)
        return sources

    monkeypatch.setattr(Shortcut, "sources", noted)
    return answers


def conjugate(values: torch.Tensor) -> torch.Tensor:
    """The same values, in a view whose memory holds what they are the negative of."""
    view = torch.complex(torch.zeros_like(values), -values).conj().imag
    assert view.is_neg()
    assert torch.equal(view, values)
    return view


def test_only_plain_memory_is_copied_as_it_is(
    session: SambaSession, compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = compiled.trace()
    features, shift = draw(compiled)
    for _ in range(3):
        session.run([features, shift], outputs)
    answers = taken(monkeypatch)
    plain, offset = features.torch(), shift.torch()
    base = torch.empty(4, 2)
    forms = {
        "contiguous": (plain.clone(), True),
        "transposed": (base.copy_(plain.T).T, False),
        "negative": (conjugate(plain), False),
        "strided": (torch.stack([plain, plain], -1)[..., 0], False),
    }
    expected = compiled.expected(features, shift)
    for name, (form, is_taken) in forms.items():
        given = samba.from_torch_tensor(form, name="features")
        check(
            session.run([given, samba.from_torch_tensor(offset, name="shift")], outputs), expected
        )
        assert answers.pop() is is_taken, name


def test_a_negative_view_of_one_element_counts_as_contiguous(
    session: SambaSession, tmp_path: object
) -> None:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight + 1

    model = Scaled().eval()
    samba.from_torch_model_(model)
    x = samba.ones(1, name="x")
    path = session.compile(model, (x,), output=f"{tmp_path}/scaled.pef")
    outputs = samba.utils.trace_graph(model, (x,), pef=path)
    for _ in range(3):
        session.run([x], outputs)
    view = conjugate(torch.tensor([-2.0]))
    assert view.is_contiguous()
    (result,) = session.run([samba.from_torch_tensor(view, name="x")], outputs)
    assert result.torch().tolist() == [-1.0]


def test_tensors_without_memory_are_refused(session: SambaSession, compiled: Compiled) -> None:
    outputs = compiled.trace()
    features, shift = draw(compiled)
    for _ in range(3):
        session.run([features, shift], outputs)
    with torch.device("meta"):
        absent = torch.empty(2, 4)
    with pytest.raises(UsageError, match="on meta cannot be given to the device"):
        session.run([samba.from_torch_tensor(absent, name="features"), shift], outputs)
    sparse = samba.from_torch_tensor(features.torch().to_sparse(), name="features")
    with pytest.raises(UsageError, match="cannot be given to the device"):
        session.run([sparse, shift], outputs)


def test_bytes_are_those_of_the_tensors(
    session: SambaSession, compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the manifest says: here it says 4 more."""

    def misplanned(path: str) -> Pef:
        pef = load_pef(path)
        misplan(pef, {symbol.name for symbol in pef.manifest.symbols})
        return pef

    monkeypatch.setattr(loaded, "load_pef", misplanned)
    outputs = compiled.trace()
    inputs = draw(compiled)
    for _ in range(3):
        session.run(inputs, outputs)
    answers = taken(monkeypatch)
    session.transfers.reset()
    results = session.run(inputs, outputs)
    assert answers == [True]
    moved = [tensor.nbytes for tensor in (*inputs, *results)]
    assert [record.bytes for record in session.transfers] == moved
    session.transfers.reset()
    weight = compiled.model.outer.weight
    assert [weight.sn_data.nbytes] == [record.bytes for record in session.transfers]
