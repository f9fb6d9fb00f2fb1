"""Whole programs in the documented ways of writing, and where their findings stand.

Each is written for this test after a kind of program that is public: a logistic regression on
MNIST, a convolutional network with a SambaLoader, fine-tuning and generation with GPT-2.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from samba_onnx.tools.lint.findings import Finding
from samba_onnx.tools.lint.linter import lint, lint_files
from samba_onnx.tools.lint.source import SourceFile

LOGREG = """\
import argparse, sys
import torch
import torch.nn as nn
import sambaflow.samba.utils as utils
from sambaflow import samba
from sambaflow.samba.utils.argparser import parse_app_args
from sambaflow.samba.utils.pef_utils import get_pefmeta

class LogReg(nn.Module):
    def __init__(self, features: int, classes: int, bias: bool):
        super().__init__()
        self.features = features
        self.lin_layer = nn.Linear(features, classes, bias=bias)
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor):
        out = self.lin_layer(inputs)
        return self.criterion(out, targets), out

def train(args, model, output_tensors):
    loader = torch.utils.data.DataLoader(data(args), batch_size=args.batch_size, drop_last=True)
    hyperparam_dict = {"lr": args.lr, "momentum": args.momentum}
    for epoch in range(args.num_epochs):
        avg_loss = 0
        for i, (images, labels) in enumerate(loader):
            sn_images = samba.from_torch_tensor(images, name="image", batch_dim=0)
            sn_labels = samba.from_torch_tensor(labels, name="label", batch_dim=0)
            loss, outputs = samba.session.run(input_tensors=[sn_images, sn_labels],
                                              output_tensors=output_tensors,
                                              hyperparam_dict=hyperparam_dict)
            loss, outputs = samba.to_torch(loss), samba.to_torch(outputs)
            avg_loss += loss.mean()
            if (i + 1) % 10000 == 0:
                print(f"{epoch} {avg_loss.item()}")
        samba.session.to_cpu(model)
        with torch.no_grad():
            for images, labels in held_out(args):
                loss, outputs = model(images, labels)
                print(loss.item(), (outputs.argmax(1) == labels).sum().item())

def main(argv):
    utils.set_seed(256)
    args = parse_app_args(argv=argv)
    ipt = samba.randn(args.batch_size, 784, name="image", batch_dim=0).bfloat16().float()
    tgt = samba.randint(10, (args.batch_size,), name="label", batch_dim=0)
    inputs = (ipt, tgt)
    model = LogReg(784, 10, False)
    samba.from_torch_model_(model)
    optimizer = samba.optim.SGD(model.parameters(), lr=args.lr) if not args.inference else None
    if args.command == "compile":
        samba.session.compile(model, inputs, optimizer, name="logreg", config_dict=vars(args),
                              pef_metadata=get_pefmeta(args, model))
    else:
        traced = utils.trace_graph(model, inputs, optimizer, pef=args.pef)
        train(args, model, traced)

main(sys.argv[1:])
"""

LOADER = """\
import torch
from sambaflow.samba.sambaloader import SambaLoader
import sambaflow.samba as samba
from sambaflow.samba import optim as sn_optim, utils

session = samba.session

class ConvNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 8, 5)
        self.norm = torch.nn.BatchNorm2d(8)
        self.loss = torch.nn.CrossEntropyLoss()

    def forward(self, x: torch.Tensor, labels: torch.Tensor):
        out = self.norm(self.conv(x)).relu().max_pool2d(2).reshape(x.shape[0], -1)
        if out.max() > 100:
            out = out / 2
        return self.loss(out, labels), out

def make_inputs(args):
    return samba.randn(args.bs, 1, 28, 28), samba.randint(10, (args.bs,), name="label")

def main(args, data):
    model = ConvNet()
    samba.from_torch_(model)
    inputs = make_inputs(args)
    optimizer = sn_optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    session.compile(model, inputs, optimizer)
    utils.trace_graph(model, inputs, optimizer, pef=args.pef)
    loader = SambaLoader(torch.utils.data.DataLoader(data, args.bs), ["image", "label"])
    for epoch in range(3):
        for images, labels in loader:
            loss, _ = session.run((images, labels), model.output_tensors)
            print(loss.item())
            session.to_cpu(model)
        scheduler.step()
"""

GENERATION = """\
import torch
from sambaflow import samba
import sambaflow.samba.utils as utils
from transformers import AutoModelForCausalLM

def get_inputs(ids, mask=None):
    ids = samba.from_torch_tensor(ids.int(), name="input_ids")
    if mask is not None:
        return [ids, samba.from_torch_tensor(mask, name="mask")]
    return [ids]

