"""Dropouts of exported graphs: where they are, what they are called, what they compute by a mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, fx
from torch.nn import functional

from samba_onnx.errors import ModelError
from samba_onnx.export.decomposition import dropout
from samba_onnx.program.program import ArginSpec

ATEN = torch.ops.aten
SITE = dropout.Site(
    0, ArginSpec("rate", "tensor(float)", 0.0), ArginSpec("seed", "tensor(int32)", 0.0)
)


class Masked(dropout.Draw):
    """Keeps every second element, and notes the shapes of its masks."""

    shapes: ClassVar[list[tuple[int, ...]]] = []

    def mask(self, shape: Sequence[int]) -> Tensor:
        self.shapes.append(tuple(shape))
        size = torch.Size(shape)
        return (torch.arange(size.numel()) % 2 == 0).reshape(size)


@pytest.fixture
def shapes() -> list[tuple[int, ...]]:
    Masked.shapes.clear()
    return Masked.shapes


def node(target: Any, *arguments: Any, shape: Sequence[int] = (4, 6), **keywords: Any) -> fx.Node:
    graph = fx.Graph()
    places = {name: graph.placeholder(name) for name in ("x", "w")}
    for place in places.values():
        place.meta["val"] = torch.empty(tuple(shape))

    def argument(one: Any) -> Any:
        return fx.node.map_aggregate(one, lambda leaf: places.get(str(leaf), leaf))

    return graph.call_function(
        target, tuple(map(argument, arguments)), {k: argument(v) for k, v in keywords.items()}
    )


LSTM = ("x", ["x", "x"], ["w"], True)
DROPOUTS: list[tuple[fx.Node, str, float]] = [
    (node(ATEN.dropout.default, "x", 0.25, True), "dropout", 0.25),
    (node(ATEN.native_dropout.default, "x", 0.25, True), "dropout", 0.25),
    (node(ATEN.native_dropout.default, "x", 0.25, None), "dropout", 0.25),
    (node(ATEN.dropout.default, input="x", p=0.5, train=True), "dropout", 0.5),
    (node(ATEN.dropout_.default, "x", 0.5, True), "dropout", 0.5),
    (node(ATEN.alpha_dropout.default, "x", 0.5, True), "alphadropout", 0.5),
    (node(ATEN.feature_dropout.default, "x", 0.5, True), "dropout1d", 0.5),
    (node(ATEN.feature_dropout.default, "x", 0.5, True, shape=(2, 3, 4)), "dropout1d", 0.5),
    (node(ATEN.feature_dropout.default, "x", 0.5, True, shape=(1, 2, 3, 4)), "dropout2d", 0.5),
    (node(ATEN.feature_dropout.default, "x", 0.5, True, shape=(1, 2, 3, 4, 5)), "dropout3d", 0.5),
    (node(ATEN.feature_alpha_dropout.default, "x", 0.5, True), "featurealphadropout", 0.5),
    (node(ATEN.scaled_dot_product_attention.default, *"xxx", None, 0.125), "dropout", 0.125),
    (node(ATEN.lstm.input, *LSTM, 2, 0.5, True, False, False), "dropout", 0.5),
    (node(ATEN.rnn_tanh.input, "x", "x", ["w"], True, 2, 0.5, True, False, False), "dropout", 0.5),
    (node(ATEN.rnn_relu.input, "x", "x", ["w"], True, 2, 0.5, True, False, False), "dropout", 0.5),
    (node(ATEN.gru.input, "x", "x", ["w"], True, 3, 0.5, True, False, False), "dropout", 0.5),
]
OTHERS = [
    node(ATEN.dropout.default, "x", 0.25, False),
    node(ATEN.dropout.default, "x", 0.0, True),
    node(ATEN.feature_dropout.default, "x", 0.25, train=False),
    node(ATEN.scaled_dot_product_attention.default, *"xxx"),
    node(ATEN.lstm.input, *LSTM, 1, 0.5, True, False, False),
    node(ATEN.lstm.input, *LSTM, 2, 0.5, False, False, False),
    node(ATEN.relu.default, "x"),
    node(len, "x"),
    node(ATEN.relu.default, "x").all_input_nodes[0],
]


@pytest.mark.parametrize(("one", "kind", "rate"), DROPOUTS, ids=lambda value: str(value))
def test_a_dropout_has_a_rate_a_kind_and_a_place(one: fx.Node, kind: str, rate: float) -> None:
    assert dropout.rate_of(one) == rate
    wholly = not str(one.target).startswith(("aten.scaled", "aten.lstm", "aten.gru", "aten.rnn"))
    assert dropout.is_dropout(one) == wholly
    found = dropout.sites([*OTHERS, one], lambda node, name: f"module__{name}")
    assert found == {
        one: dropout.Site(
            0,
            ArginSpec(f"module__{kind}__rate", "tensor(float)", rate),
            ArginSpec(f"module__{kind}__seed", "tensor(int32)", 0.0),
        )
    }


@pytest.mark.parametrize("one", OTHERS, ids=str)
def test_what_drops_nothing_has_no_place(one: fx.Node) -> None:
    assert dropout.rate_of(one) == 0.0
    assert dropout.sites([one], lambda node, name: name) == {}
    assert not dropout.is_dropout(one) or "dropout" in str(one.target)


def test_places_are_numbered_in_order_and_ask_for_their_names() -> None:
    asked = []

    def names(one: fx.Node, kind: str) -> str:
        asked.append((one, kind))
        return f"d{len(asked)}"

    nodes = [one for one, _, _ in DROPOUTS]
    found = dropout.sites(nodes, names)
    assert asked == [(one, kind) for one, kind, _ in DROPOUTS]
    assert [found[one].stream for one in nodes] == list(range(len(nodes)))
    assert found[nodes[2]].rate.name == "d3__rate"


def draw(rate: float, dtype: torch.dtype = torch.float32) -> Masked:
    return Masked(SITE, torch.tensor(rate), torch.tensor(0, dtype=torch.int32))


@pytest.mark.parametrize("target", [ATEN.dropout.default, ATEN.native_dropout.default])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_what_is_kept_is_scaled_so_that_the_expectation_stays(
    target: Any, dtype: torch.dtype, shapes: list[tuple[int, ...]]
) -> None:
    x = torch.randn(4, 6, dtype=dtype)
    results = dropout.applied(node(target, "x", 0.5, True), draw(0.75), x)
    kept, mask = results if isinstance(results, tuple) else (results, None)
    assert kept.dtype == dtype
    torch.testing.assert_close(kept[:, ::2], 4 * x[:, ::2])
    assert not kept[:, 1::2].any()
    assert (mask is None) == (target is ATEN.dropout.default)
    if mask is not None:
        assert torch.equal(mask, kept != 0)
    assert shapes == [(4, 6)]


@pytest.mark.parametrize(
    ("target", "torchs", "mask"),
    [
        (ATEN.alpha_dropout.default, functional.alpha_dropout, (2, 3, 4, 5)),
        (ATEN.feature_alpha_dropout.default, functional.feature_alpha_dropout, (2, 3, 1, 1)),
    ],
)
def test_alpha_dropouts_are_torchs_where_the_mask_is(
    target: Any, torchs: Any, mask: tuple[int, ...], shapes: list[tuple[int, ...]]
) -> None:
    """torch's mask is random: from each of both sides comes one kept and one replaced value."""
    torch.manual_seed(0)
    x = torch.ones(2, 3, 4, 5)
    ours = dropout.applied(node(target, "x", 0.5, True), draw(0.3), x)
    assert isinstance(ours, Tensor)
    assert shapes == [mask]
    theirs = torch.unique(torch.cat([torchs(x, 0.3, training=True) for _ in range(9)]))
    torch.testing.assert_close(torch.unique(ours), theirs)
    kept = ours == ours.max()
    assert torch.equal(kept, draw(0.3).mask(mask).expand(x.shape))


