"""``analyze --fit``: both sides of every boundary that it names are planned again and looked at."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest
from onnx import parser

from tests.cli.conftest import SambaPort

DOCS = Path(__file__).parents[3] / "docs"
TARGET = """
extends = "sn40l"
name = "small"

[hardware.tiers.hbm]
bytes = { value = 1_000_000, evidence = "assumed", note = "so that little fits" }
bytes_per_second = { value = 1.6e12, evidence = "assumed", note = "as the SN40L" }

[hardware.tiers.ddr]
bytes = { value = 9_000_000, evidence = "assumed", note = "so that little fits" }
bytes_per_second = { value = 100e9, evidence = "assumed", note = "as the SN40L" }
"""
MODEL = """
    <ir_version: 10, opset_import: ["" : 21]>
    net (float[rows, seq, 16] x) => (float[rows, seq, seq] y) <float[16, 16] w>
    { a = MatMul(x, w) t = Transpose <perm = [0, 2, 1]> (x) s = MatMul(a, t) y = Softmax <axis = -1> (s) }
"""
FACTORY = """
import torch
from torch import nn


class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x, label):
        return nn.functional.cross_entropy(self.layers(x), label)


def training(rows=3):
    module = Loss()
    inputs = torch.randn(rows, 8), torch.randint(0, 4, (rows,))
    return module, inputs, torch.optim.AdamW(module.parameters())


def of(rows):
    return lambda: training(rows)
"""


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(TARGET)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(MODEL, tmp_path / "net.onnx")


def save(text: str, path: Path) -> Path:
    proto = parser.parse_model(text)
    array = np.ones((16, 16), np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(array, "w"))
    onnx.save(proto, path)
    return path


def answered(samba_port: SambaPort, *arguments: object) -> dict[str, Any]:
    result = samba_port("analyze", *arguments, "--json", "-")
    assert result.status == 0, result.err
    document: dict[str, Any] = json.loads(result.out)
    schema = json.loads((DOCS / "report.schema.json").read_text())
    jsonschema.validate(document, schema)
    return document


def tiers(samba_port: SambaPort, *arguments: object) -> set[str] | None:
    """Return where a plan's regions lie; None where they have no room."""
    result = samba_port("analyze", *arguments, "--json", "-")
    if result.status:
        assert "more than small has room for" in result.err
        return None
    return {region["tier"] for region in json.loads(result.out)["regions"]}


@pytest.mark.parametrize(
    ("text", "dimension", "multiple"),
    [
        pytest.param("rows", "rows", 1, marks=pytest.mark.slow),
        ("seq", "seq", 1),
        ("seq", "seq", 32),
        pytest.param("x[0]", "rows", 1, marks=pytest.mark.slow),
    ],
)
def test_the_named_size_fits_and_the_next_one_does_not(
    samba_port: SambaPort, model: Path, target: Path, text: str, dimension: str, multiple: int
) -> None:
    where = (model, "--target", target, "--level", "o0", "--dim", f"{other(dimension)}=8")
    asked = (*where, "--fit", text, "--fit-multiple", multiple)
    (fit,) = answered(samba_port, *asked)["fits"]
    assert (fit["name"], fit["multiple"], fit["others"]) == (dimension, multiple, [])
    assert [limit["tiers"] for limit in fit["limits"]] == [["hbm"], ["hbm", "ddr"]]
    for limit, inside in zip(fit["limits"], ({"hbm"}, {"hbm", "ddr"}), strict=True):
        largest, following = limit["largest"]["size"], limit["next"]["size"]
        assert (limit["exact"], limit["limit"]) == (True, "memory")
        assert following == largest + multiple
        assert largest % multiple == 0
        places = tiers(samba_port, *where, "--dim", f"{dimension}={largest}")
        assert places is not None
        assert places <= inside
        places = tiers(samba_port, *where, "--dim", f"{dimension}={following}")
        assert places is None or not places <= inside
    slow = fit["limits"][1]["largest"]
    assert slow["streamed_bytes"] > 0
    assert slow["modelled_seconds"] > fit["limits"][0]["largest"]["modelled_seconds"]


def other(dimension: str) -> str:
    return {"rows": "seq", "seq": "rows"}[dimension]


def test_people_read_the_largest_sizes(samba_port: SambaPort, model: Path, target: Path) -> None:
    result = samba_port("analyze", model, "--target", target, "--fit", "seq", "--level", "o0")
    assert "Largest seq (x[1]) that fits, planned at " in result.out
    assert "with rows=1, which nobody stated" in result.out
    assert " of 1,000,000 bytes" in result.out


