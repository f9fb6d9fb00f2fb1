"""What SambaNova's starters do with the framework's smaller parts, written as they write it."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import samba_onnx as samba
from samba_onnx.compiling.sambaflow_arguments import Command
from samba_onnx.errors import UsageError
from samba_onnx.sambaflow.samba import utils
from samba_onnx.sambaflow.samba.schema.snconfig import SNConfig
from samba_onnx.sambaflow.samba.test import TestWithGold
from samba_onnx.sambaflow.samba.utils.argparser import SambaConfig, parse_app_args
from samba_onnx.sessions import SESSION
from samba_onnx.sessions.arguments import ARGUMENTS


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(sys, "argv", ["/apps/logreg.py"])
    monkeypatch.chdir(tmp_path)
    SESSION.reset()
    yield
    SESSION.set_command_line({})
    SESSION.reset()


@pytest.mark.parametrize("command", Command)
def test_the_schema_takes_every_command_line(command: Command) -> None:
    args = parse_app_args([command.value])
    parameters = SambaConfig(args, SNConfig).get_all_params()
    assert parameters == vars(args)
    # pydantic has a method of the name "json".
    assert {argument.name for argument in ARGUMENTS} - SNConfig.model_fields.keys() == {"json"}


def test_the_schema_refuses_what_a_yaml_file_may_say_wrongly() -> None:
    args = parse_app_args(["compile"])
    args.mapping = "diagonal"
    with pytest.raises(UsageError, match=r"SNConfig refuses the arguments:(.|\n)*mapping"):
        SambaConfig(args, SNConfig).get_all_params()


class LogReg(nn.Module):
    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.lin_layer = nn.Linear(num_features, num_classes, bias=False)
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = self.lin_layer(inputs)
        return self.criterion(out, targets), out


def add_args(parser: ArgumentParser) -> None:
    parser.add_argument("--lr", type=float, default=0.0015)
    parser.add_argument("--num-features", type=int, default=12)
    parser.add_argument("--num-classes", type=int, default=3)
    parser.add_argument("--weight-norm", action="store_true")
    parser.add_argument("--visualize", action="store_true")
    parser.add_argument("--world-size", type=int, default=1)


def starter(line: str, *, keep: bool = False) -> Namespace:
    """The logistic regression of the starters, for ``compile`` and ``test``."""
    utils.set_seed(256)
    args = parse_app_args(line.split(), common_parser_fn=add_args)
    _ = SambaConfig(args, SNConfig).get_all_params()
    ipt = (
        samba.randn(
            args.batch_size, args.num_features, name="image", batch_dim=0, named_dims=("B", "F")
        )
        .bfloat16()
        .float()
    )
    tgt = samba.randint(args.num_classes, (args.batch_size,), name="label", batch_dim=0)
    model = LogReg(args.num_features, args.num_classes)
    samba.from_torch_model_(model)
    if args.weight_norm:
        utils.weight_norm_(model.lin_layer)
    optimizer = samba.optim.SGD(model.parameters(), lr=args.lr, momentum=0.0, weight_decay=3e-4)
    inputs = (ipt, tgt)
    if args.command == "compile":
        utils.compile(args, model, inputs, optimizer, name="logreg", app_dir="/apps")
        return args
    traced = utils.trace_graph(model, inputs, optimizer, config_dict=vars(args))
    if args.gold_file_path:
        gold = TestWithGold(args, "logreg", model, None, optimizer)
        gold.save() if keep else gold.test()
        return args
    golden = model(*inputs)
    golden[0].backward()
    for index, output in enumerate(samba.session.run(input_tensors=inputs, output_tensors=traced)):
        utils.assert_close(output, golden[index], f"forward output #{index}", threshold=5e-3)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().max() > 1e-3
        utils.assert_close(
            parameter.grad, parameter.sn_grad, f"Gradient for {name}", threshold=1e-5
        )
    return args


@pytest.mark.parametrize("option", ["", " --weight-norm"])
def test_a_starter_compiles_and_tests_itself(option: str) -> None:
    starter("compile -b 4 --pef-name=lr" + option)
    assert Path("out/lr/lr.pef").is_file()
    starter("test -b 4 --pef out/lr/lr.pef" + option)
    SESSION.reset()
    starter("test -b 4 --pef out/lr/lr.pef --gold-file-path gold" + option, keep=True)
    SESSION.reset()
    starter("test -b 4 --pef out/lr/lr.pef --gold-file-path gold" + option)


def test_a_loss_of_the_hosts_feeds_the_backward_of_the_device(tmp_path: Path) -> None:
    """As the starter for segmentation trains: forward there, the loss here, its gradient by name."""
    model, reference = (nn.Sequential(nn.Linear(3, 2), nn.Sigmoid()) for _ in range(2))
    reference.load_state_dict(model.state_dict())
    samba.from_torch_model_(model)
    x = samba.randn(4, 3, name="input")
    optimizer = samba.optim.AdamW(model.parameters(), lr=0.1)
    pef = SESSION.compile(model, (x,), optimizer, output=tmp_path / "m.pef")
    traced = utils.trace_graph(model, (x,), optimizer, pef=pef)
    (output,) = SESSION.run((x,), traced, section_types=["fwd"])
    output.requires_grad_(True)
    (samba.to_torch(output) ** 3).mean().backward()
    assert output.grad is not None
    SESSION.ctx.set_tensors({traced[0].sn_grad_name: output.grad.numpy()})
    SESSION.run(None, (), section_types=["bckwd"])
    (reference(x.torch()) ** 3).mean().backward()
    for name, parameter in reference.named_parameters():
        # Sums of four float32 numbers.
        torch.testing.assert_close(
            model.get_parameter(name).sn_grad, parameter.grad, rtol=1e-5, atol=1e-7
        )
