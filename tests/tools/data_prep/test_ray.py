"""A real Ray cluster of two workers makes the files that this machine's processes make."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from samba_onnx.data_prep import EngineKind
from tests.tools.data_prep.building import LENGTH, contents, pairs, run, write
from tests.tools.data_prep.tokenizers_of_tests import gpt2_like

pytestmark = [
    pytest.mark.slow,
    # Ray and what it stands on warn about themselves.
    pytest.mark.filterwarnings("ignore"),
]
ray = pytest.importorskip("ray", reason="pip install 'samba-onnx[ray]'")


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """One that the engine itself starts, on the first use, whose processes find this checkout."""
    paths = (str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", ""))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
        patch.delenv("RAY_ADDRESS", raising=False)
        yield
        ray.shutdown()


def test_a_cluster_makes_the_same_files_without_a_word(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path / "corpus.jsonl", pairs(200))
    run(source, tmp_path / "local", train=5)
    result = run(source, tmp_path / "ray", train=5, engine=EngineKind.RAY, num_workers=2)
    assert ray.is_initialized()
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")
    assert result.metrics["train"].articles > 100
    printed = capfd.readouterr()
    # Its native part complains of how its own Python part starts workers, which no option leaves out.
    known = "github.com/ray-project/ray/issues/53727"
    assert [line for line in (printed.out + printed.err).splitlines() if known not in line] == []


def test_an_error_of_a_worker_names_the_line(tmp_path: Path) -> None:
    lines = pairs(40)
    lines[21] = "oops"
    source = write(tmp_path / "corpus.jsonl", lines)
    gpt2_like().save_pretrained(tmp_path / "tokenizer")
    # As a process of its own, whose status counts only as one that is not 0: a job that fails leaves Ray with work to
    # cancel, and Ray now and then ends its process by _exit(1) when it finds the cluster gone before it is done.
    options = {
        "engine": "ray",
        "num_workers": 2,
        "input_path": source,
        "output_path": tmp_path / "out",
        "pretrained_tokenizer": tmp_path / "tokenizer",
        "max_seq_length": LENGTH,
        "test_ratio": 0,
    }
    done = subprocess.run(
        [sys.executable, "-m", "samba_onnx.data_prep", "pipeline"]
        + [f"--{name}={value}" for name, value in options.items()],
        capture_output=True,
        text=True,
    )
    assert re.search(r"corpus\.jsonl:22: this is no JSON", done.stderr), done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode != 0
