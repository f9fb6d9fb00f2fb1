"""The example compiles in one process, and generates text in another one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from examples.generate import language_model, main
from tests.generation.conftest import continuations, llama

ROOT = Path(__file__).parents[2]


def compile_elsewhere(*arguments: str | Path) -> list[str]:
    """Compile in a process of its own."""
    answer = subprocess.run(
        [sys.executable, "-m", "examples.generate", "compile", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.splitlines()


def test_the_example_generates_what_transformers_generates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out" / "llama.pef"
    assert compile_elsewhere(path, "--greedy") == [str(path)]
    main(["run", str(path), "--greedy", "--prompt", "5", "7", "9", "--count", "20"])
    text, *copies = capsys.readouterr().out.splitlines()
    (expected,) = continuations(language_model, [[5, 7, 9]], 20)
    assert text.split() == [str(token) for token in expected]
    assert copies == [
        f"input host_to_rdu: 2 copies, {8 * (16 + 1)} bytes",
        f"output rdu_to_host: 20 copies, {8 * 20} bytes",
    ]


def test_models_come_from_checkpoints(tmp_path: Path) -> None:
    model = llama()
    model.save_pretrained(tmp_path)
    loaded = language_model(str(tmp_path)).state_dict()
    assert all(torch.equal(value, loaded[name]) for name, value in model.state_dict().items())
