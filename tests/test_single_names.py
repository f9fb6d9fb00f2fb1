"""One name where there may be several: what the command line takes once, Python takes without a list."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import samba_onnx
from samba_onnx.compiling.compiler_settings import legalisation_options
from samba_onnx.errors import UsageError
from samba_onnx.pef import load_pef
from samba_onnx.tools.lint.linter import lint

MODEL = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 21]> '
    "g (float[2, 3] x) => (float[2, 3] y, float[3, 2] all) { y = Tan(x) all = Transpose(y) }"
)

TESTED = {
    ("analyze", "no_legalise"), ("convert", "no_legalise"), ("convert", "notes"), ("convert", "custom_ops"),
    ("self_test", "custom_ops"), ("verify", "custom_ops"), ("Device", "custom_ops"), ("Device.run", "outputs"),
    ("from_onnx", "weights"),
}  # fmt: skip
"""Those of custom operators in the mirror of ``runtime.engine.settings``, which all of them call."""


def several_texts() -> set[tuple[str, str]]:
    functions: dict[str, Callable[..., Any]] = {
        name: getattr(samba_onnx, name)
        for name in ("analyze", "convert", "verify", "self_test", "from_onnx", "Device")
    }
    functions["Device.run"] = samba_onnx.Device.run
    return {
        (name, each.name)
        for name, function in functions.items()
        for each in inspect.signature(function).parameters.values()
        if re.search(r"(Sequence|Collection)\[str", str(each.annotation))
    }


def test_the_table_has_every_option_that_takes_several_texts() -> None:
    assert several_texts() == TESTED


def test_rules_of_legalisation() -> None:
    assert legalisation_options("auto", "resize") == legalisation_options("auto", ["resize"])
    assert legalisation_options("auto", "all") == legalisation_options("auto", ("all",))
    with pytest.raises(UsageError, match="there is no rule 'al' of legalisation"):
        legalisation_options("auto", "al")
    assert samba_onnx.analyze(MODEL, no_legalise="all") == samba_onnx.analyze(MODEL, no_legalise=["all"])  # fmt: skip


def test_notes_and_outputs(tmp_path: Path) -> None:
    with samba_onnx.convert(MODEL, tmp_path / "m.pef", no_legalise="all", notes="one sentence") as pef:  # fmt: skip
        assert pef.manifest.notes[-1] == "one sentence"
    x = np.ones((2, 3), np.float32)
    with load_pef(tmp_path / "m.pef") as pef, samba_onnx.Device(pef) as device:
        # Not "a", "l" and "l", nor all outputs whose names are a part of it.
        assert list(device.run({"x": x}, "all")) == ["all"]
        assert list(device.run({"x": x}, ["all"])) == ["all"]
        with pytest.raises(UsageError, match="output 'al' does not exist"):
            device.run({"x": x}, "al")


def test_paths_of_lint(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text("import sambaflow.samba as samba\n")
    assert lint(str(file)) == lint([str(file)])


def test_weights_of_an_onnx_model() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[1, 2] x) => (float[1, 2] y) '
        "<float[2, 2] weight = {1, 2, 3, 4}, float[2] b = {1, 2}> "
        "{ h = MatMul(x, weight) y = Add(h, b) }"
    )
    single = samba_onnx.from_onnx(model, weights="weight")
    assert single.trained_names == samba_onnx.from_onnx(model, weights=["weight"]).trained_names
    assert list(single.trained_names) == ["weight"]
