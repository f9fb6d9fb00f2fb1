"""Helpers: comparing, measuring, processes, files."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import samba_onnx as samba
from samba_onnx import utils
from samba_onnx.errors import UsageError


def test_assert_close_takes_tensors_of_both_kinds() -> None:
    one = torch.tensor([1.0, 2.0])
    utils.assert_close(one, samba.from_torch_tensor(one + 2e-3), "x")
    utils.assert_close(samba.from_torch_tensor(one.bfloat16()), one, "x", threshold=0.0)
    utils.assert_close(one, one * 1.01, "x", threshold=0.0, rtol=0.011, visualize=True)
    with pytest.raises(AssertionError, match="weight differs from what was expected"):
        utils.assert_close(one, one + 4e-3, "weight")
    with pytest.raises(AssertionError, match="loss"):
        utils.assert_close(one, one[:1], "loss")
    with pytest.raises(AssertionError, match="loss"):
        utils.assert_close(one, one * float("nan"), "loss")


def test_files_and_processes() -> None:
    assert utils.get_file_dir(__file__) == str(Path(__file__).parent)
    assert (utils.get_rank(), utils.get_world_size(), utils.is_main_process()) == (0, 1, True)


def test_set_seed_seeds_everything() -> None:
    def draw() -> tuple[float, float, float]:
        utils.set_seed(3)
        return random.random(), float(np.random.rand()), torch.rand(()).item()

    assert draw() == draw()


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[tuple[nn.Module, tuple[samba.SambaTensor]]]:
    samba.session.reset()
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh()).eval()
    inputs = (samba.randn(2, 4, name="x"),)
    path = samba.session.compile(model, inputs, output=tmp_path / "x.pef", level="o0")
    samba.utils.trace_graph(model, inputs, pef=path)
    yield model, inputs
    samba.session.reset()


def test_performance_is_measured_and_written(
    traced: tuple[nn.Module, tuple[samba.SambaTensor]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model, inputs = traced
    path = tmp_path / "performance.json"
    samba.session.transfers.reset()
    throughput, latency = utils.measure_performance(
        model, inputs, batch_size=2, inference=True, n_iterations=5, json=str(path)
    )
    assert throughput == pytest.approx(2 / latency)
    assert samba.session.transfers.count == 10
    pattern = (
        r"e2e_throughput: [\d.]+ samples/s, measured over 5 iterations. "
        r"Average latency: [\d.e-]+ s.\ne2e_latency: [\d.e-]+ s\n"
    )
    assert re.fullmatch(pattern, capsys.readouterr().out)
    assert json.loads(path.read_text())["e2e_throughput"] == throughput
    samba.session.transfers.reset()
    utils.measure_performance(model, inputs, run_graph_only=True, n_iterations=1, min_duration=0.01)
    assert samba.session.transfers.count == 1  # once, before the runs that are measured


def test_sections_are_measured_one_by_one(
    traced: tuple[nn.Module, tuple[samba.SambaTensor]], tmp_path: Path
) -> None:
    model, inputs = traced
    path = tmp_path / "sections.json"
    times = utils.measure_sections(model, inputs, n_iterations=3, json=str(path))
    assert list(times) == samba.session.get_section_ids()
    assert len(times) == 2
    assert all(seconds > 0 for seconds in times.values())
    assert len(json.loads(path.read_text())["sections"]) == 2
    assert len(utils.measure_sections(model, inputs, num_sections=1, n_iterations=1)) == 1


def test_sections_of_a_step_are_measured_in_whole_steps(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is said of gradients that another backward pass overwrites."""
    model, x = nn.Linear(3, 1), samba.randn(2, 3, name="x")
    samba.from_torch_model_(model)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    pef = samba.session.compile(model, (x,), optimizer, output=tmp_path / "m.pef")
    samba.utils.trace_graph(model, (x,), optimizer, pef=pef)
    capsys.readouterr()
    caplog.clear()
    times = utils.measure_sections(model, (x,), n_iterations=3, min_duration=0.001)
    assert list(times) == samba.session.get_section_ids()
    assert len(times) == 3
    assert not caplog.text
    lines = capsys.readouterr().out.splitlines()
    assert all(
        re.fullmatch(rf"section {number}: [\d.e-]+ s over \d+ iterations", line)
        for number, line in zip(times, lines, strict=True)
    )


def test_what_cannot_be_measured_is_refused(
    traced: tuple[nn.Module, tuple[samba.SambaTensor]],
) -> None:
    model, inputs = traced
    with pytest.raises(UsageError, match="n_iterations is 0"):
        utils.measure_performance(model, inputs, n_iterations=0)
    with pytest.raises(UsageError, match="was not traced"):
        utils.measure_performance(nn.ReLU(), inputs)


def test_processes_agree_on_what_the_first_one_says() -> None:
    from torch import distributed
    from torch._C._distributed_c10d import HashStore

    from samba_onnx.utils.processes import agreed

    assert agreed(True) is True
    distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    assert agreed(False) is False
