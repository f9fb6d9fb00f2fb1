"""``--annotated``: the original model with placements, from both commands."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import SambaPort
from tests.compiling.test_annotating import annotations, net

__all__ = ["net"]  # a fixture


def test_the_command_writes_it_beside_the_pef(
    samba_port: SambaPort, net: Path, tmp_path: Path
) -> None:
    where = tmp_path / "where.onnx"
    for command in ("convert", "analyze"):
        where.unlink(missing_ok=True)
        result = samba_port(command, net, "--annotated", where, "-q")
        assert (result.status, result.err) == (0, "")
        assert annotations(where)["k"]["placement"] == "cpu"
    refused = samba_port("analyze", net, "--annotated", net)
    assert (refused.status, refused.out) == (2, "")
    assert "overwrite" in refused.err
    refused = samba_port("convert", "my.module:factory", "--annotated", where)
    assert (refused.status, refused.out) == (2, "")
    assert "--annotated is for ONNX models" in refused.err
