"""LeNet on MNIST: compile it once, then train it on the device.

The data are the four files of MNIST, or of any data set in that format, packed or not::

    python examples/lenet.py compile --batch-size 32
    python examples/lenet.py run --batch-size 32 --pef out/lenet/lenet.pef --data-dir mnist
    python examples/lenet.py run --pef out/lenet/lenet.pef --data-dir mnist --resume lenet.pt
"""

from __future__ import annotations

import argparse
import gzip
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import samba_onnx as samba

SIZE = 28
CLASSES = 10


class LeNet(nn.Module):
    """Two convolutions with pooling and three linear layers; returns the loss and the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.pool = nn.MaxPool2d(2)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, CLASSES)
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, image: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """Map images (batch, 1, 28, 28) and labels (batch,) to a loss and (batch, 10) logits."""
        maps = self.pool(torch.relu(self.conv1(image)))
        maps = self.pool(torch.relu(self.conv2(maps))).flatten(1)
        hidden = torch.relu(self.fc2(torch.relu(self.fc1(maps))))
        logits = self.fc3(hidden)
        return self.criterion(logits, label), logits


def read_idx(path: Path) -> np.ndarray:
    """Read an array of bytes in the format of MNIST.

    The file begins with two zeros, the type of the values, the number of dimensions, and their
    sizes, each in four bytes with the largest first; the values follow.

    Args:
        path: The file, without ``.gz``; it may lie there packed, with ``.gz``.

    Returns:
        The values, as uint8.

    Raises:
        FileNotFoundError: Neither is there.
        ValueError: It has another format.
    """
    packed = path.with_name(f"{path.name}.gz")
    content = path.read_bytes() if path.exists() else gzip.decompress(packed.read_bytes())
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise ValueError(f"{path} is no idx file of bytes: it begins with {content[:4].hex()}")
    start = 4 + 4 * content[3]
    shape = np.frombuffer(content[4:start], ">u4").astype(int)
    values = np.frombuffer(content, np.uint8, offset=start)
    if values.size != shape.prod():
        raise ValueError(f"{path} has {values.size} values, but its shape is {shape.tolist()}")
    return values.reshape(shape)


def read_data(folder: Path, part: str) -> tuple[Tensor, Tensor]:
    """Read images and labels.

    Args:
        folder: Where the files are.
        part: ``train`` or ``t10k``.

    Returns:
        Images (count, 1, 28, 28), normalised as is usual for MNIST, and labels (count,).
    """
    images = torch.from_numpy(read_idx(folder / f"{part}-images-idx3-ubyte").copy())
    labels = torch.from_numpy(read_idx(folder / f"{part}-labels-idx1-ubyte").copy())
    return ((images / 255 - 0.1307) / 0.3081).unsqueeze(1), labels.long()


def batches(data: tuple[Tensor, Tensor], size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Iterate over a data set in random order; what does not fill a batch is left out.

    Args:
        data: Images and labels.
        size: Images in a batch: the compiled number, for shapes are fixed.
        seed: Of the order.
    """
    order = torch.randperm(len(data[1]), generator=torch.Generator().manual_seed(seed))
    for chosen in order.split(size):
        if len(chosen) == size:
            yield data[0][chosen], data[1][chosen]


def build(args: argparse.Namespace) -> tuple[LeNet, torch.optim.Optimizer]:
    """Make the model and its optimizer."""
    samba.utils.set_seed(args.seed)
    model = LeNet().train()
    samba.from_torch_model_(model)
    optimizer = samba.optim.SGD(model.parameters(), lr=args.learning_rate, momentum=args.momentum)
    return model, optimizer


def dummies(args: argparse.Namespace) -> tuple[samba.SambaTensor, samba.SambaTensor]:
    """Make tensors of the shapes and names that the program will be given."""
    image = samba.randn(args.batch_size, 1, SIZE, SIZE, name="image", batch_dim=0)
    label = samba.randint(CLASSES, (args.batch_size,), name="label", batch_dim=0)
    return image, label


def accuracy(model: LeNet, data: tuple[Tensor, Tensor]) -> float:
    """Compute on the host how many images are told right, as a fraction."""
    with torch.no_grad():
        _, logits = model(*data)
    return float((samba.to_torch(logits).argmax(1) == data[1]).double().mean())


def train(args: argparse.Namespace) -> float:
    """Train on the device; return the accuracy on the test images."""
    model, optimizer = build(args)
    if args.resume:
        saved = torch.load(args.resume)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    outputs = samba.utils.trace_graph(model, dummies(args), optimizer, pef=args.pef)
    data, held_out = read_data(args.data_dir, "train"), read_data(args.data_dir, "t10k")
    reached = 0.0
    for epoch in range(args.num_epochs):
        losses = []
        for images, labels in batches(data, args.batch_size, args.seed + epoch):
            inputs = [
                samba.from_torch_tensor(images, name="image", batch_dim=0),
                samba.from_torch_tensor(labels, name="label", batch_dim=0),
            ]
            rates = {"lr": args.learning_rate, "momentum": args.momentum}
            loss, _ = samba.session.run(inputs, outputs, hyperparam_dict=rates)
            losses.append(float(samba.to_torch(loss)))
        samba.session.to_cpu(model, [optimizer])
        reached = accuracy(model, held_out)
        print(f"epoch {epoch + 1}: loss {np.mean(losses):.4f}, accuracy {reached:.4f}")
    if args.checkpoint:
        content = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(content, args.checkpoint)
    return reached


def compile_(args: argparse.Namespace) -> str:
    """Compile the model with its optimizer; return the path of the PEF."""
    model, optimizer = build(args)
    path = samba.session.compile(model, dummies(args), optimizer, config_dict=vars(args))
    print(path)
    return path


def parser() -> argparse.ArgumentParser:
    """Return what understands the command line."""
    made = argparse.ArgumentParser(description="LeNet on MNIST")
    commands = made.add_subparsers(dest="command", required=True)
    for name in ("compile", "run"):
        command = commands.add_parser(name)
        command.add_argument("-b", "--batch-size", type=int, default=32)
        command.add_argument("--learning-rate", type=float, default=0.01)
        command.add_argument("--momentum", type=float, default=0.9)
        command.add_argument("--seed", type=int, default=0)
        if name == "compile":
            command.add_argument("--output-folder", default="out")
            command.add_argument("--pef-name", default="lenet")
            continue
        command.add_argument("-p", "--pef", required=True)
        command.add_argument("--data-dir", type=Path, required=True)
        command.add_argument("--num-epochs", type=int, default=1)
        command.add_argument("--checkpoint", help="file to write when training ends")
        command.add_argument("--resume", help="checkpoint to go on from")
    return made


def main(argv: Sequence[str] | None = None) -> str | float:
    """Compile, or train, as the command line says."""
    args = parser().parse_args(argv)
    return compile_(args) if args.command == "compile" else train(args)


if __name__ == "__main__":
    main(sys.argv[1:])
