"""A real Ray cluster of this machine finds what this machine's processes find."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

from tests.cli.conftest import SambaPort
from tests.tools.survey.test_survey import MODEL

pytestmark = [
    pytest.mark.slow,
    # Ray and what it stands on warn about themselves.
    pytest.mark.filterwarnings("ignore"),
]
ray = pytest.importorskip("ray", reason="pip install 'samba-onnx[ray]'")


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """One that the command itself starts, on the first use, whose processes find this checkout."""
    paths = (str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", ""))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
        patch.delenv("RAY_ADDRESS", raising=False)
        yield
        ray.shutdown()


def test_a_cluster_finds_the_same(
    samba_port: SambaPort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Relative names, as everybody types them: processes of the cluster start in folders of their own.
    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()
    for name, body in (("good", "y = Relu(x)"), ("odd", "a = TopLevel.Odd(x) y = Relu(a)")):
        onnx.save(onnx.parser.parse_model(MODEL % body), f"models/{name}.onnx")
    Path("models/bad.onnx").write_bytes(b"no model")
    results, documents = [], []
    for engine in ("local", "ray"):
        results.append(
            samba_port("survey", "models", "--engine", engine, "--json", "s.json", "--fresh")
        )
        documents.append(Path("s.json").read_text())
    assert ray.is_initialized()
    assert (results[0].status, results[0].out) == (results[1].status, results[1].out)
    assert documents[0] == documents[1]
    late = samba_port("survey", "models/good.onnx", "--engine=ray", "--fresh", "--timeout", 0.001)
    assert late.status == 1
    assert "it took longer than 0.001 s and was stopped" in late.out


def test_a_folder_that_the_cluster_does_not_have_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from samba_onnx.tools.survey.analysis_children import Analysis, ChildLimits
    from samba_onnx.tools.survey.cluster_analyses import run_on_cluster

    analysis = Analysis("m.onnx", "sn40l", tmp_path / "m.json")
    monkeypatch.setattr("os.getcwd", lambda: str(tmp_path / "elsewhere"))
    done: list[int] = []
    run_on_cluster([analysis], (), ChildLimits(0, 60, None), done.append)
    assert done == [1]
    assert "a machine of the cluster could not try it" in (analysis.error() or "")
