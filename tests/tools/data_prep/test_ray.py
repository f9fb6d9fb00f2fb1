"""A real Ray cluster of two workers makes the files that this machine's processes make."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from samba_onnx.data_prep import EngineKind
from samba_onnx.errors import DataError
from tests.tools.data_prep.building import contents, pairs, run, write

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
    with pytest.raises(DataError, match=r"corpus\.jsonl:22: this is no JSON"):
        run(source, tmp_path / "out", engine=EngineKind.RAY, num_workers=2, test=0)
