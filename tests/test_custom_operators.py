"""A model with an operator of a custom domain, from its conversion to its verification."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import samba_onnx
from samba_onnx.cli.application import run_command
from samba_onnx.errors import ExecutionError, UsageError
from tests.custom_operators import build_library

TEXT = """<ir_version: 8, opset_import: ["": 17, "com.example": 1]>
g (float[batch, 3] x) => (float[batch, 3] y) <float[batch, 3] h> {
    r = Relu(x)
    h = com.example.TwiceAndOne(r)
    y = Neg(h)
}"""
X = np.array([[-1.0, 0.5, 2.0], [3.0, -4.0, 0.0]], np.float32)
ROW = """extends = "sn40l"
[operators."com.example::TwiceAndOne"]
assumed = ["float32"]
source = "our own kernel"
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that has the operator."""
    return build_library(tmp_path_factory.mktemp("library"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The model, and beside it a target file with a row for its operator."""
    (tmp_path / "own.toml").write_text(ROW)
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(TEXT), path)
    return path


@pytest.mark.parametrize("placed", [True, False])
def test_a_library_lets_the_operator_run_on_either_side(
    placed: bool, library: Path, model: Path
) -> None:
    target = model.with_name("own.toml") if placed else "sn40l"
    with samba_onnx.convert(model, target=target, dims={"batch": 2}, custom_ops=[library]) as pef:
        assert pef.manifest.reference is not None
        assert len(pef.manifest.fallbacks) == (not placed)
        with samba_onnx.Device(pef, threads=1, custom_ops=[library]) as device:
            expected = -(2 * np.maximum(X, 0) + 1)  # exact in float32
            np.testing.assert_array_equal(device.run({"x": X})["y"], expected)
            graph = pef.manifest.graphs[0]
            assert tuple(device.ledger.transfers) == graph.load_transfers + graph.run_transfers
        assert samba_onnx.verify(model, pef, threads=1, custom_ops=[library]).passed
        assert samba_onnx.self_test(pef, threads=1, custom_ops=[library]).passed
        with pytest.raises(ExecutionError, match=r"com\.example:TwiceAndOne"):
            samba_onnx.Device(pef, threads=1)
        with pytest.raises(UsageError, match="reference cannot load"):
            samba_onnx.Device(pef, engine="reference", custom_ops=[library])


def test_the_command_line_takes_it(library: Path, model: Path, tmp_path: Path) -> None:
    pef, option = str(tmp_path / "m.pef"), ("--custom-ops", str(library))

    def status(*arguments: str) -> int:
        return run_command(arguments)

    assert status("convert", str(model), "--dim", "batch=2", *option) == 0
    assert status("run", pef, "--random", "0", *option) == 0
    assert status("verify", str(model), pef, *option) == 0
    assert status("verify", pef, *option) == 0
    assert status("run", pef, "--random", "0") == 2


@pytest.mark.parametrize("command", ["convert", "run", "verify"])
@pytest.mark.parametrize(
    ("name", "words"),
    [("none.so", "is no file"), ("own.toml", "is no library of custom operators")],
)
def test_what_is_no_library_is_bad_input(
    command: str,
    name: str,
    words: str,
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    samba_onnx.convert(model, sample=False, trial=False).close()
    before = (tmp_path / "m.pef").read_bytes()
    files = {
        "convert": ["m.onnx"],
        "run": ["m.pef", "--random", "0"],
        "verify": ["m.onnx", "m.pef"],
    }
    arguments = [str(tmp_path / a) if a.startswith("m.") else a for a in files[command]]
    assert run_command([command, *arguments, "--custom-ops", str(tmp_path / name)]) == 2
    message = capsys.readouterr().err
    assert words in message
    assert "Traceback" not in message
    assert len(message.splitlines()) <= 2
    assert (tmp_path / "m.pef").read_bytes() == before
