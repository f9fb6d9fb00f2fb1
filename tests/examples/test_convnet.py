"""The convolutional network takes the steps that it takes in eager torch, also from a checkpoint on."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tests.examples.mnist import read_digits
from tests.examples.readme import DATA, run_section

SIZE, RATE, MOMENTUM, DECAY = 32, 0.05, 0.9, 1e-4


def plain_model() -> nn.Sequential:
    """The network with the initial parameters that its seed gives, by the names that it has there."""
    torch.manual_seed(0)
    layers = OrderedDict[str, nn.Module]()
    layers["conv1"] = nn.Conv2d(1, 8, 5, padding=2)
    layers["tanh1"], layers["pool1"] = nn.Tanh(), nn.AvgPool2d(2)
    layers["conv2"] = nn.Conv2d(8, 16, 5, padding=2)
    layers["tanh2"], layers["pool2"] = nn.Tanh(), nn.AvgPool2d(2)
    layers["rows"] = nn.Flatten()
    layers["fc1"] = nn.Linear(16 * 7 * 7, 64)
    layers["tanh3"] = nn.Tanh()
    layers["fc2"] = nn.Linear(64, 10)
    return nn.Sequential(layers)


def read(root: Path, part: str) -> tuple[Tensor, Tensor]:
    images, labels = read_digits(root, part).tensors
    return ((images - 0.1307) / 0.3081).unsqueeze(1), labels


def train_eagerly(root: Path, size: int, epochs: int) -> tuple[nn.Sequential, list[float]]:
    """Return the network and the mean loss of every epoch, without dropout, in double precision."""
    model = plain_model().double()
    optimizer = torch.optim.SGD(model.parameters(), RATE, MOMENTUM, weight_decay=DECAY)
    losses = []
    for epoch in range(epochs):
        order = torch.Generator().manual_seed(epoch)
        data = TensorDataset(*read(root, "train"))
        batches = DataLoader(data, size, shuffle=True, drop_last=True, generator=order)
        total = 0.0
        for images, labels in batches:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images.double()), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(total / len(batches))
    return model, losses


def accuracy(model: nn.Module, root: Path, size: int) -> float:
    """The share of the test images, without those that fill no batch, that the host tells right."""
    images, labels = read(root, "t10k")
    count = len(labels) // size * size
    with torch.no_grad():
        return (model(images[:count].double()).argmax(1) == labels[:count]).double().mean().item()


def printed_losses(*outputs: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"loss (\S+),", "".join(outputs))]


def assert_same_parameters(path: Path, expected: nn.Module, tolerance: float) -> None:
    trained = torch.load(path)["model"]
    assert trained.keys() == expected.state_dict().keys()
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(trained[name].double(), value, rtol=0, atol=tolerance)


def test_it_trains_as_in_eager_torch(
    run_here: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two epochs of three steps; the second from the checkpoint of the first, then inference.

    Parameters of at most 0.3 may differ by 1e-6, a few of float32's roundings in each of six steps.
    """
    monkeypatch.chdir(tmp_path)
    run_here("data.py", "digits", "data", "--train", 24, "--test", 16)
    run_here("convnet.py", "compile", "-b", 8)
    run = ("convnet.py", "run", "-b", 8, "--pef=out/convnet/convnet.pef")
    exact = ("--ckpt-dir=a", "--dropout-rate=0")
    capsys.readouterr()
    run_here(*run, *exact)
    run_here(*run, *exact, "--num-epochs=2", "--init-ckpt-path=a/1.pt")
    model, losses = train_eagerly(Path("data"), 8, 2)
    assert printed_losses(capsys.readouterr().out) == pytest.approx(losses, abs=2e-6)
    assert_same_parameters(Path("a/2.pt"), model, 1e-6)
    # As in training without a break; the device computes the same twice.
    run_here(*run, "--ckpt-dir=b", "--dropout-rate=0", "--num-epochs=2")
    parts, whole = (torch.load(Path(folder, "2.pt")) for folder in "ab")
    torch.testing.assert_close(parts, whole, rtol=0, atol=0)
    # Inference is without dropout, whatever rate the PEF was compiled with.
    capsys.readouterr()
    run_here(*run, "--inference", "--init-ckpt-path=a/2.pt")
    assert capsys.readouterr().out == f"Test accuracy: {accuracy(model, Path('data'), 8):.4f}\n"


def test_dropout_changes_training(
    run_here: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_here("data.py", "digits", "data", "--train", 8, "--test", 8)
    run_here("convnet.py", "compile", "-b", 8)
    run = ("convnet.py", "run", "-b", 8, "--pef=out/convnet/convnet.pef")
    weights = []
    for rate in (0, 0.25):
        run_here(*run, f"--ckpt-dir={rate}", f"--dropout-rate={rate}")
        weights.append(torch.load(Path(f"{rate}", "1.pt"))["model"]["fc2.weight"])
    assert (weights[0] - weights[1]).abs().max() > 1e-3


# CI runs those of the logistic regression, which go the same way.
@pytest.mark.exhaustive
@pytest.mark.slow
def test_all_commands_in_processes_of_their_own(tmp_path: Path) -> None:
    """As they are printed in the README: an epoch, another from its checkpoint, inference.

    A hundred steps carry the roundings of float32 on.
    """
    run_section(DATA, tmp_path)
    outputs = run_section("Convolutional network", tmp_path)
    _, tested, first, second, told = outputs
    assert tested == "RDU and CPU agree\n"
    model, losses = train_eagerly(tmp_path / "data", SIZE, 2)
    assert printed_losses(first, second) == pytest.approx(losses, abs=1e-5)
    assert_same_parameters(tmp_path / "out" / "checkpoints" / "2.pt", model, 1e-5)
    reached = accuracy(model, tmp_path / "data", SIZE)
    assert reached > 0.95
    assert told == f"Test accuracy: {reached:.4f}\n"
