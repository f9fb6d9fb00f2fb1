"""Runs that are compared bit for bit with an earlier one, and with the host for TensorBoard."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import samba_onnx as samba
from samba_onnx.errors import ModelFileError, UsageError
from samba_onnx.sambaflow.samba.test import TestWithGold, consistency_test
from samba_onnx.sambaflow.samba.utils.tensorboard_debug import dump_accuracy_debug_info
from samba_onnx.sessions import SESSION


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.layer(x)
        return nn.functional.cross_entropy(self.drop(logits), y), logits


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, ...]]:
    SESSION.reset()
    torch.manual_seed(1)
    model = Network()
    samba.from_torch_model_(model)
    inputs = (samba.randn(4, 5, name="x"), samba.randint(3, (4,), name="y"))
    optimizer = samba.optim.AdamW(model.parameters(), lr=0.1)
    path = tmp_path_factory.mktemp("pef") / "m.pef"
    yield model, inputs, optimizer, SESSION.compile(model, inputs, optimizer, output=path)
    SESSION.reset()


@pytest.fixture
def traced(compiled: tuple[Any, ...]) -> Any:
    """A model whose runs begin anew: the same weights, the same masks."""
    model, inputs, optimizer, pef = compiled
    torch.manual_seed(2)
    return SimpleNamespace(
        model=model,
        inputs=inputs,
        outputs=samba.utils.trace_graph(model, inputs, optimizer, pef=pef),
        again=lambda: samba.utils.trace_graph(model, inputs, optimizer, pef=pef),
    )


def test_the_same_run_has_the_same_bits(traced: Any, tmp_path: Path) -> None:
    gold = TestWithGold(Namespace(gold_file_path=str(tmp_path)), "net", traced.model, None, None)
    with pytest.raises(ModelFileError, match=r"net\.safetensors cannot be read .*save\(\) writes"):
        gold.test()
    gold.save()
    kept = load_file(tmp_path / "net.safetensors")
    assert {"layer.weight", "layer.weight.grad", "layer.bias", "layer.bias.grad"} < kept.keys()
    assert len(kept) == 6
    with pytest.raises(
        AssertionError, match=r"net: 6 of 6 tensors are not bit for bit what net\.s"
    ):
        gold.test()  # the weights have moved, and the masks are others
    torch.manual_seed(2)
    traced.again()
    gold.test()


def test_running_twice_changes_nothing(traced: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gold = TestWithGold(Namespace(gold_file_path="none"), "net", traced.model)
    before = traced.model.layer.weight.sn_data
    gold.consistency_test()
    assert torch.equal(traced.model.layer.weight.sn_data, before)
    monkeypatch.setattr(SESSION, "reset_random_generator", lambda: None)
    with pytest.raises(AssertionError, match=r"what the first run computed: .*layer\.weight\.grad"):
        gold.consistency_test()


def test_the_function_finds_the_module_wherever_it_stands(
    traced: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    consistency_test(Namespace(), traced.model, traced.inputs)
    consistency_test("net", inputs=traced.inputs, model=traced.model)
    with pytest.raises(UsageError, match="given no module"):
        consistency_test(Namespace(), traced.inputs)
    monkeypatch.setattr(SESSION, "reset_random_generator", lambda: None)
    with pytest.raises(AssertionError, match=r"Network: .* what the first run computed"):
        consistency_test(traced.model)


def test_without_a_gold_file_there_is_nothing_to_compare() -> None:
    with pytest.raises(UsageError, match="--gold-file-path FILE"):
        TestWithGold(Namespace(gold_file_path=None), "net", nn.ReLU())


class Writer:
    """What TensorBoard would show."""

    written: dict[str, Any]

    def __init__(self) -> None:
        Writer.written = {}

    def add_scalar(self, name: str, value: float) -> None:
        self.written[name] = value

    def add_histogram(self, name: str, values: torch.Tensor) -> None:
        self.written[name] = values

    def close(self) -> None:
        self.written["closed"] = True


def test_outputs_and_gradients_of_both_sides_are_written(
    traced: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer)
    )
    traced.model.drop.p = 0.0
    SESSION.run(traced.inputs, (), hyperparam_dict={"p": 0.0}, section_types=["FWD"])
    plain = nn.functional.linear(
        traced.inputs[0].torch(),
        *(p.torch() for p in (traced.model.layer.weight, traced.model.layer.bias)),
    )
    dump_accuracy_debug_info(Namespace(), traced.model, traced.inputs, traced.outputs)
    logits = traced.outputs[1].sn_name
    torch.testing.assert_close(Writer.written[f"outputs/{logits}/host"], plain.detach().double())
    for name in (
        f"outputs/{logits}",
        f"outputs/{traced.outputs[0].sn_name}",
        "gradients/layer.weight",
        "gradients/layer.bias",
    ):
        host, device, difference = (
            Writer.written[f"{name}/{key}"] for key in ("host", "device", "difference")
        )
        # A few float32 numbers, added in another order.
        torch.testing.assert_close(device, host, rtol=1e-5, atol=1e-6)
        assert host.abs().max() > 0.01
        assert torch.equal(difference, device - host)
        assert Writer.written[f"{name}/largest_difference"] == difference.abs().max()
        assert Writer.written[f"{name}/mean_difference"] == difference.abs().mean()
    assert Writer.written["closed"]


def test_tensorboard_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UsageError, match=r"needs TensorBoard.*pip install tensorboard"):
        dump_accuracy_debug_info(Namespace(), nn.ReLU(), (), ())
