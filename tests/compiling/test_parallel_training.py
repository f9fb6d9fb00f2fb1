"""Training steps on several RDUs, cut by weights and by batch: losses and weights are those of one RDU.

The program is the same before it is cut; sums are added in another order, and AdamW divides by roots of
squared gradients, so that float32 weights of magnitude 0.1 differ by 1e-6 at most, here after two steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypedDict

import numpy as np
import pytest
import torch
import transformers
from torch import nn

from samba_onnx.compiling.compiler import compile_programs
from samba_onnx.compiling.torch.torch_programs import (
    Training,
    named_inputs,
    trained_program,
)
from samba_onnx.export.programs.training_steps import optimizer_records
from samba_onnx.pef.manifest import Cause, Symbol
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.runtime.parallel_device import ParallelDevice, open_device

pytestmark = pytest.mark.slow

Make = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adamw(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01)


class Perceptron(nn.Module):
    """Two linear layers, a normalisation and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        scores = self.head(self.norm(self.down(self.up(x).relu())))
        return nn.functional.cross_entropy(scores, labels)


class Llama(nn.Module):
    """One layer with grouped heads."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.LlamaConfig(
            vocab_size=48, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
            num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=64, use_cache=False,
        )  # fmt: skip
        self.model = transformers.LlamaForCausalLM(config)

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = self.model(input_ids=ids).logits
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


class Chips(TypedDict, total=False):
    """For how many RDUs a program is cut, and how."""

    n_chips: int
    tensor_parallel: str


def trained(
    kind: type[nn.Module],
    inputs: tuple[torch.Tensor, ...],
    optimizer: Make,
    chips: Chips,
    folder: Path,
) -> tuple[list[float], dict[str, np.ndarray], list[Symbol]]:
    """Return losses of two steps, the weights behind them, and the symbols."""
    torch.manual_seed(0)
    model = kind()
    records = optimizer_records(model, [optimizer(model.parameters())])
    program, _ = trained_program(model, named_inputs(model, inputs), records, Training())
    members = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    members = {name.replace(".", "__"): value.detach() for name, value in members.items()}
    with (
        compile_programs([program], folder / "m.pef", **chips) as pef,
        open_device(pef, threads=1) as device,
    ):
        manifest = pef.manifest
        residents = [s for s in manifest.symbols if s.name in manifest.residents()]
        written = {name for stage in manifest.sections for name in stage.outputs}
        for symbol in residents:
            value = members.get(symbol.name.partition("__")[2])
            if symbol.kind is SymbolKind.GRADIENT and symbol.shape == ():
                device.write(symbol.name, np.ones((), np.float32))
            elif value is not None:
                device.load({symbol.name: value.numpy()})
            elif symbol.kind is SymbolKind.OPTIMIZER_STATE and symbol.name not in written:
                shape = [size for size in symbol.whole_shape or () if isinstance(size, int)]
                device.load({symbol.name: np.zeros(shape, np.float32)})
        (graph,), argins = manifest.graphs, {argin.name for argin in manifest.argins}
        names = [name for name in graph.inputs if name not in argins]
        given = {n: value.numpy() for n, value in zip(names, inputs, strict=True)}
        losses = [float(next(iter(device.run(given).values()))) for _ in range(2)]
        if isinstance(device, ParallelDevice):
            for one in device.devices:
                sent = [t for t in one.ledger.run() if t.cause is Cause.COLLECTIVE]
                assert sent == [t for t in graph.run_transfers if t.cause is Cause.COLLECTIVE]
        weights = {
            s.name: device.read(s.name)
            for s in residents
            if s.kind is SymbolKind.WEIGHT and s.name not in written and s.stored is None
        }
    return losses, weights, list(manifest.symbols)


CASES = [
    (Perceptron, sgd, "weight", 2), (Perceptron, adamw, "weight", 4), (Perceptron, sgd, "batch", 4),
    (Llama, adamw, "weight", 2), (Llama, sgd, "weight", 4), (Llama, adamw, "batch", 4),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "optimizer", "mode", "rdus"),
    CASES,
    ids=[f"{k.__name__}-{o.__name__}-{m}-{n}" for k, o, m, n in CASES],
)
def test_steps_are_those_of_one_rdu(
    kind: type[nn.Module], optimizer: Make, mode: str, rdus: int, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    inputs = (torch.randn(8, 8), torch.randint(0, 4, (8,)))
    if kind is Llama:
        inputs = (torch.randint(0, 48, (4, 6)), torch.randint(0, 48, (4, 6)))
    expected, wanted, whole = trained(kind, inputs, optimizer, {}, tmp_path)
    chips: Chips = {"n_chips": rdus, "tensor_parallel": mode}
    losses, weights, symbols = trained(kind, inputs, optimizer, chips, tmp_path)
    assert expected[1] < expected[0]
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    assert weights.keys() == wanted.keys()
    for name, value in weights.items():
        np.testing.assert_allclose(value, wanted[name], rtol=0, atol=2e-6, err_msg=name)
    sizes = {symbol.name: symbol.bytes or 0 for symbol in whole}
    for symbol in symbols:
        if symbol.kind is SymbolKind.OPTIMIZER_STATE and mode == "weight" and symbol.sharded:
            assert symbol.bytes == sizes[symbol.name] // rdus
    cut = [s for s in symbols if s.sharded and s.kind is SymbolKind.OPTIMIZER_STATE]
    assert bool(cut) is (mode == "weight")
