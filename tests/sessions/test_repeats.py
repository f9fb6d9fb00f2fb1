"""Runs that a runner makes again by their shortcut, and what they count and check all the same."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import onnx.parser
import pytest
import torch

import samba_onnx as samba
from samba_onnx.errors import UsageError
from samba_onnx.sessions.data_parallel import DataParallel
from samba_onnx.sessions.run_arguments import RunArguments
from samba_onnx.sessions.runner import Runner
from samba_onnx.sessions.shortcuts import Shortcut
from tests.sessions.conftest import Compiled, Parts
from tests.sessions.modules import Dropping
from tests.sessions.test_runner import check, draw


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many inputs each run had that was made by a shortcut."""
    counts: list[int] = []
    run = Shortcut.run

    def counted(own: Shortcut, sources: Any, argins: Any = None) -> Any:
        counts.append(len(sources))
        return run(own, sources, argins)

    monkeypatch.setattr(Shortcut, "run", counted)
    return counts


def runner_of(parts: Parts) -> Runner:
    return Runner(parts.program, parts.state, parts.profiler, DataParallel(parts.program))


def test_from_the_third_time_on(
    parts: Parts, compiled: Compiled, made: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    runner = runner_of(parts)
    outputs = parts.tracer.trace(compiled.model, compiled.inputs, pef=compiled.path)
    assert runner.repeat(draw(compiled), outputs, None, (), True, None) is None
    total = 0
    # A graph that is named is the one that needs no name; what is on the device is prepared at once.
    for types, graph, count in (((), None, 2), ((), "forward", 4), (["FWD"], None, 3)):
        for seed in range(4):
            inputs = draw(compiled, seed)
            asked = RunArguments(inputs, outputs, section_types=types, graph_name=graph)
            check(runner.run(asked), compiled.expected(*inputs))
        total += count
        assert made == [2] * total
        inputs = draw(compiled, 5)
        results = runner.repeat(inputs, outputs, None, types, True, graph)
        assert results is not None
        check(results, compiled.expected(*inputs))
        total += 1
        assert made == [2] * total
    assert runner.repeat(inputs, outputs, None, (), True, "another") is None
    assert runner.repeat(inputs[:1], outputs, None, (), True, None) is None
    assert runner.repeat(dict(enumerate(inputs)), outputs, None, (), True, None) is None
    with pytest.raises(UsageError, match="from 0 to 1"):
        runner.repeat(inputs, outputs, {"p": 1.5}, (), True, None)
    assert caplog.messages == []


def test_tensors_that_are_called_otherwise(parts: Parts, made: list[int], tmp_path: Path) -> None:
    header = '<ir_version: 10, opset_import: ["" : 21]>\n'
    text = "g (float[2] x, float[2] y) => (float[2] z) { z = Sub (x, y) }"
    model = onnx.parser.parse_model(header + text)
    inputs = [samba.ones(2, name="left"), samba.zeros(2, name="right")]
    path = samba.session.compile(model, inputs, output=tmp_path / "m.pef")
    outputs = parts.tracer.trace(model, inputs, pef=path)
    runner = runner_of(parts)
    for number in range(4):
        given = [samba.ones(2, name="left") * number, samba.ones(2, name="right")]
        given[0].sn_name = "left"
        (result,) = runner.run(RunArguments(given, outputs))
        assert result.torch().tolist() == [number - 1] * 2
    assert made == [2, 2]
    again = runner.repeat(given, outputs, None, (), True, None)
    assert again is not None
    assert made == [2, 2, 2]
    # What a run was given can be asked for by its name here.
    _, left = runner.run(RunArguments(given, [*outputs, given[0]]))
    assert (left.sn_name, left.torch().tolist()) == ("left", [3, 3])


def test_masks_are_others_in_every_run(parts: Parts, made: list[int], tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Dropping().train(), samba.randn(4, 8, name="x")
    path = samba.session.compile(model, (x,), output=tmp_path / "m.pef", check=False)
    outputs = parts.tracer.trace(model, (x,), pef=path)
    runner = runner_of(parts)

    def run(**options: Any) -> float:
        (loss,) = runner.run(RunArguments([x], outputs, **options))
        return float(loss.torch())

    def again(numbers: Any = None, train: bool = True) -> float:
        results = runner.repeat([x], outputs, numbers, (), train, None)
        assert results is not None
        return float(results[0].torch())

    losses = [*(run() for _ in range(4)), *(again() for _ in range(3))]
    assert len(set(losses)) == len(losses)
    assert len(made) == 5
    with torch.no_grad():
        expected = pytest.approx(float(model.eval()(x.torch())), rel=1e-5)
    model.train()
    for loss in (
        run(train=False),
        run(train=False),
        again(train=False),
        again({"p": 0.0}),
        again(),
    ):
        assert loss == expected
    assert again({"p": 0.5}) != expected
    assert run(numbers={"p": 0.0}) == expected
    assert run(numbers={"p": 0.5}) != expected
    # As a run that is not repeated has it.
    assert run(numbers={"p": 0.0}, section_ids=[0]) == expected


def test_a_switch_of_the_mode_is_told_of_each_time(
    parts: Parts, compiled: Compiled, caplog: pytest.LogCaptureFixture
) -> None:
    runner = runner_of(parts)
    outputs = parts.tracer.trace(compiled.model, compiled.inputs, pef=compiled.path)
    told: list[str] = []
    try:
        for mode in (True, True, False, False):
            caplog.clear()
            compiled.model.train(mode)
            with caplog.at_level(logging.WARNING, "samba_onnx.sessions"):
                for _ in range(3):
                    runner.run(RunArguments(draw(compiled), outputs))
            told += caplog.messages
    finally:
        compiled.model.eval()
    same = "now, but runs compute what it was compiled for, after"
    assert told == [
        f"Classifier is in train() {same} eval(): to train, trace a PEF that was compiled after train()",
        f"Classifier is in eval() {same} train(): give train=False to run without dropouts, or trace a "
        "PEF that was compiled after eval()",
    ]


def test_gradients_of_outputs_are_as_many_at_most(parts: Parts, compiled: Compiled) -> None:
    runner = runner_of(parts)
    outputs = parts.tracer.trace(compiled.model, compiled.inputs, pef=compiled.path)
    for grads in ((), (None,), (None, None)):
        runner.run(RunArguments(draw(compiled), outputs, output_grads=grads))
    with pytest.raises(UsageError, match="has 3 gradients, the graph has 2 outputs"):
        runner.run(RunArguments(draw(compiled), outputs, output_grads=(None,) * 3))


class Twice(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


@pytest.mark.parametrize(("dtype", "repeated"), [(torch.float32, 2), (torch.bfloat16, 0)])
def test_an_input_of_one_element(
    parts: Parts, made: list[int], tmp_path: Path, dtype: torch.dtype, repeated: int
) -> None:
    x = samba.from_torch_tensor(torch.ones(1, dtype=dtype), name="x")
    path = samba.session.compile(Twice(), (x,), output=tmp_path / "m.pef", check=False)
    outputs = parts.tracer.trace(Twice(), (x,), pef=path)
    runner = runner_of(parts)
    given = [samba.from_torch_tensor(torch.full((1,), n, dtype=dtype), name="x") for n in range(4)]
    for number, one in enumerate(given):
        (result,) = runner.run(RunArguments([one], outputs))
        assert result.torch().tolist() == [2 * number]
    assert made == [1] * repeated
    # What was not made yet is no place to copy from.
    lazy = samba.SambaTensor(
        shape=(1,), dtype=dtype, name="x", materializer=lambda tensor: torch.full(tensor.shape, 7.0)
    )
    (result,) = runner.run(RunArguments([lazy], outputs))
    assert result.torch().tolist() == [14]


class Dropped(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x, 0.5, self.training)


def test_every_mini_batch_has_masks_of_its_own(parts: Parts, tmp_path: Path) -> None:
    model, one, whole = Dropped().train(), samba.ones(1, 32, name="x"), samba.ones(3, 32, name="x")
    config = {"mapping": "spatial", "num_spatial_batches": 3}
    path = samba.session.compile(
        model, (one,), output=tmp_path / "m.pef", config_dict=config, check=False
    )
    outputs = parts.tracer.trace(model, (whole,), pef=path, mapping="spatial")
    rows = set()
    for runs in (1, 2, 3):
        (result,) = runner_of(parts).run(RunArguments([whole], outputs))
        rows |= {tuple(row) for row in result.torch().tolist()}
        assert len(rows) == 3 * runs
        assert parts.program.hyperparameters.steps_done[0] == 3 * runs
