"""What a program that was written for SambaFlow prints, besides its own lines."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from samba_onnx.sambaflow.console import set_level, show_messages
from samba_onnx.sambaflow.samba.utils.argparser import parse_app_args

PROGRAM = """
import logging
import torch
import sambaflow.samba as samba
from sambaflow.samba.utils import trace_graph
from sambaflow.samba.utils.argparser import parse_app_args


class LogReg(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin_layer = torch.nn.Linear(6, 4)
        self.criterion = torch.nn.CrossEntropyLoss()

    def forward(self, inputs, targets):
        out = self.lin_layer(inputs)
        return self.criterion(out, targets), out


def add_run_args(parser):
    parser.add_argument("-e", "--num-epochs", type=int, default=1)


logging.basicConfig(level=logging.INFO)
args = parse_app_args(run_parser_fn=add_run_args)
samba.set_seed(256)
model = LogReg()
samba.from_torch_model_(model)
image = samba.randn(args.batch_size, 6, name="image", batch_dim=0)
label = samba.randint(4, (args.batch_size,), name="label", batch_dim=0)
optimizer = samba.optim.SGD(model.parameters(), lr=0.0)
if args.command == "compile":
    samba.session.compile(model, (image, label), optimizer, name="logreg_torch")
else:
    model.output_tensors = trace_graph(model, (image, label), optimizer, pef=args.pef)
    for _ in range(args.num_epochs):
        rates = {"lr": 0.1, "momentum": 0.0}
        loss, _ = samba.session.run((image, label), model.output_tensors, hyperparam_dict=rates)
        print(samba.to_torch(loss).item())
"""

NARROWED = (
    '[info] [samba]: The dtype of "targets" to CrossEntropyLoss is torch.int64, however only int16 '
    "is currently supported, implicit conversion will happen"
)


@pytest.fixture(autouse=True)
def loggers() -> Iterator[None]:
    names = ("samba_onnx", "sambaflow", "onnx_ir", "onnxscript", "torch.onnx")
    ours = [logging.getLogger(name) for name in names]
    before = [(one.level, list(one.handlers), one.propagate) for one in ours]
    yield
    for one, (level, handlers, propagate) in zip(ours, before, strict=True):
        one.handlers[:], one.propagate = handlers, propagate
        one.setLevel(level)


def test_each_message_is_printed_once_in_the_form_of_sambaflow(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_messages()
    show_messages()
    logger = logging.getLogger("samba_onnx.anything")
    for step in (1, 2, 2):
        logger.info("step %d", step)
    logger.debug("details")
    lines = "[info] [samba]: step 1\n[info] [samba]: step 2\n"
    assert capsys.readouterr().err == lines
    set_level("Warning")
    logger.info("more")
    logger.warning("step %d", 2)
    assert capsys.readouterr().err == "[warning] [samba]: step 2\n"


@pytest.mark.parametrize(
    ("line", "level"),
    [("run --log-level ERROR", "ERROR"), ("run --verbose", "DEBUG"), ("run", "INFO")],
)
def test_the_command_line_sets_the_level(line: str, level: str) -> None:
    show_messages()
    parse_app_args(line.split())
    assert logging.getLogger("samba_onnx").level == logging.getLevelName(level)


def expected_losses(epochs: int) -> list[float]:
    """Return the losses of the same program in eager torch."""
    import torch

    import samba_onnx as samba

    samba.set_seed(256)
    layer = torch.nn.Linear(6, 4)
    image = samba.to_torch(samba.randn(2, 6))
    label = samba.to_torch(samba.randint(4, (2,)))
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    losses = []
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(layer(image), label)
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
    return losses


def test_a_program_compiles_and_runs_in_two_processes(tmp_path: Path) -> None:
    (tmp_path / "logreg.py").write_text(PROGRAM)

    def execute(*line: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "samba_onnx.cli", "exec", "logreg.py", *line]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)

    done = execute("compile", "-b", "2", "--pef-name=logreg-b2", "--mac-v2")
    assert done.stdout == ""
    narrowed, losses_line, *files = done.stderr.splitlines()
    assert narrowed == NARROWED
    assert losses_line.startswith("[info] [samba]: LogReg: Training starts from output 0")
    assert files == [
        "[info] [samba]: PEF file out/logreg-b2/logreg-b2.pef created",
        "[info] [samba]: Logs are generated in out/logreg-b2",
    ]
    done = execute("run", "-b=2", "--pef=out/logreg-b2/logreg-b2.pef", "--num-epochs", "3")
    losses = [float(line) for line in done.stdout.splitlines()]
    assert losses == pytest.approx(expected_losses(3), rel=1e-6)
    pef = tmp_path / "out" / "logreg-b2" / "logreg-b2.pef"
    opened = f"[info] [samba]: sn_create_session: PEF File: {pef}"
    assert done.stderr.splitlines() == [NARROWED, opened]
