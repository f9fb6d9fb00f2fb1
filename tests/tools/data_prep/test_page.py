"""The samples of docs/data_preparation.md run as they are printed, one after the other."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from samba_onnx.cli.application import build_application, run_command
from samba_onnx.data_prep import PackingConfig
from tests.tools.data_prep.building import write
from tests.tools.data_prep.tokenizers_of_tests import gpt2_like

PAGE = Path(__file__).parents[3] / "docs" / "data_preparation.md"
TEXT = PAGE.read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def test_samples_run_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    gpt2_like().save_pretrained("tokenizer")
    (sample,) = blocks("json")
    lines = sample.splitlines()
    assert len(lines) == 2
    assert all(json.loads(line) for line in lines)
    write(tmp_path / "corpus.jsonl", lines * 20)
    (commands,) = blocks("sh")
    words = [shlex.split(line) for line in commands.replace("\\\n", "").splitlines()]
    assert len(words) == 3
    for program, *arguments in words:
        assert program == "samba-port"
        # One worker: what several do is tested with processes of their own.
        if "pipeline" in arguments:
            arguments.append("--num_workers=1")
        assert run_command(arguments) == 0, capsys.readouterr().err
    assert "Sequence 2" in capsys.readouterr().out
    (program,) = blocks("python")
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env=os.environ | {"PYTHONPATH": str(PAGE.parents[1])},
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.endswith("sequences of 64 tokens\n")


def test_the_page_names_every_option() -> None:
    page = set(re.findall(r"--[a-z_]+\w", TEXT))
    shown = ""
    for command in ("pipeline", "data_prep", "decode"):
        words = ["data-prep", command, "--help"]
        shown += CliRunner().invoke(build_application(), words, env={"COLUMNS": "200"}).output
    options = set(re.findall(r"--[a-z_]+\w", shown))
    unsaid = {
        *("--input_file_path", "--verbose", "--help", "--silent", "--log_file_path", "--first"),
        *("--disable", "--keep", "--prompt"),
    }
    assert page - options <= {"--engine"}
    assert options - page <= unsaid, options - page - unsaid
    for config in PackingConfig.choices():
        assert config.partition("::")[2] in ("", *re.findall(r"`(\w+)`", TEXT))