def step(args, model, batch, traced):
    traced[0].sn_grad = scale(args, batch)
    outputs = samba.session.run(get_inputs(batch), traced, {"lr": args.lr, "p": 0.1},
                                section_types=["FWD", "BCKWD", "GRADNORM", "OPT"])
    return samba.to_torch(outputs[0]).float().sum()

def main(args, batches):
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    model.training = True
    samba.from_torch_model_(model)
    inputs = (samba.from_torch_tensor(torch.zeros(2, 4).int(), "input_ids"), None, None)
    optims = [samba.optim.AdamW(group, max_grad_norm=1.0) for group in groups(model)]
    samba.session.compile(model, inputs, optims)
    traced = utils.trace_graph(model, inputs, optims, pef=args.pef)
    losses = []
    for number, batch in zip(range(args.steps), batches):
        loss = step(args, model, batch, traced)
        losses.append(loss)
        if number % 100 == 0:
            print(number, loss.item())
    samba.session.to_cpu(model)
    torch.save(model.state_dict(), args.checkpoint_name)
"""


def places(text: str) -> list[tuple[str, str]]:
    """Return rule and line of what is found in a program of one file."""
    lines = text.splitlines()
    findings: tuple[Finding, ...] = lint_files([SourceFile("program.py", text.encode())])
    return [(finding.rule, lines[finding.line - 1].strip()) for finding in findings]


def test_a_logistic_regression_in_the_documented_style_is_left_alone() -> None:
    (only,) = places(LOGREG)
    assert only[0] == "int64-target"


def test_fine_tuning_in_the_documented_style_is_left_alone() -> None:
    assert places(GENERATION) == []


def test_a_program_with_many_faults() -> None:
    assert [rule for rule, _ in places(LOADER)] == [
        "legacy-names",
        "branch-on-values",
        "unnamed-input",
        "int64-target",
        "deprecated",
        "smaller-last-batch",
        "unused-output",
        "print-per-step",
        "item-per-step",
        "transfer-per-step",
        "schedule-without-rate",
    ]


@pytest.mark.parametrize(
    ("mode", "count"),
    [
        ("model = Net.from_pretrained('x')", 1),
        ("model = Net().eval()", 1),
        ("model.train(False)", 1),
        ("model.training = False", 1),
        ("model.eval()\nmodel.train()", 0),
        ("model = Net.from_pretrained('x')\nmodel.training = True", 0),
        ("other.eval()", 0),
        ("if args.inference:\n    model.eval()", 0),
        ("model = Net()", 0),
        ("def make():\n    return Net.from_pretrained('x')\nmodel = make()", 1),
        ("def make():\n    m = Net.from_pretrained('x')\n    return m\nmodel = make()", 1),
        (
            "def make():\n    m = Net.from_pretrained('x')\n    m.train()\n    return m\nmodel = make()",
            0,
        ),
        (
            "class Head(Module):\n    def __init__(self):\n"
            "        self.inner = Net.from_pretrained('x')\nmodel = Head()",
            1,
        ),
        (
            "class Head(Module):\n    def __init__(self):\n"
            "        self.inner = Net.from_pretrained('x')\nmodel = Head()\nmodel.train()",
            0,
        ),
        (
            "class Head(Module):\n    def __init__(self):\n        self.inner = Net()\nmodel = Head()",
            0,
        ),
    ],
)
def test_evaluation_mode(mode: str, count: int) -> None:
    head = f"from sambaflow import samba\n{mode}\nsamba.from_torch_model_(model)\n"
    rest = "model.eval()\n"
    assert places(f"{head}{rest}") == []
    optimizer = "opt = samba.optim.SGD(model.parameters(), lr=0.1)\n"
    assert [rule for rule, _ in places(f"{head}{optimizer}{rest}")] == ["evaluation-mode"] * count


def test_steps_in_functions_are_steps() -> None:
    text = GENERATION.replace("return samba.to_torch(", "print(batch)\n    return samba.to_torch(")
    assert places(text) == [("print-per-step", "print(batch)")]


@pytest.mark.parametrize(
    "line", ["samba.session.to_rdu(model)", "x = model.w.sn_data", "y = traced[0].sn_grad + 1"]
)
def test_transfers_per_step(line: str) -> None:
    text = GENERATION.replace("        losses.append(loss)", f"        {line}")
    assert places(text) == [("transfer-per-step", line)]
    once = GENERATION.replace("    losses = []", f"    losses = []\n    {line}")
    assert places(once) == []


def test_what_a_loop_executes_once_is_no_step() -> None:
    head = "from sambaflow import samba\n"
    run = "    samba.session.run([batch])\n"
    once = "else:\n    samba.session.to_cpu(model)\n"
    assert places(f"{head}for batch in samba.session.get_tensors(x):\n{run}{once}") == []
    repeated = f"{head}while samba.session.get_tensors(x):\n{run}"
    assert [rule for rule, _ in places(repeated)] == ["transfer-per-step"]


def test_a_name_that_is_assigned_twice_is_not_followed() -> None:
    text = (
        "from sambaflow import samba\nsamba.from_torch_model_(m)\nx = samba.randn(2)\n{}"
        "samba.session.compile(m, (x,))\n"
    )
    assert [rule for rule, _ in places(text.format(""))] == ["unnamed-input"]
    assert places(text.format("x = samba.randn(2, name='x')\n")) == []


def test_files_are_one_program(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(
        "from sambaflow import samba\nfrom model import make\n"
        "samba.session.compile(make(), (samba.zeros(2, name='x'),))\n"
    )
    alone = lint([str(tmp_path / "main.py")])
    assert [finding.rule for finding in alone] == ["not-converted"]
    (tmp_path / "model.py").write_text(
        "from sambaflow import samba\ndef make():\n  samba.from_torch_model_(m)\n  return m\n"
    )
    assert lint([str(tmp_path)]) == ()
    assert lint([str(tmp_path / "main.py"), str(tmp_path), str(tmp_path / "model.py")]) == ()


@pytest.mark.parametrize(
    "package",
    [
        "import sambaflow.samba as samba",
        "from sambaflow import samba",
        "import samba_onnx as samba",
        "from samba_onnx.sambaflow import samba",
    ],
)
def test_every_way_to_import_the_package(package: str) -> None:
    text = (
        f"{package}\nsamba.session.compile(model, (samba.randn(2),))\nsamba.from_torch_model_(m)\n"
    )
    assert [rule for rule, _ in places(text)] == ["unnamed-input"]


@pytest.mark.parametrize(
    "statement",
    [
        "import sambaflow\nsambaflow.samba.session.compile(m, (sambaflow.samba.randn(2),))",
        "from sambaflow.samba import session, randn\nsession.compile(m, (randn(2),))",
        "from sambaflow.samba import randn as r\nfrom sambaflow.samba import session as s\ns.compile(m, [r(2)])",
        "from sambaflow.samba import session, randn\nsession.compile(m, (randn(2).bfloat16().float(),))",
        "from sambaflow.samba import session, randn\nx = randn(2)\nxs = [x]\nsession.compile(m, inputs=xs)",
    ],
)
def test_every_way_to_import_names(statement: str) -> None:
    text = f"{statement}\nimport sambaflow.samba as samba\nsamba.from_torch_model_(m)\n"
    assert [rule for rule, _ in places(text)] == ["unnamed-input"]


@pytest.mark.parametrize(
    "inputs",
    [
        "(samba.randn(2, name='x'), None)",
        "{'x': samba.randn(2)}",
        "(samba.from_torch_tensor(t, 'x'),)",
        "(samba.randn(2, **options),)",
        "(samba.randn(2, name='x').bfloat16().float(),)",
        "tuple(samba.randn(2) for _ in range(2))",
        "(t, *others)",
    ],
)
def test_inputs_with_names_or_unknown_ones_are_left_alone(inputs: str) -> None:
    text = (
        "from sambaflow import samba\nsamba.from_torch_model_(m)\n"
        f"samba.session.compile(m, {inputs})\n"
    )
    assert places(text) == []


@pytest.mark.parametrize(
    ("loader", "count"),
    [
        ("DataLoader(d, 8)", 1),
        ("DataLoader(d, batch_size=args.bs, drop_last=False)", 1),
        ("DataLoader(d, 8, drop_last=args.drop)", 0),
        ("DataLoader(d)", 0),
        ("DataLoader(d, batch_size=1)", 0),
        ("DataLoader(d, batch_sampler=s)", 0),
        ("DataLoader(d, **options)", 0),
    ],
)
def test_loaders(loader: str, count: int) -> None:
    head = "from torch.utils.data import DataLoader\nfrom sambaflow import samba\n"
    run = "for batch in l:\n    loss = samba.session.run(batch, outputs)\n"
    assert len(places(f"{head}l = {loader}\n{run}")) == count
    assert places(f"{head}l = {loader}\n") == []


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("samba.randn(3, 4, name='x', batch_dim=0)", 1),
        ("samba.randn((3, 4), name='x', batch_dim=0)", 1),
        ("samba.randint(4, (3, n), name='x', batch_dim=0)", 1),
        ("samba.randint(3, (4,), name='x', batch_dim=0)", 0),
        ("samba.randn(3, 4, name='x')", 0),
        ("samba.randn(args.b, 4, name='x', batch_dim=0)", 0),
        ("parser.add_argument('-b', '--batch-size', type=int, default=1)", 1),
        ("parser.add_argument('-b', '--batch-size', type=int, default=16)", 0),
        ("parser.add_argument('--num-epochs', default=1)", 0),
    ],
)
def test_odd_batches(line: str, count: int) -> None:
    source = SourceFile("a.py", f"from sambaflow import samba\n{line}\n".encode())
    assert len(lint_files([source], "sn30")) == count
    assert lint_files([source], "sn10") == ()


@pytest.mark.parametrize(
    ("hyperparameters", "count"),
    [("", 1), ("{'p': 0.1}", 1), ("{'lr': rate}", 0), ("rates", 0), ("{**rates}", 0)],
)
def test_schedules(hyperparameters: str, count: int) -> None:
    text = (
        "from torch.optim.lr_scheduler import StepLR\nfrom sambaflow import samba\n"
        f"schedule = StepLR(o)\nsamba.session.run(x, y, {hyperparameters})\nschedule.step()\n"
    )
    assert len(places(text)) == count


@pytest.mark.parametrize(
    ("line", "rules"),
    [
        ("model.cuda()", ["other-device"]),
        ("model.to(device='cuda:0')", ["other-device"]),
        ("torch.zeros(2, device='cuda')", ["other-device"]),
        ("torch.cuda.is_available()", []),
        ("model.to(torch.float32)", []),
        ("model.to('cpu')", []),
        ("torch.optim.Adam(p)", []),
        ("hook = x.register_hook(f)", ["traced-hook"]),
        ("torch.utils.checkpoint.checkpoint(f, x)", ["cannot-be-traced"]),
        ("torch.utils.checkpoint.checkpoint(f, x, use_reentrant=False)", []),
    ],
)
def test_calls_anywhere(line: str, rules: list[str]) -> None:
    assert [
        rule for rule, _ in places(f"import torch\nimport torch.utils.checkpoint\n{line}\n")
    ] == rules


@pytest.mark.parametrize("call", ["torch.zeros", "torch.nn.Linear", "model.to"])
@pytest.mark.parametrize("before", range(7))
@pytest.mark.parametrize("device", ["device='cuda'", "'xpu:1'"])
def test_a_device_is_found_behind_any_number_of_arguments(
    call: str, before: int, device: str
) -> None:
    others = [f"size_{number}" for number in range(before)]
    for word, rules in ((device, ["other-device"]), ("requires_grad=True", [])):
        text = f"import torch\n{call}({', '.join([*others, word])})\n"
        assert [rule for rule, _ in places(text)] == rules


HEAD = """\
import torch
from torch.utils.data import DataLoader
from sambaflow import samba
from sambaflow.samba.sambaloader import SambaLoader
model = Net()
samba.from_torch_model_(model)
"""
STEP = "loss = samba.session.run(inputs(batch), traced)"


@pytest.mark.parametrize(
    ("program", "count"),
    [
        # Loaders that runs read, by whatever way.
        (f"l = DataLoader(d, 8)\nfor batch in l:\n    {STEP}\n", 1),
        (f"l = DataLoader(d, 8)\nfor i, batch in enumerate(tqdm(l)):\n    {STEP}\n", 1),
        (f"for batch in SambaLoader(DataLoader(d, 8), ['x']):\n    {STEP}\n", 1),
        (f"l = DataLoader(d, 8)\ns = SambaLoader(l, ['x'])\nfor batch in s:\n    {STEP}\n", 1),
        (f"def get():\n    return DataLoader(d, 8)\nfor batch in get():\n    {STEP}\n", 1),
        (
            f"def get():\n    a, b = DataLoader(d, 8), DataLoader(e, 8)\n    return a, b\n"
            f"train, test = get()\nfor batch in train:\n    {STEP}\n",
            1,  # the other one is not run
        ),
        (f"def fit(l):\n    for batch in l:\n        {STEP}\nfit(DataLoader(d, 8))\n", 1),
        (
            f"def fit(m, l):\n    for batch in l:\n        {STEP}\n"
            "l = DataLoader(d, 8)\nfit(model, l=l)\n",
            1,
        ),
        (
            "class T:\n    def __init__(self):\n        self.l = DataLoader(d, 8)\n"
            f"    def fit(self):\n        for batch in self.l:\n            {STEP}\n",
            1,
        ),
        (
            f"def step(batch):\n    {STEP}\nl = DataLoader(d, 8)\nfor batch in l:\n    step(batch)\n",
            1,
        ),
        # The host reads it: an evaluation in eager torch.
        (
            "l, t = DataLoader(d, 8, drop_last=True), DataLoader(e, 8)\n"
            f"for batch in l:\n    {STEP}\nfor batch in t:\n    model(batch)\n",
            0,
        ),
        # The loop looks at the size of its batch.
        (
            "for batch in DataLoader(d, 8):\n    if len(batch) < 8:\n        continue\n"
            f"    {STEP}\n",
            0,
        ),
        (
            "for batch in DataLoader(d, 8):\n    if batch.shape[0] != 8:\n        batch = pad(batch)\n"
            f"    {STEP}\n",
            0,
        ),
        # Nobody can tell from the text who reads it.
        (f"train(DataLoader(d, 8))\nfor batch in other:\n    {STEP}\n", 0),
    ],
)
def test_loaders_are_followed_to_the_runs(program: str, count: int) -> None:
    assert [rule for rule, _ in places(HEAD + program)] == ["smaller-last-batch"] * count


HOST_LOSS = """\
optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
traced = samba.utils.trace_graph(model, (x,), optimizer, pef=args.pef)
for batch in DataLoader(d, 8, drop_last=True):
    (out,) = samba.session.run(inputs(batch), traced, section_types=["fwd"])
    logits = samba.to_torch(out).requires_grad_()
    loss = torch.nn.functional.cross_entropy(logits, batch[1])
    loss.backward()
    traced[0].sn_grad = logits.grad
    samba.session.run([], [], section_types=["bckwd", "opt"])
