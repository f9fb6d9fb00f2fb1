"""``run``, ``inspect`` and ``verify`` on PEFs that ``samba.session.compile`` made: without weights."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import samba_onnx as samba
from samba_onnx.pef import load_pef
from tests.cli.conftest import SambaPort
from tests.cli.factories import batch, net
from tests.pef.independent_reader import reader

DOCS = Path(__file__).parents[2] / "docs"
# One float32 product of four terms.
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training PEF, its module's weights in two formats, and inputs."""
    place: Path = tmp_path_factory.mktemp("training")
    model = net()
    samba.from_torch_model_(model)
    optimizer = samba.optim.AdamW(model.parameters(), lr=0.1, max_grad_norm=1.0)
    samba.session.compile(
        model, batch(), optimizer, output=place / "train.pef", gradient_accumulation=True
    )
    samba.session.reset()
    state = net().state_dict()
    safetensors.torch.save_file(state, place / "net.safetensors")
    torch.save({"model": state, "optimizer": {"lr": 0.1}, "epoch": 3}, place / "net.pt")
    x, target = batch()
    np.savez(place / "batch.npz", x=x.numpy(), target=target.numpy())
    return place


def arguments(folder: Path, *more: object) -> list[object]:
    return ["run", folder / "train.pef", "--input", folder / "batch.npz", *more]


def test_without_weights_one_line_says_what_to_do(samba_port: SambaPort, folder: Path) -> None:
    for command in (arguments(folder), ["verify", folder / "train.pef"]):
        result = samba_port(*command)
        assert (result.status, result.out) == (2, "")
        (line,) = result.err.splitlines()
        assert "train.pef carries no weights (net__layer__weight, ...)" in line
        assert "samba.session.compile" in line
        assert "--weights" in line


@pytest.mark.parametrize("name", ["net.safetensors", "net.pt"])
def test_weights_of_a_checkpoint(
    samba_port: SambaPort, folder: Path, tmp_path: Path, name: str
) -> None:
    output = tmp_path / "out.npz"
    result = samba_port(*arguments(folder, "--weights", folder / name, "-o", output))
    assert (result.status, result.err) == (0, "")
    with torch.no_grad():
        wanted = net()(*batch())
    with np.load(output) as made:
        for one, other in zip(made.values(), wanted, strict=True):
            np.testing.assert_allclose(one, other.numpy(), **CLOSE)
    assert "weight" in result.out


def test_a_step_is_that_of_torch(samba_port: SambaPort, folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.npz"
    options = ("--weights", folder / "net.pt", "--iterations", 2, "-o", output)
    assert samba_port(*arguments(folder, *options)).status == 0
    twin = net()
    # The first step of Adam, whose corrections of the moments are those of step 1.
    optimizer = torch.optim.AdamW(twin.parameters(), lr=0.1, betas=(0.9, 0.997), weight_decay=0)
    twin(*batch())[0].backward()
    nn.utils.clip_grad_norm_(twin.parameters(), 1.0)
    optimizer.step()
    with torch.no_grad(), np.load(output) as made:
        loss, out = made.values()
        np.testing.assert_allclose(loss, twin(*batch())[0].numpy(), rtol=1e-4)
        np.testing.assert_allclose(out, twin(*batch())[1].numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "types", "outputs"),
    [
        (["--section-types", "fwd"], ["FWD"], 2),
        (["--section-types", "Fwd,BCKWD"], ["FWD", "BCKWD"], 2),
        (["--section-types", "zerograd", "--section-types", "FWD"], ["ZEROGRAD", "FWD"], 2),
        (["--section-types", "ZeroGrad"], ["ZEROGRAD"], 0),
        ([], ["ZEROGRAD", "FWD", "BCKWD", "GRADNORM", "OPT"], 2),
    ],
)
def test_sections_by_type(
    samba_port: SambaPort, folder: Path, options: list[str], types: list[str], outputs: int
) -> None:
    weights = ("--weights", folder / "net.pt", "--json", "-")
    result = samba_port("run", folder / "train.pef", "--random", 0, *weights, *options)
    assert (result.status, result.err) == (0, "")
    document = json.loads(result.out)
    jsonschema.validate(document, json.loads((DOCS / "run.schema.json").read_text()))
    with load_pef(folder / "train.pef") as pef:
        stages = pef.manifest.stages()
    assert list(dict.fromkeys(stages[i].type.value for i in document["stages"])) == types
    assert len(document["outputs"]) == outputs


