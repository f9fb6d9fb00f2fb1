"""Limits of ``convert`` and ``analyze``: coverage, sizes in words, a baseline, verdicts in the JSON document."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from samba_onnx.cli.limits import accepted_limits
from samba_onnx.cli.options import parse_bytes
from samba_onnx.errors import UsageError
from samba_onnx.pef.manifest import Call, Manifest
from samba_onnx.report import Report
from tests.cli.conftest import SambaPort
from tests.report.samples import all_on_rdu, detector

DOCS = Path(__file__).parents[2] / "docs"
Compiler = Callable[[Any], list[dict[str, Any]]]


def on_cpu() -> Manifest:
    """The fallback of the detector and nothing else."""
    manifest = detector()
    graph = dataclasses.replace(
        manifest.graphs[0], calls=(Call(0, 1),), run_transfers=(), boundaries=()
    )
    return dataclasses.replace(manifest, sections=(), graphs=(graph,))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("10KiB", 10_240),
        ("1.5MB", 1_500_000),
        ("1.5 mib", 1_572_864),
        ("2GiB", 2 << 30),
        ("1Ti", 1 << 40),
        ("200k", 200_000),
        ("7B", 7),
        ("999999999999999999", 10**18 - 1),
    ],
)
def test_sizes_in_words(text: str, size: int) -> None:
    assert parse_bytes("--max", text) == size


@pytest.mark.parametrize("text", ["10 KiloB", "i", "1iB", "KiB", "-1k", "1e3", "٣k"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="expected a number of bytes, as 1048576"):
        parse_bytes("--max", text)


# Of the detector's 9 nodes 7 are on the RDU, 77.78 %; of its operations all that are known.
@pytest.mark.parametrize(
    ("manifest", "options", "complaint"),
    [
        (detector, ("--min-rdu-nodes", 77.7), ""),
        (
            detector,
            ("--min-rdu-nodes", 77.8),
            "77.7 % of the nodes are on the RDU, 77.8 % demanded",
        ),
        (detector, ("--min-rdu-flops", 100), ""),
        (all_on_rdu, ("--min-rdu-nodes", 100, "--min-rdu-flops", 100), ""),
        (on_cpu, ("--max-fallbacks", 0), "1 fallback to the CPU, 0 allowed"),
        (on_cpu, ("--fail-on-fallback",), "1 fallback to the CPU, 0 allowed"),
        (on_cpu, ("--min-rdu-nodes", 1), "0.0 % of the nodes are on the RDU, 1 % demanded"),
        # Nothing is known of its operations, which is not all of them.
        (on_cpu, ("--min-rdu-flops", 1), "0.0 % of the floating-point operations are on the RDU"),
    ],
)
def test_coverage(
    samba_port: SambaPort,
    compiler: Compiler,
    model: Path,
    manifest: Callable[[], Manifest],
    options: tuple[object, ...],
    complaint: str,
) -> None:
    compiler(manifest())
    result = samba_port("analyze", model, *options)
    assert result.status == (1 if complaint else 0)
    assert complaint in result.err
    assert len(result.err.splitlines()) == result.status


def test_the_document_has_a_verdict_for_every_limit(
    samba_port: SambaPort, compiler: Compiler, model: Path
) -> None:
    compiler(detector())
    options = ("--fail-on-fallback", "--max-transfer-bytes", "1MiB", "--min-rdu-nodes", 50)
    result = samba_port("analyze", model, "--json", "-", *options)
    document = json.loads(result.out)
    jsonschema.validate(document, json.loads((DOCS / "report.schema.json").read_text()))
    verdicts = [(one["option"], one["passed"]) for one in document["limits"]]
    assert verdicts == [
        ("--fail-on-fallback", False),
        ("--max-transfer-bytes", True),
        ("--min-rdu-nodes", True),
    ]
    transfers = document["limits"][1]
    assert (transfers["allowed"], transfers["value"], transfers["unit"]) == (
        1 << 20,
        806_912,
        "bytes",
    )
    assert json.loads(samba_port("analyze", model, "--json", "-").out)["limits"] == []


def test_a_baseline_fails_what_is_worse_and_says_what(
    samba_port: SambaPort, compiler: Compiler, model: Path, tmp_path: Path
) -> None:
    released = tmp_path / "released.json"
    compiler(all_on_rdu())
    assert samba_port("analyze", model, "--json", released).status == 0
    same = samba_port("analyze", model, "--baseline", released)
    assert (same.status, same.err) == (0, "")
    compiler(detector())
    worse = samba_port(
        "convert",
        model,
        "--baseline",
        released,
        "--json",
        tmp_path / "now.json",
        "--allow-different",
    )
    assert worse.status == 1
    (line,) = worse.err.splitlines()
    assert line.startswith(
        "samba-port convert: worse than released.json: cpu nodes 0 nodes → 2 nodes"
    )
    assert "new on the CPU: NonMaxSuppression (nms), ai.example::Clip2 (clip)" in line
    limits = json.loads((tmp_path / "now.json").read_text())["limits"]
    assert {one["figure"]: one["passed"] for one in limits}["cpu_nodes"] is False
    assert len(limits) == 6
    # The other way round everything is better.
    compiler(all_on_rdu())
    better = ("--baseline", tmp_path / "now.json", "--allow-different")
    assert samba_port("analyze", model, *better).status == 0
    # The two are of other sizes, and not comparable unless somebody says so.
    refused = samba_port("analyze", model, *better[:2])
    assert (refused.status, refused.out) == (2, "")
    assert "not comparable with this: sizes x 1x3x224x224 → x 1x16" in refused.err


def test_a_pef_may_be_the_baseline(mixed: Path) -> None:
    limits = accepted_limits(
        False, None, None, None, None, baseline=str(mixed), allow_different=False
    )
    assert limits.baseline is not None
    own = limits.baseline.report
    verdicts = limits.verdicts(own)
    assert [verdict.value for verdict in verdicts[:2]] == [1, 1]  # a node, in one place
    assert all(verdict.passed and verdict.value == verdict.allowed for verdict in verdicts)
    assert not all(one.passed for one in limits.verdicts(Report.from_manifest(detector())))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--baseline", "{folder}/absent.json"), "absent.json: cannot open"),
        (("--baseline", "{folder}/model.onnx"), "expected a report that convert or analyze wrote"),
        (("--baseline", "{folder}/r.json", "--target", "sn10"), "is of target sn40l and level o3"),
        (("--baseline", "{folder}/r.json", "--level", "o0"), "samba-port diff says what differs"),
        (("--baseline", "{folder}/r.json", "--json", "{folder}/r.json"), "would overwrite"),
        (("--min-rdu-nodes", "101"), "--min-rdu-nodes"),
        (("--what-if", "target=sn30", "--max-fallbacks", "0"), "--what-if compares two plans"),
    ],
)
def test_wrong_limits_are_refused_before_anything_is_compiled(
    samba_port: SambaPort,
    compiler: Compiler,
    model: Path,
    tmp_path: Path,
    options: tuple[str, ...],
    message: str,
) -> None:
    (tmp_path / "r.json").write_text(Report.from_manifest(all_on_rdu()).to_json())
    calls = compiler(all_on_rdu())
    result = samba_port("analyze", model, *(text.format(folder=tmp_path) for text in options))
    assert (result.status, result.out) == (2, "")
    assert message in result.err
    assert len(result.err.splitlines()) == 1
    assert not calls
