"""Models in training mode that are compiled to run forward only: their dropouts have argins."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import samba_onnx as samba
from samba_onnx.sessions import SambaSession


class Model(nn.Module):
    def __init__(self, body: Callable[[Model, Tensor], Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.dropout = nn.Dropout(0.3)
        self.channels = nn.Dropout2d(0.4)
        self.alpha = nn.AlphaDropout(0.2)
        self.features = nn.FeatureAlphaDropout(0.2)
        self.recurrent = nn.LSTM(6, 5, 2, dropout=0.4, batch_first=True)
        self.encoder = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.1, batch_first=True)
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self, self.linear(x))


def _without_gradients(model: Model, x: Tensor) -> Tensor:
    with torch.no_grad():
        dropped = model.dropout(x)
    return x + dropped


def _attention(model: Model, x: Tensor) -> Tensor:
    rate = 0.2 if model.training else 0.0
    return functional.scaled_dot_product_attention(x, x, x, dropout_p=rate)


BODIES: dict[str, Callable[[Model, Tensor], Tensor]] = {
    "dropout": lambda m, x: m.dropout(x),
    "twice": lambda m, x: m.dropout(torch.relu(m.dropout(x))),
    "channels": lambda m, x: m.channels(x.unsqueeze(-1)),
    "alpha": lambda m, x: m.alpha(x),
    "features": lambda m, x: m.features(x.unsqueeze(-1)),
    "recurrent": lambda m, x: m.recurrent(x)[0],
    "recurrent state": lambda m, x: m.recurrent(x)[1][0],
    "encoder": lambda m, x: m.encoder(x),
    "attention": _attention,
    "in place": lambda m, x: functional.dropout(x * 1, 0.5, m.training, inplace=True),
    "native": lambda m, x: torch.native_dropout(x, 0.3, m.training)[0],
    "without gradients": _without_gradients,
}
RATES = {"twice": 2, "encoder": 4}


@pytest.mark.parametrize("name", BODIES)
def test_rates_are_set_by_runs(
    session: SambaSession, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(3)
    model = Model(BODIES[name]).train()
    expected = copy.deepcopy(model).eval()(torch.ones(4, 8, 6)).detach()
    samba.from_torch_model_(model)
    x = samba.from_torch_tensor(torch.ones(4, 8, 6), name="x")
    with caplog.at_level(logging.WARNING):
        path = session.compile(model, (x,), output=tmp_path / "m.pef")
    rates = session_rates(session, model, x, path)
    assert len(rates) == RATES.get(name, 1)
    assert f"Model is in training mode: its dropouts ({len(rates)}) are" in caplog.text

    def run(**options: object) -> Tensor:
        (result,) = session.run((x,), model.output_tensors, **options)
        return samba.to_torch(result)

    assert not torch.equal(run(), run())
    torch.testing.assert_close(run(train=False), expected)
    assert not torch.equal(run(), expected)
    torch.testing.assert_close(run(hyperparam_dict={"p": 0.0}), expected)
    torch.testing.assert_close(run(), expected)
    assert not torch.equal(run(hyperparam_dict={rates[0]: 0.5}), expected)


def session_rates(
    session: SambaSession, model: Model, x: samba.SambaTensor, path: str
) -> list[str]:
    samba.utils.trace_graph(model, (x,), pef=path)
    return list(session.get_dropout_rate_argin_names())


def test_values_are_dropped_at_the_rate_and_scaled(session: SambaSession, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Dropout(0.25)).train()
    x = samba.from_torch_tensor(torch.ones(100, 100), name="x")
    path = session.compile(model, (x,), output=tmp_path / "m.pef")
    outputs = samba.utils.trace_graph(model, (x,), pef=path)
    for rate, options in ((0.25, {}), (0.5, {"p": 0.5}), (1.0, {"p": 1.0})):
        values = samba.to_torch(session.run((x,), outputs, options)[0])
        kept = values[values != 0]
        assert abs(1 - len(kept) / 10_000 - rate) < 0.03
        torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - rate) if rate < 1 else 0.0))


def test_names_are_those_of_the_training_program(session: SambaSession, tmp_path: Path) -> None:
    model = Model(BODIES["encoder"]).train()
    samba.from_torch_model_(model)
    x = samba.from_torch_tensor(torch.ones(4, 8, 6), name="x")
    path = session.compile(model, (x,), output=tmp_path / "forward.pef")
    forward = session_rates(session, model, x, path)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    path = session.compile(model, (x,), optimizer, output=tmp_path / "training.pef")
    samba.utils.trace_graph(model, (x,), optimizer, pef=path)
    assert list(session.get_dropout_rate_argin_names()) == forward


def test_several_graphs_may_drop(session: SambaSession, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5)).train()
    samba.from_torch_model_(model)
    x = samba.from_torch_tensor(torch.ones(4, 6), name="x")
    outputs = samba.utils.trace_multigraph(model, (x,))
    session.add_graph(samba.graph.FwdGraph((x,), outputs, name="one"))
    path = session.compile_multigraph("several", output=tmp_path / "several.pef")
    session.init_multigraph_runtime(path)
    (result,) = session.run((x,), outputs, {"p": 0.0}, graph_name="one")
    torch.testing.assert_close(samba.to_torch(result), samba.to_torch(model[0](x)).detach())
