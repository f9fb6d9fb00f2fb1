"""Programs of several files: what is read, written and patched."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("libcst")

from samba_onnx.errors import UsageError
from samba_onnx.tools.adapt.adapting import adapt_source
from samba_onnx.tools.adapt.program_files import read_source
from tests.cli.conftest import SambaPort
from tests.tools.adapt.expected import CORPUS


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = shutil.copytree(CORPUS / "package_engine", tmp_path / "program")
    monkeypatch.chdir(tmp_path)
    return Path(folder)


def test_git_takes_the_patch(samba_port: SambaPort, program: Path, tmp_path: Path) -> None:
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    # No end of the last line, and ends of another system: a patch says both.
    (program / "main.py").write_bytes((program / "main.py").read_bytes().rstrip(b"\n"))
    engine = program / "lib" / "engine.py"
    engine.write_bytes(engine.read_bytes().replace(b"\n", b"\r\n"))
    adapted = adapt_source(read_source(str(program / "main.py")))
    result = samba_port("adapt", program, "--entry", "main.py", "--patch", "rdu.patch", "-q")
    assert (result.status, result.err) == (0, "")
    subprocess.run(["git", "apply", "rdu.patch"], cwd=tmp_path, check=True)
    for file in adapted.files:
        assert Path(file.path).read_bytes() == file.text.encode()
    assert [Path(file.path).name for file in adapted.changed] == ["main.py", "engine.py"]


def test_a_folder_is_written(samba_port: SambaPort, program: Path, tmp_path: Path) -> None:
    output = tmp_path / "rdu"
    result = samba_port("adapt", program / "main.py", "-o", output, "-q")
    assert (result.status, result.err) == (0, "")
    written = {path.relative_to(output).as_posix() for path in output.rglob("*.py")}
    assert written == {path.relative_to(program).as_posix() for path in program.rglob("*.py")}
    metrics = "lib/metrics.py"
    assert (output / metrics).read_bytes() == (program / metrics).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("{program}",), "--entry"),
        (("{program}/main.py", "--entry", "main.py"), "is none"),
        (("{program}/main.py", "-o", "one.py"), "give a folder to --output"),
        (("{program}/main.py", "-o", "{program}"), "is the folder of the program itself"),
        (("{program}/circular.py",), "exists twice"),
    ],
)
def test_wrong_use_is_one_line(
    samba_port: SambaPort, program: Path, arguments: tuple[str, ...], words: str
) -> None:
    (program / "circular.py").write_text("from other import thing\n")
    (program / "other.py").write_text("import circular\n")
    result = samba_port("adapt", *(text.format(program=program) for text in arguments))
    assert result.status == 2
    assert words in result.err
    assert len(result.err.splitlines()) == 1


def test_names_are_followed_through_files(program: Path) -> None:
    source = read_source(str(program / "main.py"))
    file, name = source.follow("lib.train_one_epoch")
    assert file is not None
    assert (Path(file.path).name, name) == ("engine.py", "train_one_epoch")
    assert source.follow("torch.nn.Linear") == (None, "torch.nn.Linear")


def test_a_file_with_a_mistake_is_named(program: Path) -> None:
    (program / "lib" / "metrics.py").write_text("def (:\n")
    with pytest.raises(UsageError, match=r"metrics\.py:1: this is no Python"):
        read_source(str(program / "main.py"))
