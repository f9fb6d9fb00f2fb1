"""``common_app_driver``: it compiles and measures, and says that it is deprecated."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import samba_onnx as samba
from samba_onnx.pef import load_pef
from samba_onnx.sambaflow.samba.utils.argparser import parse_app_args
from samba_onnx.sambaflow.samba.utils.common import common_app_driver
from samba_onnx.sessions import SESSION


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(sys, "argv", ["/apps/ffn.py"])
    monkeypatch.chdir(tmp_path)
    yield
    SESSION.set_command_line({})
    SESSION.reset()


def drive(line: str, gradients: bool | None = True) -> None:
    arguments = parse_app_args(line.split())
    model = torch.nn.Linear(3, 2)
    samba.from_torch_model_(model)
    inputs = (samba.ones(arguments.batch_size, 3, name="image"),)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    with pytest.warns(DeprecationWarning, match="common_app_driver is deprecated"):
        common_app_driver(
            arguments,
            model,
            inputs,
            optimizer,
            name="ffn",
            app_dir="/apps",
            get_output_grads=gradients,
            squeeze_bs_dim=True,
        )


def section_types(path: str) -> set[str]:
    with load_pef(path) as pef:
        return {section.type.value for section in pef.manifest.sections}


def test_it_compiles_and_measures_what_was_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    drive("compile -b 4")
    assert "OPT" in section_types("out/ffn/ffn.pef")
    capsys.readouterr()
    drive("measure-performance -b 4 -p out/ffn/ffn.pef -n 3 --json measured.json")
    printed = capsys.readouterr().out
    measured = json.loads(Path("measured.json").read_text())
    assert measured["iterations"] == 3
    assert measured["e2e_throughput"] == pytest.approx(4 / measured["average_latency"])
    assert f"e2e_throughput: {measured['e2e_throughput']} samples/s, measured over 3" in printed
    drive("measure-sections -b 4 -p out/ffn/ffn.pef -n 1 --num-sections 2 --json sections.json")
    assert len(json.loads(Path("sections.json").read_text())["sections"]) == 2


def test_inference_counts_on_both_sides(capsys: pytest.CaptureFixture[str]) -> None:
    drive("compile --inference --pef-name=forward --output-folder=pefs")
    assert section_types("pefs/forward/forward.pef") == {"FWD"}
    drive("measure-performance --inference -p pefs/forward/forward.pef -n 2")
    assert "measured over 2 iterations" in capsys.readouterr().out


def test_a_program_whose_loss_is_on_the_host_is_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    drive("compile", gradients=False)
    drive("measure-performance -p out/ffn/ffn.pef -n 2", gradients=False)
    assert "measured over 2 iterations" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["run", "test"])
def test_it_leaves_to_programs_what_is_theirs(command: str, tmp_path: Path) -> None:
    drive(f"{command} -p nowhere.pef")
    assert not list(tmp_path.iterdir())
