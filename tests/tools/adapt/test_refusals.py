"""Programs that would compute something else on an RDU: each is refused with its line."""

from __future__ import annotations

import pytest

pytest.importorskip("libcst")

from samba_onnx.tools.adapt.adapting import adapt_source
from samba_onnx.tools.adapt.source import ProgramFile

STEP = """\
import torch
{top}
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))

    def forward(self, x):
        return self.body(x){forward}

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{made}
for step in range(4):
    {before}
    x = torch.randn(8, 3)
    optimizer.zero_grad()
    loss = model(x).square().mean()
    {between}
    loss.backward()
    {behind}
    optimizer.step()
"""
DEFAULTS = {
    "top": "", "forward": "", "made": "", "before": "pass", "between": "pass", "behind": "pass",
}  # fmt: skip

INFERENCE = """\
import torch

model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.5))
{mode}
x = torch.randn(8, 3)
print({call})
"""


@pytest.mark.parametrize(
    ("places", "pattern", "line"),
    [
        ({"between": "if loss.item() > 3: continue"}, "left-step", 19),
        ({"behind": "if step == 2: break"}, "left-step", 21),
        ({"behind": "optimizer.step()"}, "second-step", 22),
        (
            {"between": "for i in range(len(x) + step): loss = loss + model(x[i:i + 1]).mean()"},
            "changing-branch",
            19,
        ),
        ({"between": "for i in range(2): loss = loss * 2; model.learn(loss)"}, "effect", 19),
        ({"made": "other = Net()", "between": "loss = other(x).mean()"}, "no-model", 20),
        ({"before": "optimizer.state.clear()"}, "optimizer-state", 15),
        ({"before": "model.eval() if step else model.train()"}, "lasting-evaluation", 15),
        ({"forward": " + torch.randn(8, 4)"}, "random-numbers", 9),
        # Any gradient that the host reads, of whatever part of the model.
        (
            {"made": "part = model.body", "behind": "print(part[0].weight.grad)"},
            "weights-written",
            21,
        ),
        ({"before": "model.train(False) if step else model.train()"}, "lasting-evaluation", 15),
        (
            {"top": "import opacus", "made": "optimizer = opacus.private(optimizer)"},
            "foreign-optimizer",
            13,
        ),
    ],
)
def test_a_step_that_is_no_single_run_is_named(
    places: dict[str, str], pattern: str, line: int
) -> None:
    result = adapt_source(ProgramFile("step.py", STEP.format(**{**DEFAULTS, **places})))
    assert [(point.pattern, point.line) for point in result.blocking] == [(pattern, line)]


def test_the_step_itself_is_adapted() -> None:
    # An exception ends the program, and nothing goes on with other weights.
    between = "if not torch.isfinite(loss): raise SystemExit(1)"
    text = STEP.format(**{**DEFAULTS, "between": between})
    assert adapt_source(ProgramFile("step.py", text)).blocking == ()


@pytest.mark.parametrize(
    ("mode", "call", "pattern"),
    [
        ("", "model(x)", "lasting-evaluation"),
        ("model.eval(); model.train()", "model(x)", "lasting-evaluation"),
        ("model.eval()", "[model(one) for one in x]", "model-call"),
        ("model.eval()", "model(*[x])", "model-call"),
        ("model.eval()", "model(x), model(x + 1)", "several-steps"),
        ("model.eval()", "x", "no-training"),
    ],
)
def test_an_inference_that_is_no_single_run_is_named(mode: str, call: str, pattern: str) -> None:
    result = adapt_source(ProgramFile("infer.py", INFERENCE.format(mode=mode, call=call)))
    assert {point.pattern for point in result.blocking} == {pattern}


def test_an_inference_becomes_a_run() -> None:
    text = INFERENCE.format(mode="model.eval()", call="model(x).sum().item()")
    result = adapt_source(ProgramFile("infer.py", text))
    assert result.blocking == ()
    assert result.infers
    assert "inference=True" in result.text
    assert "print(outputs.sum().item())" in result.text
    # What is said of a line is said of the author's.
    assert [one.line for one in result.changes if one.pattern == "inference"] == [6]


OPTIONS = """\
import click
import torch

@click.command()
@click.option({option})
def main(rate):
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 3)).mean().backward()
        optimizer.step()

main()
"""


@pytest.mark.parametrize(
    ("option", "written"),
    [
        ('"--rate", default=1, type=float', '"--rate", dest="rate", type=float, default=float(1)'),
        ('"-r", "--rate", default=-0.1', '"--rate", "-r", dest="rate", type=float, default=-0.1'),
        ('"--rate", is_flag=True', '"--rate", dest="rate", action="store_true"'),
        ('"--rate", multiple=True', ""),
        ('"--rate", default=find()', ""),
        ('"--rate", type=click.FloatRange(0, 1)', ""),
    ],
)
def test_options_keep_their_meaning(option: str, written: str) -> None:
    result = adapt_source(ProgramFile("options.py", OPTIONS.format(option=option)))
    found = [point.pattern for point in result.blocking]
    assert found == ([] if written else ["command-line-library"])
    assert f"add_argument({written})" in result.text or not written


LIGHTNING = """\
import pytorch_lightning as pl
import torch

class Lit(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)

    def training_step(self, batch, batch_idx):
        {step}
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

trainer = pl.Trainer({settings})
trainer.fit(Lit(), torch.utils.data.DataLoader(torch.randn(8, 3), batch_size=4))
"""


