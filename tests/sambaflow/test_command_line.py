"""The command line of SambaFlow programs: the framework's arguments, and those of programs.

Lines of programs are those of the vendor's READMEs and of public programs; what they must come to
is the table of ``parse_app_args`` in SambaFlow's interface, written out again here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import BaseModel

import samba_onnx as samba
from samba_onnx.compiling.sambaflow_arguments import Argument, Command
from samba_onnx.errors import UsageError
from samba_onnx.sambaflow.samba.argconf.args import CommonArgs, CompileArgs, RunArgs
from samba_onnx.sambaflow.samba.utils.argparser import (
    SambaConfig,
    parse_app_args,
    parse_yaml_to_args,
)
from samba_onnx.sessions import SESSION
from samba_onnx.sessions.arguments import ARGUMENTS, tell_idle

DEFAULTS = {
    "batch_size": 1,
    "pef": "",
    "output_folder": "out",
    "inference": False,
    "mapping": "section",
    "num_spatial_batches": 1,
    "data_parallel": False,
    "reduce_on_rdu": False,
    "world_size": 1,
    "data_parallel_mode": "normal",
    "distlearn_config": None,
    "n_chips": 1,
    "num_tiles": None,
    "arch": None,
    "o0": False,
    "o1": False,
    "o3": False,
    "optimization_rules": None,
    "num_iterations": 100,
    "run_graph_only": False,
    "min_duration": 0,
    "json": None,
    "bench_report_json": None,
    "compiled_stats_json": None,
    "acc_report_json": None,
    "json_counters": None,
    "visualize": False,
    "gold_file_path": None,
    "dump_accuracy_debug_info": False,
    "num_sections": None,
    "resource_report_path": None,
    "verbose_report": None,
    "tensormem": None,
    "log_level": None,
    "debug": False,
    "verbose": False,
    "mac_v1": False,
    "mac_v2": False,
    "mac_human_decision": None,
    "compiler_configs_file": None,
    "resources_scaling_factors": None,
    "enable_conv_tiling": False,
    "enable_stochastic_rounding": False,
    "graphamp_preset": None,
    "precision": None,
    "tensor_parallel": None,
    "default_par_factors": False,
    "use_sambaloader": False,
}
"""Default of every attribute, whatever a program is started for."""


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "argv", ["/apps/logreg.py"])
    yield
    SESSION.set_command_line({})
    SESSION.reset()


def parse(line: str, **functions: object) -> Namespace:
    return parse_app_args(line.split(), **functions)


@pytest.mark.parametrize(
    "command", ["compile", "run", "test", "measure-performance", "measure-sections"]
)
def test_every_attribute_is_there_for_every_command(command: str) -> None:
    parsed = vars(parse(command))
    assert {name: parsed[name] for name in DEFAULTS} == DEFAULTS
    assert (parsed["command"], parsed["pef_name"]) == (command, "logreg")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("compile --pef-name=logreg-0923", {"pef_name": "logreg-0923"}),
        ("compile -b 1 --pef-name=ffn_mnist --mac-v2", {"pef_name": "ffn_mnist", "mac_v2": True}),
        ("compile -b=4 -ws=2 --output-folder=pef", {"batch_size": 4, "world_size": 2}),
        ("compile -b5 --inference", {"batch_size": 5, "inference": True}),
        (
            "compile --graphamp-preset mp1 --precision bf16",
            {"graphamp_preset": "mp1", "precision": "bf16"},
        ),
        ("compile --num-tiles 4 --arch SN30 --o0", {"num_tiles": 4, "arch": "sn30", "o0": True}),
        (
            "compile --resources-scaling-factors 0.5 0.8 1 --tensor-parallel batch",
            {"resources_scaling_factors": [0.5, 0.8, 1.0], "tensor_parallel": "batch"},
        ),
        (
            "compile --enable-mixed-precision-ops --tiling-accum float --n-chips 2",
            {"enable_mixed_precision_ops": True, "tiling_accum": "float", "n_chips": 2},
        ),
        ("run -p out/logreg/logreg.pef", {"pef": "out/logreg/logreg.pef"}),
        (
            "run --data-parallel --reduce-on-rdu --pef=x.pef",
            {"data_parallel": True, "reduce_on_rdu": True, "pef": "x.pef"},
        ),
        (
            "measure-performance -p x.pef -n 7 --min-duration 1.5 --json out.json --run-graph-only",
            {"num_iterations": 7, "min_duration": 1.5, "json": "out.json", "run_graph_only": True},
        ),
        ("measure-sections -p x.pef --num-sections 3", {"num_sections": 3}),
        ("run -p x.pef --mapping spatial --num-spatial-batches 8", {"num_spatial_batches": 8}),
    ],
)
def test_lines_of_programs(line: str, expected: dict[str, object]) -> None:
    parsed = vars(parse(line))
    assert {name: parsed[name] for name in expected} == expected


def as_given(argument: Argument) -> list[str]:
    """How an argument is written on a command line, with a value that it takes."""
    flag = argument.options[-1]
    if argument.kind in (bool, Any):
        return [flag]
    return [
        flag,
        str(
            argument.choices[0]
            if argument.choices
            else {int: 1, float: 0.5}.get(argument.kind, "x")
        ),
    ]


@pytest.mark.parametrize("command", [one for one in Command if one is not Command.COMPILE])
def test_every_flag_of_the_compiler_is_taken_where_a_pef_is_loaded(
    command: Command, caplog: pytest.LogCaptureFixture
) -> None:
    tell_idle.cache_clear()
    flags = [one for one in ARGUMENTS if command not in one.commands]
    assert len(flags) > 30
    line = [command.value, "-p", "x.pef", *(word for one in flags for word in as_given(one))]
    parsed = vars(parse_app_args(line))
    assert parsed["pef"] == "x.pef"
    assert [one.name for one in flags if parsed[one.name] == one.default] == []
    told = {record.args[0] for record in caplog.records if "has no effect" in record.message}
    assert told == {one.name for one in flags}


def test_the_help_of_a_run_does_not_show_the_flags_of_the_compiler(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "--mac-v1" not in help_of("run --debug -h", capsys, dev_mode=False)
    assert "--pef " in help_of("run -h", capsys)


def common(parser: ArgumentParser) -> None:
    parser.add_argument("-b", "--batch-size", type=int, default=32)
    parser.add_argument("--num-iterations", type=float, default=0.5)
    parser.add_argument("-bs", dest="small", type=int, default=2)
    parser.add_argument("-psz", "--patch", type=int, default=3)
    parser.add_argument("-print", action="store_true")
    parser.add_argument("-e", "--epochs", type=int, default=1)
    parser.add_argument("--h", "--hidden", dest="hidden", type=int, default=8)
    parser.add_argument("-p", dest="passes", type=int, default=5)
    parser.set_defaults(mapping="spatial")


def test_a_program_redefines_arguments_and_uses_short_ones_of_several_letters() -> None:
    parsed = parse("run", common_parser_fn=common)
    assert (parsed.batch_size, parsed.num_iterations, parsed.small) == (32, 0.5, 2)
    assert (parsed.mapping, parsed.passes, parsed.pef) == ("spatial", 5, "")
    line = "run -b=4 -n 1.5 -bs 5 -psz 7 -print -e 9 --h 16 -p 6 --pef x.pef --mapping section"
    parsed = parse(line, common_parser_fn=common)
    assert (parsed.batch_size, parsed.num_iterations, parsed.small) == (4, 1.5, 5)
    assert (parsed.patch, parsed.print, parsed.epochs, parsed.hidden) == (7, True, 9, 16)
    assert (parsed.passes, parsed.pef, parsed.mapping) == (6, "x.pef", "section")


def test_a_short_flag_counts_for_a_required_argument_of_the_program() -> None:
    def required(parser: ArgumentParser) -> None:
        parser.add_argument("--batch-size", type=int, required=True)

    assert parse("compile -b 3", common_parser_fn=required).batch_size == 3
    with pytest.raises(SystemExit):
        parse("compile", common_parser_fn=required)


def adding(name: str) -> object:
    return lambda parser: parser.add_argument(f"--{name}", type=int, default=0)


@pytest.mark.parametrize(
    ("command", "own", "expected"),
    [
        ("compile", {}, {"every", "shape"}),
        ("run", {}, {"every", "epochs"}),
        ("test", {}, {"every", "epochs"}),
        ("test", {"test_parser_fn": adding("gold")}, {"every", "gold"}),
        ("measure-performance", {}, {"every"}),
        ("measure-sections", {}, {"every"}),
    ],
)
def test_functions_add_to_their_commands(
    command: str, own: dict[str, object], expected: set[str]
) -> None:
    functions = {
        "common_parser_fn": adding("every"),
        "compile_parser_fn": adding("shape"),
        "run_parser_fn": adding("epochs"),
    }
    parsed = vars(parse(command, **functions, **own))
    assert {"every", "shape", "epochs", "gold"} & parsed.keys() == expected


def test_arguments_may_be_defined_for_all_commands_and_again_for_one() -> None:
    def again(parser: ArgumentParser) -> None:
        parser.add_argument("--every", type=str, default="run")

    parsed = parse("run", common_parser_fn=adding("every"), run_parser_fn=again)
    assert parsed.every == "run"


@pytest.mark.parametrize("line", ["", "train", "run --unknown", "run -b x", "compile --arch gpu"])
def test_a_wrong_line_is_refused(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        parse(line)
    assert raised.value.code == 2
    assert "logreg.py" in capsys.readouterr().err


def help_of(line: str, capsys: pytest.CaptureFixture[str], **options: object) -> str:
    with pytest.raises(SystemExit) as raised:
        parse(line, **options)
    assert raised.value.code == 0
    return capsys.readouterr().out


def test_help_is_as_in_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of("-h", capsys)
    assert text.startswith("usage: logreg.py [-h] {compile,run,test,measure-performance} ...\n")
    assert "different modes of operation" in text
    assert "measure-sections" in help_of("-h", capsys, dev_mode=True)


def test_debug_shows_experimental_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of("compile -h", capsys)
    assert "--mac-v2" not in text
    assert "--pef-name" in text
    assert "--mac-v2" in help_of("compile --debug -h", capsys)
    assert "--mac-v2" in help_of("compile -h", capsys, dev_mode=True)


def test_the_line_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/apps/lenet.py", "run", "-p", "a.pef"])
    assert parse_app_args().pef == "a.pef"
    assert parse_app_args(sys.argv).pef == "a.pef"
    assert parse_app_args(argv=sys.argv[1:]).pef_name == "lenet"


@pytest.mark.parametrize(
    ("script", "name"),
    [("/a/net.py", "net"), ("/a/net/__main__.py", "net"), ("-c", ""), ("", "")],
)
def test_the_pef_is_called_after_the_script(
    script: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [script])
    assert parse("compile").pef_name == name


class Net(torch.nn.Module):
    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value * 2


def test_what_was_parsed_counts_without_being_handed_on(tmp_path: Path) -> None:
    parse(f"compile --output-folder {tmp_path}")
    path = samba.session.compile(Net(), (samba.ones(3, name="value"),))
    assert path == str(tmp_path / "logreg" / "logreg.pef")
    assert Path(f"{path}.log").exists()


def test_yaml_overrides_the_line(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("batch-size: 8\npef_name: other\nlayers: [1, 2]\n")
    parsed = parse("compile -b 2")
    assert parse_yaml_to_args(file, parsed) is parsed
    assert (parsed.batch_size, parsed.pef_name, parsed.layers) == (8, "other", [1, 2])
    assert SESSION._options.command_line["pef_name"] == "other"


@pytest.mark.parametrize("text", ["- 1\n", "a: [", None])
def test_what_is_no_yaml_mapping_is_refused(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError, match=r"a\.yaml"):
        parse_yaml_to_args(str(file), Namespace())


def test_a_config_is_checked_against_its_schema() -> None:
    class Schema(BaseModel):
        batch_size: int
        missing: int = 4

    parsed = parse("compile -b 2")
    parameters = SambaConfig(parsed, Schema).get_all_params()
    assert (parameters["batch_size"], parameters["missing"]) == (2, 4)
    assert parameters["command"] == "compile"
    parsed.batch_size = "many"
    with pytest.raises(UsageError, match="Schema refuses"):
        SambaConfig(parsed, Schema).get_all_params()


YAML_OF_A_MODEL_ZOO = {
    "arch": "sn40",
    "output_folder": "out",
    "pef_name": "llama",
    "optim_level": "o1",
    "inference": True,
    "o1_experimental_opts": True,
    "optimization_rules": "rules.yaml",
    "weight_grad_reduce": "bf16sr",
    "num_tiles": 4,
    "n_chips": 1,
    "resources_scaling_factors": [0.5, 0.8],
    "enable_coe": False,
    "a_later_one": 3,
}


def test_settings_are_made_of_plain_dicts() -> None:
    settings = CompileArgs(**YAML_OF_A_MODEL_ZOO)
    assert settings.model_dump().items() >= YAML_OF_A_MODEL_ZOO.items()
    assert settings.arch == "sn40"
    assert RunArgs(pef="x.pef").pef == "x.pef"
    assert CompileArgs().output_folder == "out"


def test_common_settings_are_those_of_both() -> None:
    both = CompileArgs.model_fields.keys() & RunArgs.model_fields.keys()
    assert CommonArgs.model_fields.keys() == both
    assert {"batch_size", "inference"} <= both
    assert not {"pef", "pef_name"} & both
    assert "pef" in RunArgs.model_fields
    assert "arch" in CompileArgs.model_fields


def test_settings_that_make_no_sense_are_refused() -> None:
    for wrong in ({"arch": "gpu"}, {"n_chips": "many"}, {"mapping": None}):
        with pytest.raises(ValueError, match="validation error"):
            CompileArgs(**wrong)


def test_settings_set_the_session_up(tmp_path: Path) -> None:
    samba.session.setup(CompileArgs(output_folder=str(tmp_path), pef_name="mine"))
    assert SESSION._options.with_settings(None)["pef_name"] == "mine"


GROUPS = """
import torch.distributed as dist
from samba_onnx.sambaflow.samba.utils.argparser import parse_app_args

for line in ("compile --data-parallel", "run", "run --data-parallel", "test --data-parallel"):
    parse_app_args(line.split())
    print(dist.is_initialized() and (dist.get_rank(), dist.get_world_size()))
"""


def test_data_parallel_joins_the_group_of_the_process_unless_it_compiles() -> None:
    launchers = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMPI_", "PMI_", "MV2_")
    done = subprocess.run(
        [sys.executable, "-c", GROUPS],
        env={name: value for name, value in os.environ.items() if not name.startswith(launchers)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["False", "False", "(0, 1)", "(0, 1)"]
