"""Nodes that fall back as code hosts take findings."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from samba_onnx.pef.manifest import Manifest
from samba_onnx.report import Report
from samba_onnx.report.sarif import fallback_sarif
from tests.report.samples import all_on_rdu, detector


def run_of(manifest: Manifest) -> dict[str, Any]:
    log = json.loads(fallback_sarif(Report.from_manifest(manifest), "analyze"))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    found: dict[str, Any] = run
    rules = found["tool"]["driver"]["rules"]
    # Places in the list of rules are what hosts read; each rule that is named is there.
    for result in found["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    return found


def test_a_node_is_found_at_the_users_line() -> None:
    run = run_of(detector())
    assert run["tool"]["driver"]["name"] == "samba-port analyze"
    places = [one["locations"][0]["physicalLocation"] for one in run["results"]]
    assert {
        "artifactLocation": {"uri": "detector.py"},
        "region": {"startLine": 41},
    } in places
    assert {one["level"] for one in run["results"]} == {"warning"}


def test_without_a_line_it_is_found_in_the_model_and_once() -> None:
    manifest = detector()
    (fallback,) = manifest.fallbacks
    first, second = (dataclasses.replace(node, location="") for node in fallback.reasons)
    chosen = dataclasses.replace(second, supported=True)
    twice = dataclasses.replace(fallback, reasons=(first, first, chosen))
    name = "my models/detector #2.onnx"
    source = dataclasses.replace(manifest.source, name=name)
    run = run_of(dataclasses.replace(manifest, fallbacks=(twice,), source=source))
    # What the target could run is no finding. Names are parts of an address: a space is none.
    (result,) = run["results"]
    (place,) = result["locations"]
    uri = "my%20models/detector%20%232.onnx"
    assert place == {"physicalLocation": {"artifactLocation": {"uri": uri}}}
    assert result["message"]["text"].startswith(first.reason)


def test_nothing_falls_back() -> None:
    run = run_of(all_on_rdu())
    assert (run["results"], run["tool"]["driver"]["rules"]) == ([], [])
