"""A convolutional network on images of digits, with data loaded in the background and checkpoints.

It is compiled once: training, going on from a checkpoint, and inference all run the same PEF.
``README.md`` has the commands.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import sambaflow.samba as samba
import sambaflow.samba.utils as utils
import torch
from formats import Mnist
from replicas import mean, part_of, say
from sambaflow.samba.sambaloader import SambaLoader
from sambaflow.samba.utils.argparser import parse_app_args
from sambaflow.samba.utils.pef_utils import get_pefmeta
from torch import Tensor, nn
from torch.utils.data import DataLoader

NUM_CLASSES = 10
MEAN, DEVIATION = 0.1307, 0.3081
"""Of the pixels of MNIST."""


class ConvNet(nn.Module):
    """Two convolutions with pooling, and two linear layers; returns the loss and the logits.

    As in the first LeNet, pooling takes means, and layers end in tanh.
    """

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 5, padding=2)
        self.conv2 = nn.Conv2d(8, 16, 5, padding=2)
        self.pool = nn.AvgPool2d(2)
        self.dropout = nn.Dropout(0.25)
        self.fc1 = nn.Linear(16 * 7 * 7, 64)
        self.fc2 = nn.Linear(64, NUM_CLASSES)
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, image: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """Map images (batch, 1, 28, 28) and labels (batch,) to a loss and (batch, 10) logits."""
        maps = self.pool(self.conv1(image).tanh())
        maps = self.pool(self.conv2(maps).tanh())
        hidden = self.fc1(torch.flatten(maps, 1)).tanh()
        logits = self.fc2(self.dropout(hidden))
        return self.criterion(logits, label), logits


def add_common_args(parser: argparse.ArgumentParser) -> None:
    """Add what compiling and running share."""
    parser.add_argument("-b", "--batch-size", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)


def add_run_args(parser: argparse.ArgumentParser) -> None:
    """Add what only training and inference need."""
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument(
        "--num-epochs", type=int, default=1, help="epochs in all, with earlier ones"
    )
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, default=1e-4)
    parser.add_argument("--dropout-rate", type=float, default=0.25)
    parser.add_argument("--ckpt-dir", type=Path, help="where to write a checkpoint every epoch")
    parser.add_argument("--init-ckpt-path", type=Path, help="checkpoint to begin with")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on from the newest checkpoint of --ckpt-dir, if any",
    )


def get_inputs(args: argparse.Namespace) -> tuple[samba.SambaTensor, samba.SambaTensor]:
    """Return inputs of the shapes and names that the real ones will have."""
    image = samba.randn(args.batch_size, 1, 28, 28, name="image", batch_dim=0)
    label = samba.randint(NUM_CLASSES, (args.batch_size,), name="label", batch_dim=0)
    return image, label


def normalize(image: npt.NDArray[np.uint8]) -> Tensor:
    """Return an image (28, 28) of bytes as numbers (1, 28, 28) with mean 0 and deviation 1."""
    return (torch.from_numpy(image).float().div(255).unsqueeze(0) - MEAN) / DEVIATION


def get_loader(args: argparse.Namespace, train: bool, epoch: int = 0) -> DataLoader[Any]:
    """Return batches of images and labels; those to train on in another order every epoch.

    A replica trains on its part of the images.
    """
    dataset = Mnist(args.data_dir, train, transform=normalize)
    part = part_of(dataset, args.seed + epoch) if train else None
    order = torch.Generator().manual_seed(args.seed + epoch)
    shuffle = train and part is None
    return DataLoader(dataset, args.batch_size, shuffle, part, drop_last=True, generator=order)


def save_checkpoint(
    args: argparse.Namespace, model: ConvNet, optimizer: torch.optim.Optimizer, epoch: int
) -> None:
    """Write parameters and the optimizer's state, as the RDU has them, to ``<epoch>.pt``."""
    samba.session.to_cpu(model, [optimizer])
    if not utils.is_main_process():
        return
    args.ckpt_dir.mkdir(parents=True, exist_ok=True)
    content = {
        "epoch": epoch,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
    }
    # Whoever is killed meanwhile leaves no half of a checkpoint behind.
    unfinished = args.ckpt_dir / "unfinished"
    torch.save(content, unfinished)
    unfinished.replace(args.ckpt_dir / f"{epoch}.pt")


def newest_checkpoint(args: argparse.Namespace) -> Path | None:
    """Return the checkpoint to begin with, if there is one."""
    first: Path | None = args.init_ckpt_path
    if not (args.resume and args.ckpt_dir):
        return first
    return max(args.ckpt_dir.glob("*.pt"), key=lambda path: int(path.stem), default=first)