"""


def test_a_loss_on_the_host_is_no_step_of_the_host() -> None:
    assert places(HEAD + HOST_LOSS) == []
    without = HOST_LOSS.replace("    traced[0].sn_grad = logits.grad\n", "")
    assert [rule for rule, _ in places(HEAD + without)] == ["host-step"]
    given = without.replace("run([], [],", "run([], [], grad_of_outputs=[logits.grad],")
    assert places(HEAD + given) == []


def test_the_backward_of_another_model_is_the_hosts_own() -> None:
    traced = "traced = samba.utils.trace_graph(model, (x,), pef=args.pef)\n"
    loop = f"for batch in data:\n    {STEP}\n"
    for line, count in (
        ("    reference(batch)[0].backward()\n", 0),
        ("    found = reference(batch)\n    found.sum().backward()\n", 0),
        ("    loss.backward()\n", 1),
        ("    total = samba.to_torch(loss[0]).sum()\n    total.backward()\n", 1),
        ("    model(batch)[0].backward()\n", 1),
    ):
        found = [rule for rule, _ in places(HEAD + traced + loop + line)]
        assert found == ["host-step"] * count, line


def test_the_optimizer_of_another_model_steps_on_the_host() -> None:
    """The client of split learning: the server is on the device."""
    client = (
        "client = Net()\nclient_optimizer = torch.optim.SGD(client.parameters(), lr=0.1)\n"
        + HOST_LOSS
        + "    client_optimizer.zero_grad()\n    client_optimizer.step()\n"
    )
    assert places(HEAD + client) == []
    own = client.replace("client.parameters", "model.parameters")
    assert [rule for rule, _ in places(HEAD + own)] == ["host-step"] * 2


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        (
            "model = Net().bfloat16()\nsamba.from_torch_model_(model)\nx = samba.randn(2, name='x')\n",
            1,
        ),
        (
            "model = Net()\nmodel.bfloat16()\nsamba.from_torch_model_(model)\n"
            "x = samba.randn(2, name='x').bfloat16().float()\n",
            1,
        ),
        (
            "model = Net().bfloat16()\nsamba.from_torch_model_(model)\n"
            "x = samba.randn(2, name='x', dtype=torch.bfloat16)\ny = samba.randint(3, (2,), name='y')\n",
            0,
        ),
        ("model = Net()\nsamba.from_torch_model_(model)\nx = samba.randn(2, name='x')\n", 0),
        (
            "model = Net()\nif args.bf16:\n    model.bfloat16()\nsamba.from_torch_model_(model)\n"
            "x = samba.randn(2, name='x')\n",
            0,
        ),
    ],
)
def test_types_of_dummies(lines: str, count: int) -> None:
    found = [rule for rule, _ in places(f"import torch\nfrom sambaflow import samba\n{lines}")]
    assert [rule for rule in found if rule == "mixed-types"] == ["mixed-types"] * count
