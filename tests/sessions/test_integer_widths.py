"""Integers of other types than those that were traced, compiled, or share a region."""

from __future__ import annotations

import copy
import logging
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import samba_onnx as samba
from samba_onnx.errors import InputError, UsageError
from samba_onnx.graph import FwdGraph
from samba_onnx.pef import load_pef
from samba_onnx.sessions import SambaSession

TYPES = (torch.int16, torch.int32, torch.int64)


class Language(nn.Module):
    """Tokens and positions, their embeddings, and a loss of the next tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(10, 8)
        self.positions = nn.Embedding(6, 8)
        self.head = nn.Linear(8, 10)

    def forward(self, ids: Tensor, places: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.head(self.tokens(ids) + self.positions(places))
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten()), logits


def batch(dtype: torch.dtype) -> dict[str, Tensor]:
    ids = torch.tensor([[1, 5, 0, 9], [3, 3, 7, 2]])
    places = torch.arange(4).expand(2, 4).contiguous()
    return {n: t.to(dtype) for n, t in {"ids": ids, "places": places, "targets": 9 - ids}.items()}


@pytest.mark.parametrize("compiled", TYPES)
def test_a_language_model_trains_in_every_type(
    session: SambaSession, tmp_path: Path, compiled: torch.dtype
) -> None:
    torch.manual_seed(2)
    model = Language()
    twin = copy.deepcopy(model)
    samba.from_torch_model_(model)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.5)
    inputs = samba.from_named_dict(batch(compiled))
    path = session.compile(model, inputs, optimizer, output=tmp_path / "m.pef")
    outputs = samba.utils.trace_graph(model, inputs, optimizer, pef=path)
    reference = torch.optim.SGD(twin.parameters(), lr=0.5)
    for given in (*TYPES, *TYPES):
        loss, _ = session.run(samba.from_named_dict(batch(given)), outputs)
        reference.zero_grad()
        expected, _ = twin(**batch(torch.int64))
        expected.backward()
        reference.step()
        torch.testing.assert_close(samba.to_torch(loss), expected.detach(), rtol=1e-5, atol=1e-6)
    session.to_cpu(model)
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one.data, other.data, rtol=1e-5, atol=1e-6)
    loss, _ = model(*(samba.from_torch_tensor(t) for t in batch(torch.int16).values()))
    torch.testing.assert_close(samba.to_torch(loss), twin(**batch(torch.int64))[0])


class Doubling(nn.Module):
    def forward(self, ids: Tensor) -> Tensor:
        return ids * 2


def test_only_what_does_not_fit_is_refused(
    session: SambaSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = Doubling().eval()
    ids = samba.from_torch_tensor(torch.tensor([1, 2], dtype=torch.int32), name="some ids")
    path = session.compile(model, (ids,), output=tmp_path / "m.pef")
    (output,) = samba.utils.trace_graph(model, (ids,), pef=path)

    def run(*numbers: int, dtype: torch.dtype = torch.int64) -> list[int]:
        given = samba.from_torch_tensor(torch.tensor(numbers, dtype=dtype), name="some ids")
        (result,) = session.run((given,), (output,))
        assert result.dtype == torch.int32
        return list(result.tolist())

    with caplog.at_level(logging.WARNING):
        assert run(3, 4) == [6, 8]
        assert run(-3, 5) == [-6, 10]
    assert caplog.text.count("input 'some ids' is int64, compiled was int32") == 1
    with pytest.raises(InputError, match="holds 2147483648, which the compiled int32 cannot"):
        run(1, 1 << 31)
    with pytest.raises(InputError, match="give that shape and dtype"):
        run(1, 2, 3)
    with pytest.raises(InputError, match=r"torch.float32 of shape \[2\]"):
        run(1, 2, dtype=torch.float32)
    assert run(5, 6, dtype=torch.uint8) == [10, 12]


def test_the_device_alone_converts_in_every_run(session: SambaSession, tmp_path: Path) -> None:
    ids = samba.from_torch_tensor(torch.tensor([1, 2], dtype=torch.int32), name="ids")
    path = session.compile(Doubling().eval(), (ids,), output=tmp_path / "m.pef")
    with closing(load_pef(path)) as pef, samba.Device(pef) as device:
        for dtype in (np.int32, np.int64, np.int64, np.int64, np.uint8):
            (result,) = device.run({"ids": np.array([3, 200], dtype)}).values()
            assert result.tolist() == [6, 400]
            assert result.dtype == np.int32
        with pytest.raises(InputError, match="holds -2147483649"):
            device.run({"ids": np.array([0, -(1 << 31) - 1])})


def test_what_is_written_is_converted_too(session: SambaSession, tmp_path: Path) -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(2, dtype=torch.int32))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.count

    model = Counter().eval()
    samba.from_torch_model_(model)
    x = samba.zeros(2, name="x")
    path = session.compile(model, (x,), output=tmp_path / "m.pef")
    samba.utils.trace_graph(model, (x,), pef=path)
    buffer = session.buffer_dict["counter__count"]
    buffer.sn_data = torch.tensor([3, 4])
    assert buffer.sn_data.tolist() == [3, 4]
    with pytest.raises(InputError, match="holds 1099511627776"):
        buffer.sn_data = torch.tensor([1 << 40, 0])
    with pytest.raises(InputError, match=r"torch.float32; it has shape \(2,\), torch.int32"):
        buffer.sn_data = torch.ones(2)
    session.update_tensor("counter__count", samba.from_torch_tensor(torch.tensor([5, 6])))
    assert model.count.tolist() == [5, 6]
    assert model.count.dtype == torch.int32


class Next(nn.Module):
    """The next token, as argmax gives it: in int64."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 10)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids).argmax(-1)


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64])
def test_an_output_takes_the_type_of_its_region(
    session: SambaSession, tmp_path: Path, dtype: torch.dtype
) -> None:
    torch.manual_seed(1)
    model = Next().eval()
    ids = samba.from_torch_tensor(torch.tensor([1, 2, 3], dtype=dtype), name="ids")
    outputs = samba.utils.trace_multigraph(model, (ids,))
    outputs[0].sn_region_name = "ids"
    session.add_graph(FwdGraph((ids,), outputs, name="next"))
    path = session.compile_multigraph("next", output=tmp_path / "next.pef")
    session.init_multigraph_runtime(path)
    expected = torch.tensor([1, 2, 3])
    for given in ((ids,), (), ()):
        (result,) = session.run(given, outputs, graph_name="next")
        expected = model(expected)
        assert result.tolist() == expected.tolist()
    assert session.get_tensors_by_name(["ids"])[0].dtype == dtype


