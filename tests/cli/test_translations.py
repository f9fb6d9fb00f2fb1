"""``--translations``: files that register translations, for every command that takes a factory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import SambaPort
from tests.without_torch import HAS_TORCH

EXAMPLES = Path(__file__).parents[2] / "examples"
FILE = EXAMPLES / "rms_norm.py"
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let factories of ``examples/`` be found, and be forgotten again."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield
    for name in ("custom_operators", "rms_norm", "my_ops"):
        sys.modules.pop(name, None)


@needs_torch
def test_a_factory_with_an_operator_of_its_own(samba_port: SambaPort, tmp_path: Path) -> None:
    pef = tmp_path / "network.pef"
    options = ("--translations", FILE, "-q")
    for words in (
        ("convert", "custom_operators:network", "-o", pef),
        ("verify", "custom_operators:network", pef),
        ("compare", "custom_operators:network", pef),
        ("analyze", "custom_operators:training", "--train", "--fail-on-fallback"),
    ):
        result = samba_port(*words, *options)
        assert (result.status, result.err) == (0, ""), result.err


@needs_torch
def test_a_translation_that_is_wrong_writes_nothing(samba_port: SambaPort, tmp_path: Path) -> None:
    (tmp_path / "my_ops.py").write_text(
        "import torch\n"
        "from samba_onnx import translations\n"
        "@torch.library.custom_op('tests::cubed', mutates_args=())\n"
        "def cubed(x: torch.Tensor) -> torch.Tensor:\n"
        "    return x**3\n"
        "cubed.register_fake(torch.empty_like)\n"
        "@translations.translates(cubed)\n"
        "def write(context, x):\n"
        "    return context.op('Mul', x, x)\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return cubed(x)\n"
        "def net():\n"
        "    return Net(), (torch.ones(2) * 3,)\n"
    )
    words = ("my_ops:net", "-o", tmp_path / "m.pef", "--translations", tmp_path / "my_ops.py")
    result = samba_port("convert", *words)
    assert result.status == 2
    assert "differs from what Net computes in torch" in result.err
    assert "tests.cubed.default" in result.err
    assert not (tmp_path / "m.pef").exists()


@needs_torch
@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "my_ops.py is no file: give the path of one that registers translations"),
        ("1 / 0\n", "my_ops.py failed at my_ops.py:1: ZeroDivisionError: division by zero"),
        ("x = 1\ndef (\n", "my_ops.py failed at my_ops.py:2: SyntaxError: invalid syntax"),
        ("class Stop(BaseException): pass\nraise Stop('x')", "failed at my_ops.py:2: Stop: x"),
        ("from samba_onnx import translations\ntranslations.translates('a::b')\n", "torch has no"),
    ],
)
def test_files_that_cannot_be_used_are_one_line(
    samba_port: SambaPort, tmp_path: Path, content: str | None, sentence: str
) -> None:
    file = tmp_path / "my_ops.py"
    if content is not None:
        file.write_text(content)
    result = samba_port("analyze", "custom_operators:network", "--translations", file)
    assert (result.status, result.out) == (2, "")
    (line,) = result.err.splitlines()
    assert sentence in line
    assert "my_ops" not in sys.modules


@needs_torch
def test_names_that_are_taken_or_no_python(samba_port: SambaPort, tmp_path: Path) -> None:
    (tmp_path / "json.py").touch()
    (tmp_path / "ops.txt").touch()
    for name, sentence in (
        ("json.py", "has the name of another module, json: give it another name"),
        ("ops.txt", "is no Python file: give the path of one"),
    ):
        words = ("analyze", "custom_operators:network", "--translations", tmp_path / name)
        result = samba_port(*words)
        assert result.status == 2
        assert sentence in result.err


@pytest.mark.parametrize("command", ["convert", "analyze", "verify", "compare"])
def test_models_in_onnx_have_none(
    samba_port: SambaPort, command: str, model: Path, tmp_path: Path
) -> None:
    files = (model, tmp_path / "m.pef") if command in ("verify", "compare") else (model,)
    result = samba_port(command, *files, "--translations", FILE)
    assert result.status == 2
    assert "--translations is for PyTorch models" in result.err
