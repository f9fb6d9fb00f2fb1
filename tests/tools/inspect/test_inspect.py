"""``inspect`` on real PEFs."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from tests.cli.conftest import SambaPort

DOCS = Path(__file__).parents[3] / "docs"


def test_inspect_shows_schedule_regions_and_plan(samba_port: SambaPort, mixed: Path) -> None:
    result = samba_port("inspect", mixed)
    assert (result.status, result.err) == (0, "")
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
    assert "main 1 CPU middle_1 FWD" in lines
    assert "1 RDU → host fallback boundary h 512 B 1.5 µs" in lines
    assert "w ddr read-only 2.0 kB w" in lines
    assert any(line.startswith("weights.safetensors ") for line in lines)


def test_inspect_as_json(samba_port: SambaPort, mixed: Path) -> None:
    document = json.loads(samba_port("inspect", mixed, "--json", "-").out)
    jsonschema.validate(document, json.loads((DOCS / "report.schema.json").read_text()))
    assert [call["home"] for call in document["graphs"][0]["schedule"]] == ["rdu", "cpu", "rdu"]
    assert {member["name"] for member in document["members"]} >= {"weights.safetensors"}


def test_verify_reads_every_byte(samba_port: SambaPort, mixed: Path) -> None:
    assert samba_port("inspect", mixed, "--verify", "-q").status == 0


@pytest.mark.parametrize("place", [0, 100, 5_000, -100, -1])
def test_damage_is_bad_input(samba_port: SambaPort, mixed: Path, place: int) -> None:
    content = bytearray(mixed.read_bytes())
    content[place] ^= 1
    mixed.write_bytes(content)
    result = samba_port("inspect", mixed, "--verify")
    assert (result.status, result.out) == (2, "")
    assert len(result.err.splitlines()) == 1
    assert result.err.startswith(f"samba-port inspect: error: {mixed}")


@pytest.mark.parametrize("name", ["missing.pef", "."])
def test_no_file(samba_port: SambaPort, tmp_path: Path, name: str) -> None:
    result = samba_port("inspect", tmp_path / name)
    assert (result.status, result.out) == (2, "")
    assert len(result.err.splitlines()) == 1
