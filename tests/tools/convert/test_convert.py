"""``convert`` and ``analyze``: options, limits, where answers go."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from samba_onnx import errors
from samba_onnx.compiling.model_options import SampleOptions
from samba_onnx.compiling.options import CompileOptions
from samba_onnx.report import Report
from samba_onnx.report.layout import render
from samba_onnx.report.terminal import summary
from tests.cli.conftest import SambaPort
from tests.report.samples import all_on_rdu, detector

DOCS = Path(__file__).parents[3] / "docs"
Compiler = Callable[[Any], list[dict[str, Any]]]

SAMBA_ERRORS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.SambaError)
]


def test_analyze_prints_the_report_and_nothing_else(
    samba_port: SambaPort, compiler: Compiler, model: Path
) -> None:
    compiler(detector())
    result = samba_port("analyze", model)
    assert (result.status, result.err) == (0, "")
    assert result.out == render(summary(Report.from_manifest(detector())))
    assert result.out.splitlines()[0] == Report.from_manifest(detector()).headline


def test_options_reach_the_compiler(samba_port: SambaPort, compiler: Compiler, model: Path) -> None:
    calls = compiler(all_on_rdu())
    result = samba_port(
        *("analyze", model, "--target", "sn10", "--level", "o0", "--dim", "batch=8"),
        *("--dim", "seq=128", "--input-shape", "a=b=1,?,rows", "--input-shape", "scalar="),
        *("--float16", "bfloat16", "--legalise", "all", "--no-legalise", "pad"),
        *("--placement", "strict", "--host", "own.toml"),
        *("--constant", "sr=16000", "--constant", "on=True"),
    )
    assert result.status == 0
    (call,) = calls
    assert call["model"] == str(model)
    assert call["options"] == CompileOptions.of(
        target="sn10",
        level="o0",
        placement="strict",
        host="own.toml",
        dims={"batch": 8, "seq": 128},
        input_shapes={"a=b": (1, None, "rows"), "scalar": ()},
        float16="bfloat16",
        constants={"sr": 16000, "on": True},
        legalise="all",
        no_legalise=["pad"],
    )


def test_convert_writes_beside_the_model_unless_told_otherwise(
    samba_port: SambaPort, compiler: Compiler, model: Path, tmp_path: Path
) -> None:
    calls = compiler(all_on_rdu())
    assert (
        samba_port("convert", model, "--no-sample", "--seed", 7, "--sample-seconds", 5).status == 0
    )
    result = samba_port("convert", model, "-o", tmp_path / "other.pef")
    assert result.out.endswith(f"\nWrote {tmp_path / 'other.pef'} (2.0 kB)\n")
    assert [call["output"] for call in calls] == [
        str(tmp_path / "model.pef"),
        str(tmp_path / "other.pef"),
    ]
    assert [call["options"].sampling for call in calls] == [
        SampleOptions(sample=False, seed=7, sample_seconds=5.0),
        SampleOptions(),
    ]


def test_json_to_standard_output_replaces_the_text(
    samba_port: SambaPort, compiler: Compiler, model: Path
) -> None:
    compiler(detector())
    result = samba_port("analyze", model, "--json", "-")
    document = json.loads(result.out)
    jsonschema.validate(document, json.loads((DOCS / "report.schema.json").read_text()))
    assert document["headline"] == Report.from_manifest(detector()).headline


def test_json_into_a_file_comes_with_the_text(
    samba_port: SambaPort, compiler: Compiler, model: Path, tmp_path: Path
) -> None:
    compiler(detector())
    result = samba_port("convert", model, "--json", tmp_path / "m.json")
    document = json.loads((tmp_path / "m.json").read_text())
    jsonschema.validate(document, json.loads((DOCS / "report.schema.json").read_text()))
    assert result.out.startswith("detector.onnx [batch dynamic] → sn40l: ")


def test_quiet_is_one_line(samba_port: SambaPort, compiler: Compiler, model: Path) -> None:
    compiler(detector())
    result = samba_port("analyze", model, "-q")
    assert result.out == Report.from_manifest(detector()).headline + "\n"


def test_verbose_shows_the_passes(samba_port: SambaPort, compiler: Compiler, model: Path) -> None:
    compiler(detector())
    assert "fold batch normalization" not in samba_port("analyze", model).out
    assert "fold batch normalization" in samba_port("analyze", model, "-v").out


@pytest.mark.parametrize(
    ("options", "status", "complaint"),
    [
        (("--fail-on-fallback",), 1, "1 fallback to the CPU, 0 allowed"),
        (("--max-fallbacks", 0), 1, "1 fallback to the CPU, 0 allowed"),
        (("--max-fallbacks", 1), 0, ""),
        (("--max-transfer-bytes", 806_911), 1, "806912 bytes are transferred in every run"),
        (("--max-transfer-bytes", "806.911kB"), 1, "806911 allowed"),
        (("--max-transfer-bytes", 806_912), 0, ""),
        (("--max-transfer-bytes", "1MB", "--max-fallbacks", 9), 0, ""),
    ],
)
@pytest.mark.parametrize("command", ["analyze", "convert"])
def test_limits(
    samba_port: SambaPort,
    compiler: Compiler,
    model: Path,
    command: str,
    options: tuple[object, ...],
    status: int,
    complaint: str,
) -> None:
    compiler(detector())
    result = samba_port(command, model, *options)
    assert result.status == status
    assert complaint in result.err
    assert len(result.err.splitlines()) == status
    assert result.out.startswith("detector.onnx [batch dynamic] → sn40l: ")


@pytest.mark.parametrize("kind", SAMBA_ERRORS)
@pytest.mark.parametrize("command", ["analyze", "convert"])
def test_every_error_is_one_line(
    samba_port: SambaPort,
    compiler: Compiler,
    model: Path,
    command: str,
    kind: type[errors.SambaError],
) -> None:
    compiler(kind("node 'a\x1b[31m' is odd:\nsecond line"))
    result = samba_port(command, model)
    no = kind is errors.PassMismatchError  # the answer to --check-passes
    assert (result.status, result.out) == (1 if no else 2, "")
    assert result.err.startswith(f"samba-port {command}: ")
    assert result.err.endswith("error: node 'a\\x1b[31m' is odd: second line\n")
    assert not list(model.parent.glob("*.pef"))


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MemoryError(), "error: memory ran out"),
        (FileNotFoundError(2, "No such file", "x.bin"), "error: x.bin: No such file"),
        (OSError(28, "No space left"), "error: no space is left for the output"),
        (PermissionError(13, "Permission denied", "a\nb"), "error: a b: Permission denied"),
    ],
)
def test_errors_of_the_system(
    samba_port: SambaPort, compiler: Compiler, model: Path, error: Exception, line: str
) -> None:
    compiler(error)
    result = samba_port("analyze", model)
    assert (result.status, result.out) == (2, "")
    assert result.err == f"samba-port analyze: {line}\n"


def test_a_bug_is_one_line_without_traceback(
    samba_port: SambaPort, compiler: Compiler, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SAMBA_ONNX_DEBUG", raising=False)
    compiler(ZeroDivisionError("oops"))
    result = samba_port("analyze", model)
    assert result.status == 2
    assert result.err == (
        "samba-port analyze: internal error: ZeroDivisionError: oops; please report it "
        "(SAMBA_ONNX_DEBUG=1 shows where it happened)\n"
    )
    assert "Traceback" in samba_port("analyze", model, "-vv").err
    monkeypatch.setenv("SAMBA_ONNX_DEBUG", "1")
    assert "Traceback" in samba_port("analyze", model).err


def test_a_huge_message_is_cut(samba_port: SambaPort, compiler: Compiler, model: Path) -> None:
    compiler(errors.InvalidModelError("n" * 1_000_000))
    assert len(samba_port("analyze", model).err) < 700


@pytest.mark.parametrize(
    "arguments",
    [
        ("analyze",),
        ("analyze", "{model}", "extra"),
        ("analyze", "{model}", "--unknown"),
        ("analyze", "{model}", "--dim"),
        ("analyze", "{model}", "--dim", "batch"),
        ("analyze", "{model}", "--dim", "=8"),
        ("analyze", "{model}", "--dim", "batch=-1"),
        ("analyze", "{model}", "--dim", "batch=²"),
        ("analyze", "{model}", "--dim", "batch=1", "--dim", "batch=2"),
        ("analyze", "{model}", "--dim", "batch=99999999999999999999999"),
        ("analyze", "{model}", "--input-shape", "1,2"),
        ("analyze", "{model}", "--input-shape", "x=1,,2"),
        ("analyze", "{model}", "--input-shape", "x=1", "--input-shape", "x=1"),
        ("analyze", "{model}", "--max-fallbacks", "-1"),
        ("analyze", "{model}", "--max-fallbacks", "many"),
        ("analyze", "{model}", "--max-transfer-bytes", "-1"),
        ("analyze", "{model}", "--max-transfer-bytes", "1 parsec"),
        ("analyze", "{model}", "--json", "{model}"),
        ("convert", "{model}", "-o", "{model}"),
        ("convert", "{model}", "-o", "m.pef", "--json", "m.pef"),
        ("convert", "{model}", "-o", "m.pef", "--json", "./m.pef.log"),
        ("convert", "{model}", "--seed", "-1"),
        ("bogus",),
        ("--bogus",),
    ],
)
def test_wrong_usage(
    samba_port: SambaPort, compiler: Compiler, model: Path, arguments: tuple[str, ...]
) -> None:
    calls = compiler(all_on_rdu())
    result = samba_port(*(text.format(model=model) for text in arguments))
    assert (result.status, result.out) == (2, "")
    assert len(result.err.splitlines()) == 1
    assert result.err.startswith("samba-port")
    assert not calls


def test_a_limit_in_bytes_is_read_exactly(
    samba_port: SambaPort, compiler: Compiler, model: Path
) -> None:
    compiler(detector())
    huge = 10**18
    assert samba_port("analyze", model, "--max-transfer-bytes", huge - 1).status == 0
