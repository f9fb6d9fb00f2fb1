"""GPT-2 that is fine-tuned on the device takes the steps that it takes in eager torch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel

from tests.examples.launching import launch, make_data

pytestmark = pytest.mark.slow

LENGTH, BATCH, EPOCHS, VOCABULARY = 16, 4, 2, 24
RATE, WARMUP, PROMPT_WEIGHT, DECAY, LARGEST_NORM = 3e-3, 3, 0.1, 0.1, 0.5
SIZES = ("--n-embd", 16, "--n-layer", 2, "--n-head", 2, "--max-seq-length", LENGTH, "-b", BATCH)
MODEL = (*SIZES, "--dropout", 0, "--max-grad-norm", LARGEST_NORM)


def plain_model() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=16,
        n_layer=2,
        n_head=2,
        n_positions=LENGTH,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
    )
    return GPT2LMHeadModel(config).train()


def read(folder: Path, part: str) -> tuple[Tensor, Tensor]:
    """Tokens and their types."""
    contents = []
    for path in sorted(folder.glob(f"{part}_*.hdf5")):
        with h5py.File(path) as file:
            contents.append((file["input_ids"][:], file["token_type_ids"][:]))
    ids, types = (
        torch.from_numpy(np.concatenate(arrays)) for arrays in zip(*contents, strict=True)
    )
    return ids.long(), types


def batches(folder: Path, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
    ids, types = read(folder, "train")
    order = torch.Generator().manual_seed(epoch)
    places = range(len(ids))
    for chosen in DataLoader(places, BATCH, shuffle=True, drop_last=True, generator=order):  # type: ignore[arg-type,var-annotated]
        yield ids[chosen], types[chosen]


def next_token_losses(model: GPT2LMHeadModel, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Losses and logits of all tokens but the first."""
    logits = model(ids, use_cache=False).logits[:, :-1]
    losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
    return losses, logits


def tune(model: GPT2LMHeadModel, folder: Path) -> list[float]:
    """Train in eager torch; returns the losses before the steps."""
    groups: dict[str, list[Tensor]] = {"embedding": [], "matrix": [], "other": []}
    for name, parameter in model.named_parameters():
        kind = "embedding" if "wte" in name or "wpe" in name else "matrix"
        groups["other" if parameter.ndim == 1 else kind].append(parameter)
    optimizers = [
        torch.optim.AdamW(
            parameters, betas=(0.9, 0.997), weight_decay=0.0 if kind == "other" else DECAY
        )
        for kind, parameters in groups.items()
    ]
    losses = []
    for epoch in range(EPOCHS):
        for ids, types in batches(folder, epoch):
            model.zero_grad()
            weights = torch.tensor([PROMPT_WEIGHT, 1.0, 0.0, 1.0])[types[:, 1:].long()]
            loss = (next_token_losses(model, ids)[0] * weights).sum() / weights.sum()
            loss.backward()
            losses.append(loss.item())
            for optimizer in optimizers:
                torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], LARGEST_NORM)
                optimizer.param_groups[0]["lr"] = RATE * min(1.0, len(losses) / WARMUP)
                optimizer.step()
    return losses


def evaluate(model: GPT2LMHeadModel, folder: Path) -> tuple[int, float, float]:
    """Tokens of completions, their mean loss, and how many of them are predicted."""
    ids, types = read(folder, "dev")
    ids, types = (values[: len(values) // BATCH * BATCH] for values in (ids, types))
    with torch.no_grad():
        losses, logits = next_token_losses(model.eval(), ids)
    chosen = (types[:, 1:] == 1) | (types[:, 1:] == 3)
    right = (logits.argmax(-1) == ids[:, 1:])[chosen]
    return int(chosen.sum()), float(losses[chosen].mean()), float(right.float().mean())


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and a PEF."""
    folder = tmp_path_factory.mktemp("gpt2")
    make_data(folder, "sums", "data", "--train", 80, "--dev", 32, "--max-seq-length", LENGTH)
    launch("gpt2_finetune.py", "compile", *MODEL, "--pef-name", "tuning", folder=folder)
    assert (folder / "out" / "tuning" / "tuning.pef").is_file()
    return folder


def test_losses_weights_and_evaluation_are_those_of_eager_torch(work: Path) -> None:
    """Both compute in float32.

    Losses differ by the roundings of some ten operations on numbers near 3. Adam divides a gradient
    by its own size: what is nothing but rounding, such as the gradient of the keys' bias, to which
    a softmax is blind, may so move a weight by the whole learning rate in every step.
    """
    data = work / "data" / "sums" / "hdf5"
    pef = ("--pef", "out/tuning/tuning.pef", "--data-dir", data)
    schedule = ("-lr", RATE, "--warmup-steps", WARMUP, "--num-epochs", EPOCHS)
    printed = launch(
        "gpt2_finetune.py", "run", *MODEL, *pef, *schedule, "--save", "tuned.pt", folder=work
    )
    model = plain_model()
    expected = tune(model, data)
    losses = [float(text) for text in re.findall(r"loss (\S+)", printed)]
    assert len(losses) == len(expected) == EPOCHS * (80 * 6 // LENGTH // BATCH)
    np.testing.assert_allclose(losses, expected, rtol=2e-6)
    assert losses[-1] < losses[0] - 0.1

    tuned = torch.load(work / "tuned.pt")
    for name, value in model.state_dict().items():
        if name.endswith("c_attn.bias"):
            keys = slice(16, 32)
            assert (tuned[name][keys] - value[keys]).abs().max() < RATE * len(losses)
            value[keys] = tuned[name][keys]
        torch.testing.assert_close(tuned[name], value, rtol=1e-4, atol=1e-5, msg=name)

    answer = launch(
        *("gpt2_finetune.py", "run", *MODEL, *pef, "--checkpoint", "tuned.pt", "--inference"),
        folder=work,
    )
    count, loss, accuracy = evaluate(model, data)
    match = re.fullmatch(r"evaluated (\d+) tokens: loss (\S+), accuracy (\S+)\n", answer)
    assert match is not None
    assert int(match[1]) == count
    assert float(match[2]) == pytest.approx(loss, rel=1e-5)
    assert float(match[3]) == pytest.approx(accuracy, abs=1e-6)


def test_the_command_test_compares_with_the_cpu(work: Path) -> None:
    words = ("test", *MODEL, "--pef", "out/tuning/tuning.pef")
    printed = launch("gpt2_finetune.py", *words, folder=work)
    assert printed == "the PEF computes what the CPU computes\n"