def test_the_region_may_be_that_of_another_graphs_input(
    session: SambaSession, tmp_path: Path
) -> None:
    class Largest(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.argmax(-1)

    first, second = Largest().eval(), nn.Embedding(5, 4).eval()
    samba.from_torch_model_(second)
    x = samba.from_torch_tensor(torch.eye(5)[[4, 0, 2]], name="x")
    ids = samba.from_torch_tensor(torch.zeros(3, dtype=torch.int16), name="ids")
    tokens = samba.utils.trace_multigraph(first, (x,))
    rows = samba.utils.trace_multigraph(second, (ids,))
    tokens[0].sn_region_name = "ids"
    session.add_graph(FwdGraph((x,), tokens, name="first"))
    session.add_graph(FwdGraph((ids,), rows, name="second"))
    path = session.compile_multigraph("both", output=tmp_path / "both.pef")
    session.init_multigraph_runtime(path)
    session.run((x,), [], graph_name="first")
    (result,) = session.run((), rows, graph_name="second")
    assert torch.equal(result.torch(), samba.to_torch(second.weight)[[4, 0, 2]])


def test_types_that_cannot_be_mixed_are_refused(session: SambaSession, tmp_path: Path) -> None:
    class Half(nn.Module):
        def forward(self, ids: Tensor) -> Tensor:
            return ids / 2

    ids = samba.from_torch_tensor(torch.tensor([1, 2, 3], dtype=torch.int32), name="ids")
    outputs = samba.utils.trace_multigraph(Half().eval(), (ids,))
    outputs[0].sn_region_name = "ids"
    session.add_graph(FwdGraph((ids,), outputs, name="half"))
    with pytest.raises(UsageError, match="of float is to share region 'ids' with 'ids' of int32"):
        session.compile_multigraph("half", output=tmp_path / "half.pef")
