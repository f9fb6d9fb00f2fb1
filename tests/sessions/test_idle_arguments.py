"""Nothing that a program asks for is ignored in silence: it is listed in the PEF, or said once."""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import samba_onnx as samba
from samba_onnx.compiling.option import option_of
from samba_onnx.compiling.options import option_fields
from samba_onnx.compiling.sambaflow_arguments import Command
from samba_onnx.pef import load_pef
from samba_onnx.report import Report
from samba_onnx.sambaflow.command_line import program_parser
from samba_onnx.sessions import SESSION, SambaSession
from samba_onnx.sessions.arguments import ARGUMENTS, OTHER_IDLE, tell_idle

IDLE = [argument for argument in ARGUMENTS if argument.idle]

READ_BY_PROGRAMS = {
    "acc_report_json": "AccuracyReport.save",
    "batch_size": "the shapes of the inputs",
    "data_parallel_mode": "trace_graph and run",
    "dump_accuracy_debug_info": "tensorboard_debug.dump_accuracy_debug_info",
    "gold_file_path": "TestWithGold",
    "visualize": "assert_close(visualize=...)",
    "world_size": "what programs print",
}
"""Arguments that only programs read, and what they hand them to."""


@pytest.fixture(autouse=True)
def _said_anew() -> Iterator[None]:
    tell_idle.cache_clear()
    yield
    tell_idle.cache_clear()


def test_every_argument_is_read_recorded_or_spoken_of() -> None:
    """A new row without a reader shows here."""
    package = Path(samba.__file__).parent
    # What states an option of a compilation is read with the option, or beside others of the session.
    read = {
        row.name
        for field in option_fields().values()
        for row in option_of(field).settings
        if row.states
    }
    for room in ("sessions", "sambaflow", "utils", "facts", "sambaloader.py"):
        paths = package.joinpath(room).rglob("*.py") if "." not in room else [package / room]
        for path in paths:
            if path.name == "arguments.py":
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute):
                    read.add(node.attr)
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    read.add(node.value)
    silent = {
        argument.name
        for argument in ARGUMENTS
        if not (argument.hint or argument.idle or argument.name in READ_BY_PROGRAMS)
    }
    assert silent - read == set()
    assert not {a.name for a in ARGUMENTS if a.hint and a.idle}


@pytest.mark.parametrize("argument", IDLE, ids=lambda one: one.name)
def test_an_argument_without_effect_says_so_once(
    argument: Any, caplog: pytest.LogCaptureFixture
) -> None:
    parser = program_parser({}, experimental=True)
    line = ["run", argument.options[-1], "given"]
    with caplog.at_level(logging.WARNING, "samba_onnx"):
        for _ in range(2):
            assert getattr(parser.parse_args(line), argument.name) == "given"
        parser.parse_args(["run"])
    assert caplog.messages == [f"{argument.name} has no effect: {argument.idle}"]


def test_an_argument_of_the_programs_own_is_not_spoken_of(caplog: pytest.LogCaptureFixture) -> None:
    def common(parser: Any) -> None:
        parser.add_argument("--tensormem", type=int)

    parser = program_parser({Command.RUN: [common]}, experimental=False)
    assert parser.parse_args(["run", "--tensormem", "4"]).tensormem == 4
    assert caplog.messages == []


def test_functions_say_what_they_do_not_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    SESSION.reset()
    model, inputs = nn.Linear(2, 2).eval(), (samba.ones(1, 2, name="x"),)
    path = SESSION.compile(model, inputs, output=tmp_path / "m.pef")
    tell_idle.cache_clear()
    with caplog.at_level(logging.WARNING, "samba_onnx"):
        samba.utils.trace_graph(
            model, inputs, config_dict={"pef": path}, distlearn_config="settings.yaml"
        )
        for _ in range(2):
            samba.utils.measure_performance(
                model,
                inputs,
                n_chips=2,
                n_iterations=1,
                use_sambaloader=True,
                compiled_stats_json="stats.json",
                json_counters="counters.json",
                world_size=2,
            )
        samba.utils.assert_close(torch.ones(1), torch.ones(1), visualize=True)
        SESSION.use_legacy_names(True)
        SESSION.use_legacy_names(False)
    spoken = [text.split(" ")[0] for text in caplog.messages if "has no effect: " in text]
    assert sorted(spoken) == sorted(
        {*OTHER_IDLE, "distlearn_config", "compiled_stats_json", "json_counters"}
    )
    SESSION.reset()


def test_hints_of_compile_are_listed(session: SambaSession, tmp_path: Path) -> None:
    model, inputs = nn.Linear(2, 2).eval(), (samba.ones(1, 2, name="x"),)

    def notes(**hints: Any) -> str:
        path = session.compile(model, inputs, output=tmp_path / "m.pef", **hints)
        with load_pef(path) as opened:
            return " ".join(Report.from_manifest(opened.manifest).notes)

    asked = notes(io_host_memory=True, squeeze_bs_dim=True, is_split_batch=True, graph_names=["g"])
    for hint in ("io_host_memory", "squeeze_bs_dim", "is_split_batch", 'graph_names=["g"]'):
        assert hint in asked
    assert "optim_level" not in notes(config_dict={"optim_level": "o1"})
    assert "o1_experimental_opts" in notes(config_dict={"o1_experimental_opts": True})
    assert "Hints" not in notes(io_host_memory=None, squeeze_bs_dim=False)
