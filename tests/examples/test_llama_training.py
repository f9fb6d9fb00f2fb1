"""A Llama that begins with shapes only takes the steps that transformers' takes in eager torch."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import LlamaConfig, LlamaForCausalLM

from tests.examples.readme import DATA, run_section

RATE, WARMUP, DECAY, LARGEST_NORM = 0.001, 10, 0.1, 1.0


def plain_model(hidden: int, layers: int, length: int) -> LlamaForCausalLM:
    """With initial values that depend on the names of the parameters."""
    config = LlamaConfig(
        vocab_size=24,
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=length,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = LlamaForCausalLM(config)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            nn.init.normal_(parameter, std=0.02, generator=generator)
    return model


def batches(folder: Path, part: str, size: int, epoch: int) -> Iterator[tuple[Tensor, ...]]:
    """Yield tokens, those that follow, and the places whose following token is learned."""
    contents = []
    for path in sorted(folder.glob(f"{part}_*.hdf5")):
        with h5py.File(path) as file:
            contents.append((file["input_ids"][:], file["token_type_ids"][:]))
    ids, types = (
        torch.from_numpy(np.concatenate(arrays)) for arrays in zip(*contents, strict=True)
    )
    order = torch.Generator().manual_seed(epoch)
    data = TensorDataset(ids.long(), types)
    loader = DataLoader(data, size, shuffle=part == "train", drop_last=True, generator=order)
    for tokens, kinds in loader:
        # The token after the last one is in another sequence: it counts for nothing.
        yield tokens[:, :-1], tokens[:, 1:], (kinds[:, 1:] == 1) | (kinds[:, 1:] == 3)


def losses_of(model: LlamaForCausalLM, tokens: Tensor, following: Tensor) -> tuple[Tensor, Tensor]:
    logits = model(input_ids=tokens, use_cache=False).logits
    return nn.functional.cross_entropy(logits.mT, following, reduction="none"), logits


def rate_of(step: int, steps: int) -> float:
    if step < WARMUP:
        return RATE * (step + 1) / WARMUP
    return RATE * (0.1 + 0.9 * (1 + math.cos(math.pi * (step - WARMUP) / (steps - WARMUP))) / 2)


def train_eagerly(model: LlamaForCausalLM, folder: Path, size: int, epochs: int) -> list[float]:
    """Train a model; return the mean loss of every epoch."""
    groups = [
        [parameter for parameter in model.parameters() if parameter.ndim == dimensions]
        for dimensions in (2, 1)
    ]
    optimizers = [
        torch.optim.AdamW(group, betas=(0.9, 0.95), weight_decay=decay)
        for group, decay in zip(groups, (DECAY, 0.0), strict=True)
    ]
    data = [list(batches(folder, "train", size, epoch)) for epoch in range(epochs)]
    means = []
    for epoch, parts in enumerate(data):
        total = 0.0
        for number, (tokens, following, learned) in enumerate(parts):
            losses, _ = losses_of(model, tokens, following)
            loss = losses[learned].mean()
            model.zero_grad()
            loss.backward()
            for group, optimizer in zip(groups, optimizers, strict=True):
                nn.utils.clip_grad_norm_(group, LARGEST_NORM)
                step = epoch * len(parts) + number
                optimizer.param_groups[0]["lr"] = rate_of(step, epochs * len(parts))
                optimizer.step()
            total += loss.item()
        means.append(total / len(parts))
    return means


def printed_losses(output: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"Epoch \d+: loss (\S+)$", output, re.MULTILINE)]


def assert_same_model(folder: Path, expected: LlamaForCausalLM, tolerance: float) -> None:
    """What transformers loads from a folder is a model."""
    loaded = LlamaForCausalLM.from_pretrained(folder).state_dict()
    torch.testing.assert_close(dict(loaded), dict(expected.state_dict()), rtol=0, atol=tolerance)


@pytest.fixture
def data(run_here: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sixteen sequences of eight tokens, which are sums."""
    monkeypatch.chdir(tmp_path)
    run_here("data.py", "sums", "data", "--train", 22, "--dev", 8, "--max-seq-length", 8)
    return Path("data/sums/hdf5")


SIZES = ("-b", 4, "--max-seq-length", 8, "--hidden-size", 16, "--num-layers", 1)


def test_it_trains_as_in_eager_torch(
    run_here: Callable[..., None], data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two epochs of four steps from random numbers; 1e-6 is a thousandth of a step of AdamW."""
    run_here("llama_training.py", "compile", *SIZES, "--pef-name=a")
    run = ("llama_training.py", "run", *SIZES, "--pef=out/a/a.pef")
    capsys.readouterr()
    run_here(*run, "--num-epochs=2", "--save=b")
    model = plain_model(16, 1, 8)
    losses = train_eagerly(model, data, 4, 2)
    assert printed_losses(capsys.readouterr().out) == pytest.approx(losses, abs=2e-6)
    assert_same_model(Path("b"), model, 1e-6)


def test_it_goes_on_from_a_checkpoint_in_several_files(
    run_here: Callable[..., None], data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(1)
    model = LlamaForCausalLM(plain_model(16, 1, 8).config)
    model.save_pretrained("a", max_shard_size="5KB")
    assert Path("a/model.safetensors.index.json").exists()
    words = (*SIZES, "--checkpoint=a")
    run_here("llama_training.py", "compile", *words, "--pef-name=a")
    capsys.readouterr()
    run_here("llama_training.py", "run", *words, "--pef=out/a/a.pef", "--save=b")
    losses = train_eagerly(model, data, 4, 1)
    assert printed_losses(capsys.readouterr().out) == pytest.approx(losses, abs=2e-6)
    assert_same_model(Path("b"), model, 1e-6)


# CI runs those of the logistic regression, which go the same way.
@pytest.mark.exhaustive
@pytest.mark.slow
def test_all_commands_in_processes_of_their_own(tmp_path: Path) -> None:
    """As they are printed in the README: an epoch, three more from its checkpoint, inference.

    Torch in float32 and torch in float64 differ by 1e-6 then.
    """
    run_section(DATA, tmp_path)
    _, tested, first, second, _, told = run_section("Llama on shapes", tmp_path)
    assert tested == "RDU and CPU agree\n"
    data = tmp_path / "data" / "sums" / "hdf5"
    model = plain_model(64, 2, 32)
    assert printed_losses(first) == pytest.approx(train_eagerly(model, data, 8, 1), abs=1e-5)
    assert_same_model(tmp_path / "out" / "llama_first", model, 2e-5)
    losses = train_eagerly(model, data, 8, 3)
    assert losses[0] > losses[1] > losses[2]
    assert printed_losses(second) == pytest.approx(losses, abs=1e-5)
    assert_same_model(tmp_path / "out" / "llama_trained", model, 2e-5)
    ((tokens, following, learned),) = batches(data, "dev", 8, 0)
    with torch.no_grad():
        held_out, logits = losses_of(model, tokens, following)
    loss, accuracy = map(float, re.findall(r"[\d.]+", told))
    assert loss == pytest.approx(held_out[learned].mean().item(), abs=2e-5)
    right = (logits.argmax(-1) == following)[learned].double().mean().item()
    assert accuracy == pytest.approx(right, abs=1e-4)  # four digits
    assert right > 0.55  # half of the tokens are separators, which are learned first
