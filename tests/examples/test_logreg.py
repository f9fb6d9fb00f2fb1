"""Logistic regression takes the steps that it takes in eager torch."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from tests.examples.mnist import read_digits
from tests.examples.readme import DATA, run_section

SEED, RATE, DECAY = 256, 0.0015, 1e-4
TOLERANCE = 1e-6
"""Largest difference of a parameter, whose values reach 0.3: float32 rounds them by 1.5e-8, thousands
of times, up and down. 5e-8 were measured after 3200 steps."""


def normalised_rows(images: Tensor) -> Tensor:
    """Images (count, 28, 28) as rows, by the mean and the deviation of MNIST's pixels."""
    return (images.flatten(1) - 0.1307) / 0.3081


def train_eagerly(
    root: Path, size: int, epochs: int, momentum: float
) -> tuple[dict[str, Tensor], list[float]]:
    """Return parameters and the mean loss of every epoch, of plain torch."""
    torch.manual_seed(SEED)
    model = nn.Linear(784, 10)
    # The program draws the inputs that it compiles for from the same stream of random numbers.
    torch.randn(size, 784)
    torch.randint(10, (size,))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=momentum, weight_decay=DECAY)
    losses = []
    for _ in range(epochs):
        batches = DataLoader(read_digits(root, "train"), size, shuffle=True, drop_last=True)
        total = 0.0
        for images, labels in batches:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(normalised_rows(images)), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(total / len(batches))
    return dict(model.state_dict()), losses


def accuracy(parameters: dict[str, Tensor], root: Path) -> float:
    images, labels = read_digits(root, "t10k").tensors
    logits = normalised_rows(images) @ parameters["weight"].T + parameters["bias"]
    return (logits.argmax(1) == labels).double().mean().item()


def assert_as_in_eager(
    printed: str, checkpoint: Path, expected: tuple[dict[str, Tensor], list[float]]
) -> None:
    """Losses are printed with six digits; they and the parameters are those of plain torch."""
    losses = [float(loss) for loss in re.findall(r"Loss: (\S+)$", printed, re.MULTILINE)]
    assert losses == pytest.approx(expected[1], abs=2e-6)
    trained = torch.load(checkpoint)
    assert trained.keys() == {"lin_layer.weight", "lin_layer.bias"}
    for name, value in expected[0].items():
        torch.testing.assert_close(trained[f"lin_layer.{name}"], value, rtol=0, atol=TOLERANCE)


def test_it_trains_as_in_eager_torch(
    run_here: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two epochs of sixteen steps, in this process."""
    monkeypatch.chdir(tmp_path)
    run_here("data.py", "digits", "data", "--train", 64, "--test", 8)
    run_here("logreg.py", "compile", "-b", 4)
    capsys.readouterr()
    rates = ("-lr", RATE, "--momentum", 0.5, "--num-epochs", 2)
    run_here("logreg.py", "run", "-b=4", "-p=out/logreg/logreg.pef", *rates, "--ckpt-file", "a.pt")
    printed = capsys.readouterr().out
    assert_as_in_eager(printed, Path("a.pt"), train_eagerly(Path("data"), 4, 2, momentum=0.5))


def test_all_commands_in_processes_of_their_own(tmp_path: Path) -> None:
    """As they are printed in the README: the batch size is 1, and there is no momentum."""
    run_section(DATA, tmp_path)
    _, tested, trained, measured, _, told = run_section("Logistic regression", tmp_path)
    assert tested == "RDU and CPU agree\n"
    assert "measured over 50 iterations" in measured
    expected = train_eagerly(tmp_path / "data", 1, 2, momentum=0.0)
    assert_as_in_eager(trained, tmp_path / "out" / "logreg.pt", expected)
    reached = accuracy(expected[0], tmp_path / "data")
    assert reached > 0.9
    assert trained.splitlines()[-1:] == told.splitlines() == [f"Test Accuracy: {100 * reached:.2f}"]
