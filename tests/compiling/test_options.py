"""Every option of a compilation is stated once, and found wherever options are."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import samba_onnx
from docs.generators import compile_keywords
from docs.generators.options import PAGE, options_page
from samba_onnx.compiling.choices import Float16, Level, PlacementMode, ShardingMode
from samba_onnx.compiling.option import Front, default_of, option_of, text_of
from samba_onnx.compiling.options import CompileOptions, option_fields
from samba_onnx.errors import UsageError
from samba_onnx.facts.precisions import Precision
from samba_onnx.facts.roundings import Rounding

ROOT = Path(__file__).parents[2]
FIELDS = option_fields()


def test_the_page_and_the_keywords_are_those_of_the_fields() -> None:
    assert options_page() == PAGE.read_text(), "run python -m docs.generators.options"
    written = compile_keywords.PATH.read_text()
    assert written == compile_keywords.source(), "run python -m docs.generators.compile_keywords"


def test_names_and_flags_stand_for_one_option_each() -> None:
    names = [each.name for each, _ in CompileOptions().values()]
    flags = [flag.spelled for field in FIELDS.values() for flag in option_of(field).flags]
    rows = [row.name for field in FIELDS.values() for row in option_of(field).settings]
    for one in (names, flags, rows):
        assert len(one) == len(set(one))


@pytest.mark.parametrize("name", FIELDS)
def test_a_default_is_legal_and_is_not_stated(name: str) -> None:
    default = default_of(FIELDS[name])
    assert CompileOptions.of(**{name: default}) == CompileOptions()
    assert CompileOptions.of(**{name: None}).stated() == {}


@pytest.mark.parametrize(
    ("name", "given", "kept", "text"),
    [
        ("level", "o1", Level.O1, "o1"),
        ("placement", "strict", PlacementMode.STRICT, "strict"),
        ("float16", "cpu", Float16.CPU, "cpu"),
        ("precision", "bf16", Precision.BF16, "bf16"),
        ("tensor_parallel", "batch", ShardingMode.BATCH, "batch"),
        ("stochastic_rounding", "steps, gradients", {Rounding.STEPS, Rounding.GRADIENTS}, "gradients,steps"),
        ("dims", {"batch": (1, 8)}, {"batch": (1, 8)}, "batch=1,8"),
        ("input_shapes", {"x": (1, None)}, {"x": (1, None)}, "x=1,?"),
        ("keep_dynamic", True, True, "yes"),
        ("custom_ops", ("a.so", Path("b.so")), ("a.so", Path("b.so")), "a.so,b.so"),
    ],
)  # fmt: skip
def test_values_are_kept_as_records_have_them(name: str, given: Any, kept: Any, text: str) -> None:
    options = CompileOptions.of(**{name: given})
    assert options.stated() == {name: kept}
    assert options.texts() == {name: text} == {name: text_of(kept)}
    assert options.replace(**{name: None}) == CompileOptions()


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"level": "o2"}, "level is 'o2': expected one of o0, o1, o3"),
        ({"placement": "best"}, "placement is 'best': expected one of optimal, strict"),
        ({"float16": "float8"}, "float16 is 'float8': expected one of float32, bfloat16, cpu"),
        ({"seed": -1}, "seed is -1: expected at least 0"),
        ({"sample_seconds": 0.0}, "sample_seconds is 0.0: expected at least 0.001"),
        ({"stochastic_rounding": "weights"}, "stochastic_rounding names 'weights'"),
    ],
)
def test_what_is_not_legal_is_refused(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        CompileOptions.of(**keywords)
    assert str(caught.value).startswith(message)


def test_another_name_is_no_option() -> None:
    with pytest.raises(TypeError, match="no option 'levle' of a compilation: did you mean 'level'"):
        CompileOptions.of(levle="o1")


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("front", Front)
def test_options_count_for_the_models_that_they_say(name: str, front: Front) -> None:
    stated = option_of(FIELDS[name])
    value = default_of(FIELDS[name])
    other: Any = (not value) if isinstance(value, bool) or value is None else None
    if other is None:
        samples = {"sample_seconds": 1.0, "level": "o0", "placement": "strict", "precision": "bf16"}
        samples |= {"stochastic_rounding": "steps", "legalise": "all"}
        other = samples.get(name, value + 1 if isinstance(value, int) else ("a",))
        other = {"a": 1} if isinstance(value, dict) else other
    if stated.choices is not None and other is True:
        other = next(iter(stated.choices)).value
    options = CompileOptions.of(**{name: other})
    assert options.stated(), name
    if front in stated.fronts and not stated.trains:
        options.refuse_other(front)
    else:
        with pytest.raises(UsageError):
            options.refuse_other(front)
    if stated.writes:
        with pytest.raises(UsageError):
            options.refuse_other(front, writes=False)


def test_functions_document_the_keywords_that_they_take() -> None:
    keywords = inspect.signature(samba_onnx.convert).parameters
    analysis = inspect.signature(samba_onnx.analyze).parameters
    for name, field in FIELDS.items():
        stated = option_of(field)
        takes = Front.ONNX in stated.fronts and stated.python is not None
        assert (name in keywords) == takes
        assert (name in analysis) == (takes and not stated.writes)
        if takes:
            assert f"        {name}: " in (samba_onnx.convert.__doc__ or "")
            assert keywords[name].default == default_of(field)


_NEW = """    grain: int = option(
        3,
        "How finely sections are cut, for this test.",
        flag=CommandFlag(int, metavar="N", default=3, least=1),
        least=1,
        settings=(Argument("grain", "fineness of sections", kind=int, states=int),),
    )
    default_rules: bool | None = option("""


def test_a_field_is_all_that_an_option_takes(tmp_path: Path) -> None:
    """A field that is written into a copy is found wherever options are, and nothing else is changed."""
    copy = tmp_path / "copy"
    ignored = shutil.ignore_patterns("__pycache__", "*.json")
    shutil.copytree(
        ROOT / "samba_onnx",
        copy / "samba_onnx",
        ignore=lambda f, names: {n for n in names if n == "__pycache__"},
    )
    shutil.copytree(ROOT / "docs" / "generators", copy / "docs" / "generators", ignore=ignored)
    (copy / "docs" / "__init__.py").touch()
    path = copy / "samba_onnx" / "compiling" / "planning_options.py"
    text = path.read_text()
    assert text.count("    default_rules: bool | None = option(") == 1
    path.write_text(text.replace("    default_rules: bool | None = option(", _NEW))
    program = tmp_path / "find.py"
    program.write_text(_FIND)
    (tmp_path / "samba-port.toml").write_text("grain = 5\n")
    environment = os.environ | {"PYTHONPATH": str(copy), "SAMBA_PORT_GRAIN": ""}
    del environment["SAMBA_PORT_GRAIN"]
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {
        "root": True,
        "help": True,
        "signature": 3,
        "documentation": True,
        "keywords": True,
        "page": True,
        "parser": "fineness of sections",
        "settings": {"grain": 7},
        "file": "5",
        "variable": "6",
        "flag": "4",
        "refused": "grain is 0: expected at least 1",
    }


_FIND = """
import contextlib, inspect, io, json, os
from pathlib import Path
import onnx
import samba_onnx
from docs.generators.compile_keywords import source
from docs.generators.options import options_page
from samba_onnx.cli.application import run_command
from samba_onnx.pef import load_pef
from samba_onnx.sessions.arguments import ARGUMENTS
from samba_onnx.sessions.session_options import settings_keywords

text = '<ir_version: 8, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
onnx.save(onnx.parser.parse_model(text), "m.onnx")
help_text = io.StringIO()
with contextlib.redirect_stdout(help_text):
    run_command(["convert", "--help"])

def kept(*flags):
    assert run_command(["convert", "m.onnx", "--no-sample", "-q", *flags]) == 0
    with load_pef("m.pef") as pef:
        return pef.manifest.options["grain"]

found = {
    "root": Path(samba_onnx.__file__).is_relative_to(Path.cwd()),
    "help": "--grain N" in help_text.getvalue(),
    "signature": inspect.signature(samba_onnx.convert).parameters["grain"].default,
    "documentation": "grain: How finely sections are cut" in samba_onnx.convert.__doc__,
    "keywords": "grain: int | None" in source(),
    "page": "| `--grain` | `grain` | `grain` | both | `3` |" in options_page(),
    "parser": next(row.help for row in ARGUMENTS if row.name == "grain"),
    "settings": settings_keywords({"grain": "7"}),
    "file": kept(),
}
os.environ["SAMBA_PORT_GRAIN"] = "6"
found["variable"] = kept()
found["flag"] = kept("--grain", "4")
try:
    samba_onnx.convert("m.onnx", grain=0)
except samba_onnx.SambaError as error:
    found["refused"] = str(error)
print()
print(json.dumps(found))
"""


def test_records_have_no_field_that_is_no_option() -> None:
    for part in dataclasses.fields(CompileOptions):
        record: Any = part.default_factory
        for field in dataclasses.fields(record):
            assert option_of(field).help.endswith((".", "repeatable."))
