"""``samba-port targets``."""

from __future__ import annotations

import json
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from samba_onnx.passes.targets import available_targets
from tests.cli.conftest import SambaPort

DOCS = Path(__file__).parents[3] / "docs"


def test_targets_name_figures_and_assumptions(samba_port: SambaPort) -> None:
    result = samba_port("targets")
    assert (result.status, result.err) == (0, "")
    for name in available_targets():
        assert f"\n{name}: " in f"\n{result.out}"
    assert "hbm memory      64 GB, 1.6 TB/s" in result.out
    assert "link.latency" in result.out


def _assumed(table: Any) -> set[tuple[float, str]]:
    """Return value and note of all figures of a target's file that nobody published."""
    if not isinstance(table, dict):
        return set()
    own = {(table["value"], table["note"])} if table.get("evidence") == "assumed" else set()
    return own.union(*(_assumed(inner) for inner in table.values()))


@pytest.mark.parametrize("name", available_targets())
def test_figures_that_nobody_published_are_called_assumed(samba_port: SambaPort, name: str) -> None:
    """The target's file says which; text and JSON say it again, of these and of no other."""
    text = resources.files("samba_onnx.passes.targets").joinpath(f"{name}.toml").read_text()
    assumed = _assumed(tomllib.loads(text)["hardware"])
    assert assumed
    document = json.loads(samba_port("targets", name, "--json", "-").out)
    (target,) = document["targets"]
    stated = {(figure["value"], figure["note"]) for figure in target["assumptions"]}
    assert stated == assumed
    heading = "assumed, because the vendor does not publish them:"
    published, found, rest = samba_port("targets", name).out.partition(heading)
    assert found
    for figure in target["assumptions"]:
        assert figure["name"] in rest
        assert figure["name"] not in published


def test_targets_as_json(samba_port: SambaPort) -> None:
    document = json.loads(samba_port("targets", "sn40l", "--json", "-").out)
    jsonschema.validate(document, json.loads((DOCS / "targets.schema.json").read_text()))
    (target,) = document["targets"]
    assert target["peak_flops_per_second"]["bfloat16"] == 638e12
    assert {tier["name"] for tier in target["tiers"]} == {"sram", "hbm", "ddr"}


def test_a_target_file_of_the_users_own(samba_port: SambaPort, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('extends = "sn40l"\nname = "mine"\nremove = ["Softmax"]\n')
    assert samba_port("targets", path, "-q").out == "targets: mine\n"
    assert "Softmax" not in samba_port("ops", "--target", path).out.split()


@pytest.mark.parametrize("content", ["", "extends = 1", "\x00", "[", 'extends = "nothing"'])
def test_a_bad_target_file(samba_port: SambaPort, tmp_path: Path, content: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(content)
    for command in (("targets", path), ("ops", "--target", path)):
        result = samba_port(*command)
        assert (result.status, result.out) == (2, "")
        assert len(result.err.splitlines()) == 1


@pytest.mark.parametrize("command", [("targets", "sn50"), ("ops", "--target", "sn50")])
def test_an_unknown_target(samba_port: SambaPort, command: tuple[str, ...]) -> None:
    result = samba_port(*command)
    assert (result.status, result.out) == (2, "")
    assert "sn40l" in result.err
