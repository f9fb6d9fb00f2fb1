"""Logistic regression on images of digits.

The whole image is one row of numbers, and a linear layer says which digit it shows. ``README.md``
has the commands.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sambaflow.samba as samba
import sambaflow.samba.utils as utils
import torch
from formats import Mnist
from replicas import mean, part_of, say
from sambaflow.samba.utils.argparser import parse_app_args
from sambaflow.samba.utils.benchmark_acc import AccuracyReport
from sambaflow.samba.utils.dataset.mnist import dataset_transform
from sambaflow.samba.utils.pef_utils import get_pefmeta
from torch import Tensor, nn
from torch.utils.data import DataLoader


class LogReg(nn.Module):
    """One linear layer; returns the loss and a number for every digit."""

    def __init__(self, num_features: int, num_classes: int) -> None:
        """Make the layer.

        Args:
            num_features: Pixels of an image.
            num_classes: Digits to tell apart.
        """
        super().__init__()
        self.lin_layer = nn.Linear(num_features, num_classes)
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Map rows (batch, features) and labels (batch,) to a loss and (batch, classes) logits."""
        out = self.lin_layer(inputs)
        return self.criterion(out, targets), out


def add_common_args(parser: argparse.ArgumentParser) -> None:
    """Add what describes the model, and is the same whenever it is compiled and run."""
    parser.add_argument("--num-features", type=int, default=784)
    parser.add_argument("--num-classes", type=int, default=10)
    parser.add_argument("--weight-decay", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=256)


def add_run_args(parser: argparse.ArgumentParser) -> None:
    """Add what only training and inference need."""
    parser.add_argument("-lr", "--learning-rate", type=float, default=0.0015)
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("-e", "--num-epochs", type=int, default=1)
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--ckpt-file", type=Path, help="parameters: written, or read to infer")


def get_inputs(args: argparse.Namespace) -> tuple[samba.SambaTensor, samba.SambaTensor]:
    """Return inputs of the shapes and names that the real ones will have."""
    image = samba.randn(args.batch_size, args.num_features, name="image", batch_dim=0)
    label = samba.randint(args.num_classes, (args.batch_size,), name="label", batch_dim=0)
    return image.bfloat16().float(), label


def get_loader(args: argparse.Namespace, train: bool, epoch: int = 0) -> DataLoader[Any]:
    """Return batches of the images to train on, of which a replica has a part, or to test on."""
    dataset = Mnist(args.data_dir, train, transform=dataset_transform(vars(args)))
    part = part_of(dataset, args.seed + epoch) if train else None
    shuffle = train and part is None
    return DataLoader(dataset, args.batch_size, shuffle, part, drop_last=True)


def run_step(
    args: argparse.Namespace, model: nn.Module, images: Tensor, labels: Tensor
) -> Sequence[samba.SambaTensor]:
    """Run a batch on the RDU: a training step, or the forward pass of an inference."""
    hyperparams = {"lr": args.learning_rate, "momentum": args.momentum}
    outputs: Sequence[samba.SambaTensor] = samba.session.run(
        input_tensors=[
            samba.from_torch_tensor(images, name="image", batch_dim=0),
            samba.from_torch_tensor(labels, name="label", batch_dim=0),
        ],
        output_tensors=model.output_tensors,
        hyperparam_dict={} if args.inference else hyperparams,
        section_types=["fwd"] if args.inference else ["fwd", "bckwd", "opt"],
        data_parallel=args.data_parallel,
        reduce_on_rdu=args.reduce_on_rdu,
    )
    return outputs


def train(args: argparse.Namespace, model: LogReg) -> None:
    """Train on the RDU, and then see on the host how good the model is."""
    for epoch in range(args.num_epochs):
        loader, total = get_loader(args, train=True, epoch=epoch), 0.0
        for images, labels in loader:
            loss, _ = run_step(args, model, images, labels)
            total += samba.to_torch(loss).item()
        say(f"Epoch [{epoch + 1}/{args.num_epochs}], Loss: {mean(total / len(loader)):.6f}")
    samba.session.to_cpu(model)
    if args.ckpt_file and utils.is_main_process():
        args.ckpt_file.parent.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), args.ckpt_file)
    correct = count = 0
    with torch.no_grad():
        for images, labels in get_loader(args, train=False):
            _, logits = model(images, labels)
            correct += (samba.to_torch(logits).argmax(1) == labels).sum().item()
            count += len(labels)
    report(args, correct, count)


def infer(args: argparse.Namespace, model: LogReg) -> None:
    """Tell the test images on the RDU."""
    correct = count = 0
    for images, labels in get_loader(args, train=False):
        _, logits = run_step(args, model, images, labels)
        correct += (samba.to_torch(logits).argmax(1) == labels).sum().item()
        count += len(labels)
    report(args, correct, count)


def report(args: argparse.Namespace, correct: int, count: int) -> None:
    """Say how many images were told right, to people and to machines."""
    accuracy = correct / count
    say(f"Test Accuracy: {100 * accuracy:.2f}")
    if args.acc_report_json and utils.is_main_process():
        AccuracyReport(
            val_accuracy=accuracy,
            batch_size=args.batch_size,
            num_iterations=count // args.batch_size,
        ).save(args.acc_report_json)


def test(model: LogReg, inputs: tuple[samba.SambaTensor, samba.SambaTensor]) -> None:
    """Compare a forward and a backward pass on the RDU with those of the host."""
    samba.session.tracing = False
    loss, logits = model(*inputs)
    loss.backward()
    sections = ["fwd", "bckwd"]
    outputs = samba.session.run(inputs, model.output_tensors, section_types=sections)
    for name, expected, computed in zip(("loss", "logits"), (loss, logits), outputs, strict=True):
        utils.assert_close(expected, computed, name, threshold=5e-3)
    parameters: dict[str, samba.SambaTensor] = dict(model.named_parameters())
    for name, parameter in parameters.items():
        utils.assert_close(parameter.grad, parameter.sn_grad, f"{name}.grad", threshold=5e-3)
    print("RDU and CPU agree")


def main(argv: Sequence[str]) -> None:
    """Do what the command line says."""
    args = parse_app_args(argv, common_parser_fn=add_common_args, run_parser_fn=add_run_args)
    utils.set_seed(args.seed)
    model = LogReg(args.num_features, args.num_classes)
    if args.command == "run" and args.inference:
        model.load_state_dict(torch.load(args.ckpt_file))
    samba.from_torch_model_(model)
    inputs = get_inputs(args)
    optimizer = None
    if not args.inference:
        optimizer = samba.optim.SGD(model.parameters(), lr=0.0, weight_decay=args.weight_decay)

    if args.command == "compile":
        samba.session.compile(
            model,
            inputs,
            optimizer,
            name="logreg",
            app_dir=utils.get_file_dir(__file__),
            config_dict=vars(args),
            pef_metadata=get_pefmeta(args, model),
        )
        return
    utils.trace_graph(model, inputs, optimizer, pef=args.pef, mapping=args.mapping)
    if args.command == "run":
        (infer if args.inference else train)(args, model)
    elif args.command == "test":
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
            json=args.bench_report_json,
            min_duration=args.min_duration,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