def test_the_first_line_has_the_answer(samba_port: SambaPort, model: Path, target: Path) -> None:
    asked = ("analyze", model, "--target", target, "--fit", "seq", "--level", "o0")
    quiet = samba_port(*asked, "-q").out
    assert quiet.count("\n") == 1
    (fit,) = json.loads(samba_port(*asked, "--json", "-").out)["fits"]
    fast, all_tiers = (limit["largest"]["size"] for limit in fit["limits"])
    assert quiet.endswith(f"; seq up to {fast:,} in hbm, {all_tiers:,} in hbm and ddr\n")


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        (MODEL, ("--fit", "channels"), "no dynamic dimension may be meant: rows (x[0]); seq (x[1])"),
        (MODEL.replace("rows, seq, 16", "a_seq, b_seq, 16").replace("rows", "a_seq"), ("--fit", "seq"),
         "more than one dynamic dimension may be meant: a_seq (x[0]); b_seq (x[1])"),
        (MODEL.replace("rows", "2").replace("seq", "4"), ("--fit", "batch"),
         "every dimension of net.onnx is static (x [2, 4, 16])"),
        (MODEL, ("--fit", "seq", "--keep-dynamic"), "--keep-dynamic leaves sizes open"),
        (MODEL, ("--fit", "seq", "--dim", "rows=1,2"), "give --dim one size"),
        (MODEL, ("--fit", "seq", "--what-if", "target=sn30"), "--what-if compares two plans"),
        (MODEL, ("--fit-multiple", "8"), "say which dimension"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_refused(
    samba_port: SambaPort, tmp_path: Path, text: str, options: tuple[str, ...], said: str
) -> None:
    result = samba_port("analyze", save(text, tmp_path / "net.onnx"), *options)
    assert (result.status, result.out) == (2, "")
    assert said in result.err
    assert len(result.err.splitlines()) == 1


def test_batch_is_the_first_axis_where_no_name_says_so(
    samba_port: SambaPort, model: Path, target: Path
) -> None:
    """The dimension has no name at all here, and is set by the shape of its input."""
    proto = onnx.load(model)
    proto.graph.input[0].type.tensor_type.shape.dim[0].ClearField("value")
    onnx.save(proto, model)
    (fit,) = answered(samba_port, model, "--target", target, "--level", "o0", "--fit", "batch")[
        "fits"
    ]
    assert (fit["name"], fit["inputs"]) == ("", ["x[0]"])
    largest = fit["limits"][0]["largest"]["size"]
    where = (model, "--target", target, "--level", "o0", "--input-shape")
    assert tiers(samba_port, *where, f"x={largest},?,16") == {"hbm"}
    assert tiers(samba_port, *where, f"x={largest + 1},?,16") != {"hbm"}


@pytest.mark.parametrize("chips", [1, 2])
def test_a_torch_module_that_trains(
    samba_port: SambaPort, tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch, chips: int
) -> None:
    """Gradients, states of the optimizer and saved activations count; with two RDUs, on each."""
    (tmp_path / "fitted_training.py").write_text(FACTORY)
    monkeypatch.syspath_prepend(tmp_path)
    options = ["--target", target, "--train", "--level", "o0"]
    if chips > 1:
        options += ["--n-chips", chips, "--tensor-parallel", "batch"]
    asked = ("fitted_training:of_four", *options, "--fit", "batch")
    sizes: dict[str, int] = {"of_four": 4}
    with (tmp_path / "fitted_training.py").open("a") as file:
        file.write("\n\nof_four = of(4)\n")
    (fit,) = answered(samba_port, *asked)["fits"]
    assert fit["inputs"] == ["x[0]", "label[0]"]
    assert fit["multiple"] == chips
    limit = fit["limits"][0]
    largest, following = limit["largest"]["size"], limit["next"]["size"]
    assert following == largest + chips
    # Planned anew from example inputs that are really so large.
    module = sys.modules["fitted_training"]
    for name, rows in (("largest", largest), ("following", following)):
        sizes[name] = rows
        monkeypatch.setattr(module, name, module.of(rows), raising=False)
    assert tiers(samba_port, "fitted_training:largest", *options) == {"hbm"}
    places = tiers(samba_port, "fitted_training:following", *options)
    assert places is None or "ddr" in places


def test_torch_axes_that_cannot_be_told(
    samba_port: SambaPort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "unclear_training.py").write_text(FACTORY)
    monkeypatch.syspath_prepend(tmp_path)
    result = samba_port("analyze", "unclear_training:training", "--train", "--fit", "seq")
    assert result.status == 2
    assert "x [3, 8], label [3]" in result.err


def test_convert_says_where_the_question_is_answered(samba_port: SambaPort, model: Path) -> None:
    result = samba_port("convert", model, "--fit", "batch")
    assert (result.status, result.out) == (2, "")
    assert "samba-port analyze MODEL --fit batch finds the largest" in result.err
    assert not model.with_suffix(".pef").exists()


def test_a_stated_size_without_room_begins_the_search(
    samba_port: SambaPort, model: Path, target: Path
) -> None:
    """The answer is that of a search from below, and the report that of the largest size."""
    where = (model, "--target", target, "--dim", "seq=8", "--fit", "rows")
    above, below = (answered(samba_port, *where, "--dim", f"rows={n}") for n in (1_000_000, 1))
    (fit,), (same,) = above["fits"], below["fits"]
    for one, other in zip(fit["limits"], same["limits"], strict=True):
        assert one["exact"]
        assert one["largest"] == other["largest"]
        assert one["next"] == other["next"]
    largest = fit["limits"][1]["largest"]["size"]
    (graph,) = above["graphs"]
    assert graph["inputs"][0]["shape"][0] == largest
    assert above["notes"][0].endswith(f"this report is of {largest:,}, the largest that does.")
    assert not any("does not fit" in note for note in below["notes"])


def test_where_no_size_has_room_the_stated_one_says_so(
    samba_port: SambaPort, model: Path, target: Path
) -> None:
    asked = ("--dim", "rows=1000000", "--fit", "rows", "--fit-multiple", "1000000")
    result = samba_port("analyze", model, "--target", target, "--dim", "seq=8", *asked)
    assert result.status == 2
    assert "more than small has room for" in result.err
