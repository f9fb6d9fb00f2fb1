"""``analyze --sarif``: what falls back, for code hosts."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import SambaPort


def test_the_command_writes_it(samba_port: SambaPort, tmp_path: Path) -> None:
    model, log = tmp_path / "d.onnx", tmp_path / "d.sarif"
    assert samba_port("example", "detector", "-o", model).status == 0
    done = samba_port("analyze", model, "--sarif", log, "--json", tmp_path / "d.json")
    assert (done.status, done.err) == (0, "")
    fallbacks = json.loads((tmp_path / "d.json").read_text())["fallbacks"]
    (run,) = json.loads(log.read_text())["runs"]
    refused = {kind["code"] for kind in fallbacks if not kind["nodes"][0]["supported"]}
    assert {rule["id"] for rule in run["tool"]["driver"]["rules"]} == refused
    # What to write instead stands with the reason.
    assert any("; instead: " in result["message"]["text"] for result in run["results"])
    assert samba_port("analyze", model, "--sarif", model).status == 2
