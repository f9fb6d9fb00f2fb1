"""Runs before a trace, and gradients that are overwritten: ways of writing that are found, or not."""

from __future__ import annotations

import pytest

from samba_onnx.tools.lint.linter import lint_files
from samba_onnx.tools.lint.source import SourceFile

HEAD = """\
import sambaflow.samba as samba
from sambaflow.samba.utils import trace_graph
samba.from_torch_model_(model)
"""
COMPILED = HEAD + "samba.session.compile(model, inputs, optimizer)\n"
TRACE = "outputs = trace_graph(model, inputs, optimizer, pef=pef)\n"
RUN = "samba.session.run(inputs, outputs[:1])\n"

BEFORE = {
    "in a function": HEAD + f"def main():\n    loss = {RUN}    {TRACE}",
    "by a function": HEAD + f"def step():\n    return {RUN}step()\n{TRACE}",
    "under the guard": HEAD + f"if __name__ == '__main__':\n    loss = {RUN}    {TRACE}",
    "never traced": COMPILED + f"loss = {RUN}",
}
NOT_BEFORE = {
    "after": HEAD + TRACE + f"loss = {RUN}",
    "a function above": HEAD + f"def step():\n    return {RUN}def main():\n    {TRACE}    step()\n",
    "another function traces": HEAD + f"def a():\n    loss = {RUN}def b():\n    {TRACE}",
    "a branch": HEAD + f"if ready:\n    loss = {RUN}else:\n    {TRACE}",
    "a function that traces itself": HEAD
    + f"def step():\n    {TRACE}    return {RUN}step()\n{TRACE}",
    "traced by a helper": COMPILED + f"my_trace(model)\nloss = {RUN}",
    "a part of a program": HEAD + f"loss = {RUN}",
    "two traces": HEAD + f"def a():\n    {TRACE}def b():\n    loss = {RUN}    {TRACE}",
}


def run(*kinds: str) -> str:
    return f"samba.session.run(inputs, [], section_types={list(kinds)})\n"


LOOP = HEAD + TRACE + "for step, batch in enumerate(batches):\n"
OVERWRITTEN = {
    "every fourth step": LOOP
    + f"    {run('fwd', 'bckwd')}    if step % 4 == 3:\n        {run('opt')}",
    "in a method of a trainer": HEAD
    + f"class Trainer:\n  def fit(self):\n    {TRACE}    for i, b in enumerate(batches):\n      "
    f"self.step(i, b)\n  def step(self, i, b):\n    {run('FWD', 'BCKWD')}    if i % 4 == 3:\n      "
    f"{run('OPT')}",
    "after an inner loop": LOOP
    + f"    for part in batch:\n        {run('FWD')}        {run('BCKWD')}    {run('OPT')}",
}
NOT_OVERWRITTEN = {
    "each step": LOOP + f"    {run('FWD', 'BCKWD')}    {run('OPT')}",
    "in one run": LOOP + f"    {run('FWD', 'BCKWD', 'OPT')}    if step:\n        {run('OPT')}",
    "accumulated": COMPILED.replace("optimizer)", "optimizer, gradient_accumulation=True)")
    + OVERWRITTEN["every fourth step"],
    "zeroed": OVERWRITTEN["every fourth step"] + f"        {run('ZEROGRAD')}",
    "no step": LOOP + f"    {run('FWD', 'BCKWD')}",
    "both seldom": LOOP + f"    if step:\n        {run('BCKWD')}        {run('OPT')}",
    "types that are computed": LOOP + "    samba.session.run(inputs, [], section_types=kinds)\n"
    f"    if step:\n        {run('OPT')}",
}


def found(text: str, rule: str) -> list[int]:
    """The lines where a rule finds something."""
    source = SourceFile("program.py", text.encode())
    return [one.line for one in lint_files([source], "sn40l") if one.rule == rule]


@pytest.mark.parametrize("name", BEFORE)
def test_runs_before_a_trace_are_found(name: str) -> None:
    assert len(found(BEFORE[name], "run-before-trace")) == 1


@pytest.mark.parametrize("name", NOT_BEFORE)
def test_runs_that_may_come_after_a_trace_are_not(name: str) -> None:
    assert found(NOT_BEFORE[name], "run-before-trace") == []


def test_a_trace_in_another_file_counts() -> None:
    files = [
        SourceFile(n, t.encode()) for n, t in (("a.py", COMPILED + RUN), ("b.py", HEAD + TRACE))
    ]
    assert "run-before-trace" not in [one.rule for one in lint_files(files, "sn40l")]


@pytest.mark.parametrize("name", OVERWRITTEN)
def test_overwritten_gradients_are_found(name: str) -> None:
    assert len(found(OVERWRITTEN[name], "gradient-overwritten")) == 1


@pytest.mark.parametrize("name", NOT_OVERWRITTEN)
def test_gradients_that_are_read_or_added_up_are_not(name: str) -> None:
    assert found(NOT_OVERWRITTEN[name], "gradient-overwritten") == []


def test_a_schedule_in_an_attribute_is_found() -> None:
    text = (
        HEAD
        + TRACE
        + (
            "import torch\n"
            "class Trainer:\n"
            "  def fit(self):\n"
            "    self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 1)\n"
            f"    for batch in batches:\n      loss = {RUN}"
            "      self.schedule.step()\n"
        )
    )
    assert found(text, "schedule-without-rate") == [11]


@pytest.mark.parametrize(
    "assignment",
    ["class Net(torch.nn.Module):\n    forward = compute\n", "model.forward = compute\n"],
)
def test_a_function_that_becomes_a_forward_is_traced(assignment: str) -> None:
    text = (
        "import torch\n"
        "def compute(self, x: torch.Tensor):\n"
        "    if x.sum() > 0:\n"
        "        return x\n"
        f"    return -x\n{assignment}"
    )
    assert found(text, "branch-on-values") == [3]
    assert found(text.replace("forward", "other"), "branch-on-values") == []
