"""What a project states for all its models: where it is found, what it may say, and what it gives way to."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from samba_onnx.pef import load_pef
from tests.cli.conftest import SambaPort

MODEL = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[n, 4] x) => (float[n, 4] y) { a = Relu(x)
 y = Tanh(a) }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a model in a folder of its own, which is the working folder."""
    inner = tmp_path / "models"
    inner.mkdir()
    onnx.save(onnx.parser.parse_model(MODEL), inner / "m.onnx")
    monkeypatch.chdir(inner)
    return tmp_path


def kept(samba_port: SambaPort, *words: object) -> dict[str, str]:
    result = samba_port("convert", "m.onnx", "-q", *words)
    assert result.status == 0, result.err
    with load_pef("m.pef") as pef:
        return pef.manifest.options


def test_the_nearest_file_counts_and_flags_before_it(
    samba_port: SambaPort, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = folder / "pyproject.toml"
    project.write_text('[tool.samba-port]\nlevel = "o0"\ndim = ["n=2"]\nkernel-looping = true\n')
    assert kept(samba_port) == {"level": "o0", "dims": "n=2", "kernel_looping": "yes"}
    assert kept(samba_port, "--dim", "n=1")["dims"] == "n=1"
    monkeypatch.setenv("SAMBA_PORT_LEVEL", "o1")
    assert kept(samba_port)["level"] == "o1"
    assert "level" not in kept(samba_port, "--level", "o3")
    (folder / "models" / "samba-port.toml").write_text('target = "sn10"\n')
    monkeypatch.delenv("SAMBA_PORT_LEVEL")
    assert kept(samba_port) == {"target": "sn10"}
    monkeypatch.setenv("SAMBA_PORT_SETTINGS", "none")
    assert kept(samba_port) == {}


def test_what_it_says_is_told(samba_port: SambaPort, folder: Path) -> None:
    (folder / "samba-port.toml").write_text('level = "o0"\n')
    result = samba_port("analyze", "m.onnx")
    assert result.err == f"samba-port: {folder / 'samba-port.toml'} says level=o0\n"


def test_paths_start_at_the_file(samba_port: SambaPort, folder: Path) -> None:
    (folder / "own.toml").write_text('extends = "sn30"\n')
    (folder / "samba-port.toml").write_text('target = "own.toml"\n')
    assert kept(samba_port) == {"target": str(folder / "own.toml")}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("levle = 1", "levle is no option; did you mean level?"),
        ("custom-ops = 'a.so'", "custom-ops names code that is executed"),
        ("translations = ['a.py']", "translations names code that is executed"),
        ("level = true", "level is True: expected o0|o1|o3"),
        ("keep-dynamic = 1", "keep-dynamic is 1: expected true or false"),
        ("level = [", "not usable as settings"),
        ("level = 'o2'", "level is 'o2': expected one of o0, o1, o3"),
        ("seed = 'many'", "many"),
    ],
)
def test_what_is_wrong_with_it_is_said_in_one_line(
    samba_port: SambaPort, folder: Path, text: str, message: str
) -> None:
    (folder / "samba-port.toml").write_text(f"{text}\n")
    result = samba_port("convert", "m.onnx", "-q")
    assert (result.status, result.out) == (2, "")
    assert message in result.err
    assert "Traceback" not in result.err
    # Other commands do not read it, nor does help.
    assert samba_port("convert", "--help").status == samba_port("targets").status == 0


def test_a_table_that_is_none_is_no_silence(samba_port: SambaPort, folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool]\nsamba-port = 5\n")
    result = samba_port("convert", "m.onnx", "-q")
    assert (result.status, result.out) == (2, "")
    assert "tool.samba-port is no table of options" in result.err


def test_each_side_of_a_comparison_has_its_own_options(samba_port: SambaPort, folder: Path) -> None:
    assert kept(samba_port) == {}
    (folder / "samba-port.toml").write_text('level = "o0"\n')
    assert samba_port("diff", "m.pef", "m.onnx").status == 0