def test_sections_by_id(samba_port: SambaPort, folder: Path) -> None:
    with load_pef(folder / "train.pef") as pef:
        forward = [s.id for s in pef.manifest.sections if s.type == "FWD"]
    ids = ",".join(map(str, forward))
    options = ("--weights", folder / "net.safetensors", "--section-ids", ids, "--json", "-")
    result = samba_port(*arguments(folder, *options))
    assert (result.status, json.loads(result.out)["stages"]) == (0, forward)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--section-types", "fwd", "--section-ids", "0"], "give one of them"),
        (
            ["--section-types", "sideways"],
            "SIDEWAYS does not exist in graph 'forward', which has ZEROGRAD, FWD",
        ),
        (["--section-types", "fwd,"], "expected types"),
        (["--section-ids", "99"], "section 99 does not exist in graph 'forward', which has 0, 1"),
        (["--section-ids", "a"], "expected numbers"),
        (["--section-types", "opt"], "reads 'net__layer__weight__grad', which has no value"),
    ],
)
def test_sections_that_cannot_run(
    samba_port: SambaPort, folder: Path, options: list[str], message: str
) -> None:
    result = samba_port(
        "run", folder / "train.pef", "--random", 0, "--weights", folder / "net.pt", *options
    )
    assert (result.status, result.out) == (2, "")
    assert message in result.err
    assert len(result.err.splitlines()) == 1


def test_checkpoints_that_do_not_fit(
    samba_port: SambaPort, folder: Path, tmp_path: Path, mixed: Path
) -> None:
    other, text = tmp_path / "other.safetensors", tmp_path / "text.safetensors"
    safetensors.torch.save_file({"layer.weight": torch.ones(2, 2)}, other)
    text.write_text("hello")
    narrow = tmp_path / "narrow.pt"
    torch.save({"layer.weight": torch.ones(2, 2), "layer.bias": torch.ones(3)}, narrow)
    pickled = tmp_path / "pickled.pt"
    torch.save(net(), pickled)
    for path, message in (
        (other, "lacks net__layer__bias; it has layer.weight"),
        (text, "is no safetensors file"),
        (narrow, "net__layer__weight"),
        (pickled, "other objects are never unpickled"),
        (tmp_path / "absent.pt", "absent.pt"),
    ):
        result = samba_port(*arguments(folder, "--weights", path))
        assert (result.status, result.out) == (2, "")
        assert message in result.err
        assert len(result.err.splitlines()) == 1
    result = samba_port("run", mixed, "--random", 0, "--weights", folder / "net.pt")
    assert "has its weights inside its sections" in result.err
    result = samba_port(*arguments(folder, "--weights", folder / "net.pt", "-o", folder / "net.pt"))
    assert result.status == 2


def test_inspect_shows_types_residents_argins_and_transfers(
    samba_port: SambaPort, folder: Path
) -> None:
    result = samba_port("inspect", folder / "train.pef", "--json", "-")
    document = json.loads(result.out)
    jsonschema.validate(document, json.loads((DOCS / "report.schema.json").read_text()))
    types = [part["type"] for part in document["parts"]]
    assert types == ["ZEROGRAD", "FWD", "BCKWD", "GRADNORM", "OPT"]
    residents = {row["name"]: (row["kind"], row["source"]) for row in document["residents"]}
    assert residents["net__layer__weight"] == ("weight", "user")
    assert residents["net__layer__weight__grad"] == ("gradient", "device")
    assert residents["net__layer__bias__exp_avg"] == ("optimizer_state", "user")
    assert "net__layer__weight__updated" not in residents
    argins = {row["name"]: row["default"] for row in document["argins"]}
    assert argins["optimizer0__group0__beta2"] == pytest.approx(0.997)
    causes = {total["cause"]: total["bytes"] for total in document["transfers_per_run"]}
    assert causes == {"input": 2 * 4 * 4 + 2 * 8, "output": 4 + 2 * 3 * 4}
    text = samba_port("inspect", folder / "train.pef").out
    for title in ("By section type", "Residents: what stays", "argins: scalars that a run may"):
        assert title in text
    interface = text[text.index("\nInterface") : text.index("argins: scalars")]
    assert "beta2" not in interface


def test_a_pef_of_convert_has_its_weights(
    samba_port: SambaPort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "m.pef"
    assert samba_port("convert", "tests.cli.factories:positional", "-o", path).status == 0
    document = json.loads(samba_port("inspect", path, "--json", "-").out)
    assert {row["source"] for row in document["residents"]} == {"pef"}
    assert [part["type"] for part in document["parts"]] == ["FWD"]
    pef = reader().Pef(path)
    outputs = pef.run(pef.sample("input"))
    for name, value in pef.sample("output").items():  # torch's own
        np.testing.assert_allclose(outputs[name], value, rtol=1e-5, atol=1e-6)
    assert "By section type" not in samba_port("inspect", path).out


def test_training_for_several_rdus(samba_port: SambaPort, tmp_path: Path) -> None:
    words = [
        "tests.cli.factories:training",
        "--train",
        "--n-chips",
        "2",
        "--tensor-parallel",
        "batch",
    ]
    analyzed = samba_port("analyze", *words, "--json", "-")
    converted = samba_port("convert", *words, "-o", tmp_path / "net.pef", "--json", "-")
    assert (converted.status, converted.err) == (0, "")
    reports = [json.loads(result.out) for result in (analyzed, converted)]
    assert reports[0]["parallel"] == reports[1]["parallel"]
    with load_pef(tmp_path / "net.pef") as pef:
        assert pef.manifest.parallel is not None
        assert (pef.manifest.parallel.rdus, pef.manifest.parallel.mode) == (2, "batch")