@pytest.mark.parametrize(
    ("step", "settings", "line"),
    [
        ("self.log('a', 1)", "max_epochs=2", None),
        ("self.log('a', 1)", "max_epochs=2, gradient_clip_val=0.5", None),
        ("pass", "max_epochs=2, callbacks=[find()]", 16),
        ("pass", "max_steps=2", 16),
        ("pass", "max_epochs=2, devices=1, num_nodes=1", None),
        ("pass", "max_epochs=2, devices=2", 16),
        ("self.manual_backward(batch)", "max_epochs=2", 10),
        ("if batch_idx: return None", "max_epochs=2", 10),
    ],
)
def test_the_loop_of_lightning(step: str, settings: str, line: int | None) -> None:
    text = LIGHTNING.format(step=step, settings=settings)
    result = adapt_source(ProgramFile("lit.py", text))
    assert [(point.pattern, point.line) for point in result.blocking] == (
        [("framework", line)] if line else []
    )
    assert line or "samba.session.run(" in result.text
    assert line or "lightning" not in result.text


def test_a_module_of_lightning_with_other_bases_is_refused() -> None:
    text = LIGHTNING.format(step="pass", settings="max_epochs=2")
    text = text.replace("Lit(pl.LightningModule)", "Lit(Metrics, pl.LightningModule)")
    result = adapt_source(ProgramFile("lit.py", f"class Metrics: pass\n{text}"))
    assert [(point.pattern, point.line) for point in result.blocking] == [("framework", 5)]


TRAINER = """\
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

class Own(Trainer):
    {method}

model = BertForSequenceClassification(BertConfig())
options = TrainingArguments(
    output_dir="out",
    {setting}
)
trainer = {kind}(
    model=model,
    args=options,
    train_dataset=[],
    {given}
)
trainer.train()
{behind}
"""
TRAINED = {"method": "pass", "setting": "seed=3,", "kind": "Trainer", "given": "", "behind": ""}


@pytest.mark.parametrize(
    ("places", "line"),
    [
        ({"setting": "gradient_accumulation_steps=4,"}, 10),
        ({"setting": "eval_strategy='epoch',"}, 10),
        ({"setting": "bf16=True,"}, 10),
        ({"setting": "lr_scheduler_type='polynomial',"}, 10),
        ({"given": "callbacks=[print],"}, 16),
        ({"given": "tokenizer=print,"}, 12),
        ({"behind": "trainer.evaluate()"}, 19),
        ({"kind": "Own", "method": "def log(self, logs): print(logs)"}, 5),
        (
            {
                "kind": "Own",
                "method": "def compute_loss(self, model, inputs, return_outputs=False): return self.args.x",
            },
            5,
        ),
    ],
)
def test_what_a_trainer_does_more_is_named(places: dict[str, str], line: int) -> None:
    result = adapt_source(ProgramFile("train.py", TRAINER.format(**{**TRAINED, **places})))
    points = [point for point in result.blocking if point.line == line]
    assert {point.pattern for point in points} == {"framework"}


def test_the_loop_of_a_trainer_is_written_out() -> None:
    result = adapt_source(ProgramFile("train.py", TRAINER.format(**TRAINED)))
    assert result.blocking == ()
    assert "transformers.set_seed(3)" in result.text
    # The original is compared without a smaller last batch.
    assert "dataloader_drop_last=True" in result.files[0].compared
    assert "dataloader_drop_last" not in result.files[0].original


def test_a_function_that_trains_modules_of_two_kinds_is_named() -> None:
    text = """\
import torch

def train(net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.ones(2, 3)).mean().backward()
        optimizer.step()

small = torch.nn.Linear(3, 1)
train(small)
other = torch.nn.Linear(3, {size})
train(other)
"""
    one = adapt_source(ProgramFile("train.py", text.format(size=1)))
    two = adapt_source(ProgramFile("train.py", text.format(size=2)))
    assert one.blocking == ()
    assert [(point.pattern, point.line) for point in two.blocking] == [("several-models", 13)]


def test_branches_of_a_scaler_that_differ_are_left_alone() -> None:
    text = """\
import torch

model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler()
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.ones(2, 3)).mean()
    if scaler:
        scaler.scale({scaled}).backward()
        scaler.step(optimizer)
        scaler.update()
    else:
        # without it
        loss.backward()
        optimizer.step()
"""
    same = adapt_source(ProgramFile("train.py", text.format(scaled="loss")))
    other = adapt_source(ProgramFile("train.py", text.format(scaled="loss * 2")))
    assert same.blocking == ()
    assert "several-steps" in {point.pattern for point in other.blocking}


def test_functions_of_the_name_of_a_method_of_a_library_are_not_called_by_it() -> None:
    text = """\
import torch

def profile(net):
    with torch.profiler.profile():
        net(torch.ones(2, 3)).mean().backward()

model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
(first, second), third = (torch.ones(2, 3), torch.zeros(2, 3)), torch.ones(2, 1)
for _ in range(3):
    optimizer.zero_grad()
    loss = torch.nn.MSELoss()(model(first + second), third)
    loss.backward()
    optimizer.step()
"""
    result = adapt_source(ProgramFile("train.py", text))
    assert result.blocking == ()
    # Parts of a nested target are tensors of the program, and come in as inputs.
    assert "def forward(self, first, second, third)" in result.text
