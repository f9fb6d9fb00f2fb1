"""Real processes: the same files however many there are, and an end without orphans or halves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.tools.data_prep.building import contents, pairs, run, write
from tests.tools.data_prep.tokenizers_of_tests import gpt2_like

pytestmark = pytest.mark.slow

COMMAND = [
    *(sys.executable, "-m", "samba_onnx.data_prep", "pipeline", "--input_path=corpus.jsonl"),
    *("--output_path=out", "--pretrained_tokenizer=tokenizer", "--max_seq_length=16"),
    *("--input_packing_config=greedy::drop", "--num_training_splits=6", "--num_dev_splits=1"),
    *("--num_test_splits=1", "--num_workers=2"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    gpt2_like().save_pretrained(tmp_path / "tokenizer")
    write(tmp_path / "corpus.jsonl", pairs(4000))
    return tmp_path


def start(folder: Path) -> subprocess.Popen[str]:
    """Start the command in a process group of its own."""
    return subprocess.Popen(
        COMMAND,
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
        start_new_session=True,
    )


def in_one_process(folder: Path) -> dict[str, bytes]:
    run(folder / "corpus.jsonl", folder / "whole", train=6)
    return contents(folder / "whole")


def hdf5(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: content for name, content in files.items() if name.endswith(".hdf5")}


def test_two_workers_make_what_one_makes(folder: Path) -> None:
    process = start(folder)
    out, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    assert out.startswith("3,500 articles became ")
    assert hdf5(contents(folder / "out")) == hdf5(in_one_process(folder))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_all_processes_and_the_command_goes_on(
    folder: Path, number: signal.Signals
) -> None:
    process = start(folder)
    state = folder / "out" / ".data_prep_state.json"
    while not (state.exists() and json.loads(state.read_text())["results"]):
        assert process.poll() is None
        time.sleep(0.05)
    children = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, number)
    _, errors = process.communicate()
    assert "Traceback" not in errors
    if number is signal.SIGINT:
        assert (process.returncode, errors) == (130, "samba-port data-prep: interrupted\n")
    _, alive = psutil.wait_procs(children, timeout=300)
    assert not alive
    process = start(folder)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "finished already, and are kept" in errors
    assert hdf5(contents(folder / "out")) == hdf5(in_one_process(folder))
    assert not list((folder / "out").glob(".*"))
