"""``plan`` on a PEF that trains, and its refusals."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from tests.cli.conftest import SambaPort
from tests.runtime.building import build
from tests.runtime.replicas import two_layers

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture
def training(tmp_path: Path) -> Path:
    with build(tmp_path, two_layers()) as pef:
        return Path(pef.path)


def test_plan_shows_every_mode_of_every_number(samba_port: SambaPort, training: Path) -> None:
    result = samba_port("plan", training, "--replicas", "4, 1,64", "--json", training.parent / "p")
    assert (result.status, result.err) == (0, "")
    assert "on 64 test: a modelled step of" in result.out
    document = json.loads((training.parent / "p").read_text())
    jsonschema.validate(document, json.loads((DOCS / "scaling.schema.json").read_text()))
    pairs = [(step["replicas"], step["mode"]) for step in document["steps"]]
    assert pairs == [(n, mode) for n in (1, 4, 64) for mode in ("normal", "inorder", "optimal")]
    assert document["gradient_bytes"] == 4 * (24 + 64)
    # The target of this PEF states no link between RDUs.
    assert "that of the link to the host" in result.out


def test_hosts_reduce_in_the_time_of_their_links(samba_port: SambaPort, training: Path) -> None:
    result = samba_port("plan", training, "--replicas", "2,1024", "--reduce-on-host", "--json", "-")
    document = json.loads(result.out)
    times = [step["reduction_seconds"] for step in document["steps"]]
    # Two gradients, there and back: a microsecond each and 352 bytes at 1 GB/s each way.
    assert times == pytest.approx([4e-6 + 2 * 352e-9] * 6)
    assert any("a lower bound" in one["note"] for one in document["assumptions"])


@pytest.mark.parametrize("text", ["", "0", "1,x", "1,,2", "-1", "1.5", "2000000", "²"])
def test_numbers_of_replicas_are_numbers(samba_port: SambaPort, training: Path, text: str) -> None:
    result = samba_port("plan", training, "--replicas", text)
    assert result.status == 2
    assert "give numbers of replicas from 1 to 1,000,000" in result.err


def test_what_does_not_train_is_refused(samba_port: SambaPort, mixed: Path) -> None:
    result = samba_port("plan", mixed)
    assert result.status == 2
    assert "computes no gradients of weights" in result.err
    unknown = samba_port("plan", mixed, "--graph", "other")
    assert unknown.status == 2
    assert "graph 'other' does not exist" in unknown.err