def test_whole_channels_are_dropped(shapes: list[tuple[int, ...]]) -> None:
    x = torch.randn(2, 3, 4, 5)
    kept = dropout.applied(node(ATEN.feature_dropout.default, "x", 0.5, True), draw(0.5), x)
    assert isinstance(kept, Tensor)
    assert shapes == [(2, 3, 1, 1)]
    torch.testing.assert_close(kept.reshape(6, 20)[::2], 2 * x.reshape(6, 20)[::2])
    assert not kept.reshape(6, 20)[1::2].any()


@pytest.mark.parametrize("target", [ATEN.dropout.default, ATEN.alpha_dropout.default])
def test_at_rate_one_there_are_zeros(target: Any) -> None:
    zeros = dropout.applied(node(target, "x", 0.5, True), draw(1.0), torch.randn(4, 6))
    assert isinstance(zeros, Tensor)
    assert not zeros.any()


def test_random_numbers_are_refused() -> None:
    allowed = [OTHERS[-3], OTHERS[-2], node(torch.ops.samba.dropout_mask.default, "x", "x", [2], 0)]
    dropout.refuse_randomness(allowed)
    with pytest.raises(
        ModelError, match=r"aten.bernoulli.default in the model draws random numbers"
    ):
        dropout.refuse_randomness([*allowed, node(ATEN.bernoulli.default, "x")])
