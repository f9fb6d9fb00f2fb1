"""A program that compiles in one process and runs in others, as SambaFlow's do, against eager torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # what torch's users call it
from torch import Tensor, nn

from samba_onnx.pef import load_pef

pytestmark = pytest.mark.slow

# It hands neither its settings to `compile` nor its PEF to `trace_graph`: both are on its command line.
PROGRAM = """
import sys
import torch
import torch.nn as nn
import sambaflow.samba.utils as utils
from sambaflow import samba
from sambaflow.samba.utils.argparser import parse_app_args


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(6, 8), nn.Linear(8, 3)
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, x, label):
        logits = self.outer(torch.relu(self.inner(x)))
        return self.criterion(logits, label), logits


def add_run_args(parser):
    parser.add_argument("--dump")
    parser.add_argument("--checkpoint")


def inputs_of(args, seed, batches=1):
    generator = torch.Generator().manual_seed(seed)
    rows = args.batch_size * batches
    x = torch.randn(rows, 6, generator=generator)
    label = torch.randint(3, (rows,), generator=generator)
    return (samba.from_torch_tensor(x, name="image", batch_dim=0),
            samba.from_torch_tensor(label, name="label", batch_dim=0))


def train(args, model, outputs):
    run, losses = samba.session.run, []
    # The numbers of the first run persist, and override the rate of 0 that was compiled.
    for seed, numbers in ((1, {"lr": 0.1, "weight_decay": 0.01}), (2, {})):
        losses.append(run(inputs_of(args, seed), outputs, numbers)[0])
    # The gradient that is set before a run is that of the same run.
    outputs[0].sn_grad = torch.tensor(4.0)
    losses.append(run(inputs_of(args, 3), outputs, section_types=["fwd", "BCKWD", "Opt"])[0])
    samba.session.to_cpu(model)
    return [samba.to_torch(loss) for loss in losses]


def infer(args, model, outputs):
    try:
        samba.session.run(inputs_of(args, 4), outputs)
    except Exception as error:
        print("refused:", error)
    _, logits = samba.session.run(inputs_of(args, 4), outputs, section_types=["fwd"])
    samba.session.to_cpu(model)
    return [samba.to_torch(logits)]


def main(argv):
    utils.set_seed(0)
    args = parse_app_args(argv=argv, run_parser_fn=add_run_args)
    model = Net().train()
    if getattr(args, "checkpoint", None):
        model.load_state_dict(torch.load(args.checkpoint)["model"])
    samba.from_torch_model_(model)
    optimizer = None
    if not args.inference:
        optimizer = samba.optim.SGD(model.parameters(), lr=0.0, momentum=0.5)
    if args.command == "compile":
        samba.session.compile(model, inputs_of(args, 0), optimizer, name="net")
        return
    inputs = inputs_of(args, 5, args.num_spatial_batches)
    outputs = utils.trace_graph(model, inputs, optimizer, mapping=args.mapping)
    if args.command == "test":
        results = [samba.to_torch(one) for one in samba.session.run(inputs, outputs, {"lr": 0.1})]
        samba.session.to_cpu(model)
    else:
        results = (infer if args.inference else train)(args, model, outputs)
    torch.save({"model": model.state_dict(), "results": results}, args.dump)


if __name__ == "__main__":
    main(sys.argv[1:])
"""
# A handful of float32 products in another order, over three steps.
CLOSE = {"rtol": 1e-5, "atol": 1e-6}
BATCH, BATCHES = 4, 3


class Net(nn.Module):
    """The program's model in plain torch."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.outer(torch.relu(self.inner(x)))
        return F.cross_entropy(logits, label), logits


def plain() -> Net:
    torch.manual_seed(0)
    return Net()


def inputs_of(seed: int, batches: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rows = BATCH * batches
    x = torch.randn(rows, 6, generator=generator)
    return x, torch.randint(3, (rows,), generator=generator)


def exec_program(folder: Path, *words: object) -> str:
    """Run the program as ``samba-port exec`` does; return what it printed."""
    (folder / "net.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "samba_onnx.cli", "exec", "net.py", *map(str, words)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def dumped(folder: Path, *words: object) -> tuple[dict[str, Any], str]:
    printed = exec_program(folder, *words, "-b", BATCH, "--dump", "dump.pt")
    return torch.load(folder / "dump.pt"), printed


def check_weights(made: dict[str, Any], twin: nn.Module) -> None:
    for name, parameter in twin.named_parameters():
        torch.testing.assert_close(made["model"][name], parameter.detach(), **CLOSE)


def test_training_and_inference_with_one_pef(tmp_path: Path) -> None:
    exec_program(tmp_path, "compile", "-b", BATCH, "--output-folder", "pefs")
    pef = Path("pefs", "net", "net.pef")
    assert (tmp_path / pef).is_file()
    made, _ = dumped(tmp_path, "run", "--pef", pef)
    twin = plain()
    eager = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.5, weight_decay=0.01)
    for number, scale in enumerate((1.0, 1.0, 4.0)):
        eager.zero_grad()
        loss, _ = twin(*inputs_of(number + 1))
        (loss * scale).backward()
        eager.step()
        torch.testing.assert_close(made["results"][number], loss.detach(), **CLOSE)
    check_weights(made, twin)
    # Another process goes on from the checkpoint, without an optimizer.
    (tmp_path / "dump.pt").rename(tmp_path / "trained.pt")
    made, printed = dumped(tmp_path, "run", "--inference", "-p", pef, "--checkpoint", "trained.pt")
    assert "trace the model with its optimizer; to run forward only" in printed
    with torch.no_grad():
        torch.testing.assert_close(made["results"][0], twin(*inputs_of(4))[1], **CLOSE)
    check_weights(made, twin)


def test_a_spatial_run_makes_the_steps_of_its_mini_batches(tmp_path: Path) -> None:
    spatial = ("--mapping", "spatial", "--num-spatial-batches", BATCHES)
    exec_program(tmp_path, "compile", "-b", BATCH, "--pef-name", "many", *spatial)
    pef = tmp_path / "out" / "many" / "many.pef"
    with load_pef(pef) as opened:
        assert opened.manifest.graphs[0].spatial_batches == BATCHES
    # The program defines --dump for `run` only: `test` takes what `run` takes.
    made, _ = dumped(tmp_path, "test", "--pef", pef, *spatial)
    twin, (x, label) = plain(), inputs_of(5, BATCHES)
    eager = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.5)
    losses, rows = made["results"]
    for at in range(BATCHES):
        part = slice(at * BATCH, (at + 1) * BATCH)
        eager.zero_grad()
        loss, logits = twin(x[part], label[part])
        loss.backward()
        eager.step()
        torch.testing.assert_close(losses[at], loss.detach(), **CLOSE)
        torch.testing.assert_close(rows[part], logits.detach(), **CLOSE)
    check_weights(made, twin)