def load_checkpoint(path: Path, model: ConvNet, optimizer: torch.optim.Optimizer) -> int:
    """Read a checkpoint into model and optimizer; return the number of its epoch."""
    content = torch.load(path)
    model.load_state_dict(content["model"])
    optimizer.load_state_dict(content["optimizer"])
    return int(content["epoch"])


def train(
    args: argparse.Namespace, model: ConvNet, optimizer: torch.optim.Optimizer, first: int
) -> None:
    """Train on the RDU, from an epoch on."""
    hyperparams = {
        "lr": args.learning_rate,
        "momentum": args.momentum,
        "weight_decay": args.weight_decay,
        "p": args.dropout_rate,
    }
    for epoch in range(first, args.num_epochs):
        losses = []
        loader = get_loader(args, train=True, epoch=epoch)
        for image, label in SambaLoader(loader, ["image", "label"]):
            value, _ = samba.session.run(
                input_tensors=[image, label],
                output_tensors=model.output_tensors,
                hyperparam_dict=hyperparams,
                data_parallel=args.data_parallel,
                reduce_on_rdu=args.reduce_on_rdu,
            )
            losses.append(samba.to_torch(value).item())
        accuracy = evaluate(args, model)
        loss = mean(float(np.mean(losses)))
        say(f"Epoch {epoch + 1}: loss {loss:.6f}, test accuracy {accuracy:.4f}")
        if args.ckpt_dir:
            save_checkpoint(args, model, optimizer, epoch + 1)


def predictions(args: argparse.Namespace, model: ConvNet) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield what the RDU takes the test images of each batch for, and their labels."""
    loader = SambaLoader(
        get_loader(args, train=False), ["image", "label"], return_original_batch=True
    )
    traced: Any = model.output_tensors
    for inputs, (_, labels) in loader:
        (logits,) = samba.session.run(
            input_tensors=inputs,
            output_tensors=[traced[1]],
            section_types=["fwd"],
            train=False,
        )
        yield samba.to_torch(logits).argmax(1), labels


def evaluate(args: argparse.Namespace, model: ConvNet) -> float:
    """Return the share of the test images that the RDU tells right."""
    correct = [predicted == labels for predicted, labels in predictions(args, model)]
    return float(torch.cat(correct).double().mean())


def test(model: ConvNet, inputs: tuple[samba.SambaTensor, samba.SambaTensor]) -> None:
    """Compare a training step's values on the RDU with those of the host."""
    hyperparams = {"lr": 0.0, "p": 0.0}
    outputs = samba.session.run(inputs, model.output_tensors, hyperparam_dict=hyperparams)
    model.dropout.p = 0.0
    expected = model(*inputs)
    expected[0].backward()
    for name, one, other in zip(("loss", "logits"), expected, outputs, strict=True):
        utils.assert_close(one, other, name, threshold=3e-2)
    parameters: dict[str, samba.SambaTensor] = dict(model.named_parameters())
    for name, parameter in parameters.items():
        utils.assert_close(parameter.grad, parameter.sn_grad, f"{name}.grad", threshold=3e-2)
    print("RDU and CPU agree")


def main() -> None:
    """Do what the command line says."""
    args = parse_app_args(common_parser_fn=add_common_args, run_parser_fn=add_run_args)
    utils.set_seed(args.seed)
    samba.session.enable_pinned_memory()
    model = ConvNet()
    samba.from_torch_model_(model)
    inputs = get_inputs(args)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.0, momentum=0.9, weight_decay=1e-4)

    if args.command == "compile":
        samba.session.compile(
            model,
            inputs,
            optimizer,
            name="convnet",
            config_dict=vars(args),
            pef_metadata=get_pefmeta(args, model),
        )
        return
    done = 0
    checkpoint = newest_checkpoint(args) if args.command == "run" else None
    if checkpoint:
        done = load_checkpoint(checkpoint, model, optimizer)
    utils.trace_graph(model, inputs, optimizer, pef=args.pef, mapping=args.mapping)
    if args.command == "test":
        test(model, inputs)
    elif args.command == "measure-performance":
        utils.measure_performance(
            model,
            inputs,
            args.batch_size,
            args.n_chips,
            args.inference,
            run_graph_only=args.run_graph_only,
            n_iterations=args.num_iterations,
        )
    elif args.inference:
        print(f"Test accuracy: {evaluate(args, model):.4f}")
    else:
        train(args, model, optimizer, done)


if __name__ == "__main__":
    main()
