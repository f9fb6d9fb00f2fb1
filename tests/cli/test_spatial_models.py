"""``convert`` and ``analyze`` of PyTorch models for spatial mapping, and what others make of the PEF."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
import torch

from tests.cli.conftest import SambaPort
from tests.cli.factories import net

FACTORY = "tests.cli.factories:positional"
TRAINED = "tests.cli.factories:training"
BATCHES = 3
# One float32 product of four terms.
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def answer(samba_port: SambaPort, *words: object) -> str:
    result = samba_port(*words)
    assert result.status == 0, result.err
    return result.out


def option(batches: int = BATCHES) -> list[str]:
    return ["--num-spatial-batches", str(batches)]


def test_a_converted_model_runs_all_mini_batches(samba_port: SambaPort, tmp_path: Path) -> None:
    pef, inputs = tmp_path / "net.pef", tmp_path / "in.npz"
    answer(samba_port, "convert", FACTORY, "-o", pef, *option())
    x = np.random.default_rng(0).normal(size=(2 * BATCHES, 4)).astype(np.float32)
    target = np.array([0, 1, 2, 2, 1, 0])
    np.savez(inputs, x=x, target=target)
    answer(samba_port, "run", pef, "--input", inputs, "--output", tmp_path / "out.npz")
    losses, rows = np.load(tmp_path / "out.npz").values()
    with torch.no_grad():
        parts = zip(torch.from_numpy(x).split(2), torch.from_numpy(target).split(2), strict=True)
        expected = [net()(*part) for part in parts]
    np.testing.assert_allclose(losses, [float(loss) for loss, _ in expected], **CLOSE)
    np.testing.assert_allclose(rows, torch.cat([one for _, one in expected]), **CLOSE)


@pytest.mark.parametrize("command", ["convert", "analyze", "train"])
def test_reports_say_so(command: str, samba_port: SambaPort, tmp_path: Path) -> None:
    words = {
        "convert": ["convert", FACTORY, "-o", tmp_path / "net.pef"],
        "analyze": ["analyze", FACTORY],
        "train": ["convert", TRAINED, "--train", "-o", tmp_path / "net.pef"],
    }[command]
    report = json.loads(answer(samba_port, *words, *option(), "--json", "-"))
    (graph,) = report["graphs"]
    assert graph["spatial_batches"] == BATCHES
    assert [value["shape"][0] for value in graph["inputs"][:2]] == [2 * BATCHES, 2 * BATCHES]
    assert any("mapped spatially: a run takes 3 mini-batches" in note for note in report["notes"])


def test_it_is_verified_by_the_same_batch_in_each_place(
    samba_port: SambaPort, tmp_path: Path
) -> None:
    pef = tmp_path / "net.pef"
    answer(samba_port, "convert", FACTORY, "-o", pef, *option())
    said = answer(samba_port, "verify", FACTORY, pef)
    assert "agree" in said
    assert "the example inputs, in each of 3 mini-batches" in said
    answer(samba_port, "convert", TRAINED, "--train", "-o", pef, *option())
    result = samba_port("compare", TRAINED, pef)
    assert result.status == 2
    assert "trains by 3 mini-batches in a run" in result.err


def test_an_onnx_model_and_no_mini_batch_are_wrong_use(
    samba_port: SambaPort, tmp_path: Path
) -> None:
    header = '<ir_version: 10, opset_import: ["" : 21]>\n'
    text = header + "g (float[1,2] x) => (float[1,2] y) { y = Relu (x) }"
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    for words, message in (
        (["convert", tmp_path / "m.onnx", *option()], "is for PyTorch models"),
        (["analyze", tmp_path / "m.onnx", *option()], "is for PyTorch models"),
        (["analyze", FACTORY, *option(0)], "--num-spatial-batches"),
    ):
        result = samba_port(*words)
        assert (result.status, result.out) == (2, "")
        assert message in result.err
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]
