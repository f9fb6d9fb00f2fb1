"""The ONNX backend suite, end to end: convert, package, run on the emulator.

A case counts when onnxruntime passes it on the original model, re-stamped where that is newer than
onnxruntime, or when it is older than what onnxruntime promises to run; it must then pass through the PEF
with the tolerance that the suite itself states, and move exactly the bytes that were planned. How many
cases there are of each module, and why others were left out, is in ``backend_counts.json``: a case that
is no longer looked at is a failure, too.
"""

from __future__ import annotations

import collections
import itertools
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import samba_onnx
from tests.backend_cases import (
    DISK_KINDS,
    BackendCase,
    assert_outputs,
    disk_cases,
    expected_counts,
    node_cases,
    node_modules,
    run_onnxruntime,
)
from tests.rows import others_slow

Record = Callable[[str, object], None]
Run = Callable[[list[Any]], list[Any]]


def _problem(run: Run, case: BackendCase) -> str:
    """Return what is wrong with a case, or nothing."""
    try:
        for inputs, expected in case.data_sets():
            assert_outputs(case, expected, run(inputs))
    except AssertionError as error:
        return f"{case.name}: {' '.join(str(error).split())[:200]}"
    except Exception as error:  # one report for all cases of a module
        return f"{case.name}: {type(error).__name__}: {error}"
    return ""


def _on_emulator(case: BackendCase, folder: Path, engine: str = "onnxruntime") -> Run:
    initialized = {tensor.name for tensor in case.model.graph.initializer}
    declared = [value.name for value in case.model.graph.input]
    names = [name for name in declared if name not in initialized] or declared

    def run(inputs: list[Any]) -> list[Any]:
        source = case.path or case.model
        pef = samba_onnx.convert(
            source, folder / "case.pef", sample=False, trial=False, keep_dynamic=True
        )
        with pef, samba_onnx.Device(pef, threads=1, engine=engine) as device:
            outputs = device.run(dict(zip(names, inputs, strict=False)))
            graph = pef.manifest.graphs[0]
            assert tuple(device.ledger.transfers) == graph.load_transfers + graph.run_transfers
        return [outputs[value.name] for value in case.model.graph.output]

    return run


def _problems(
    cases: Iterable[BackendCase], folder: Path, engine: str, counts: collections.Counter[str]
) -> dict[str, str]:
    """Return what is wrong, by case, on an engine; count cases seen, passed and left out, and why."""
    problems = {}
    for case in cases:
        counts["seen"] += 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # overflow inside the suite's own references
            serialized = case.runnable().SerializeToString()
            reference = partial(run_onnxruntime, serialized, optimise=True)
            if not case.is_old and _problem(reference, case):
                counts["onnxruntime fails"] += 1
                continue
        counts["older than onnxruntime" if case.is_old else "onnxruntime"] += 1
        problem = _problem(_on_emulator(case, folder, engine), case)
        counts["passed"] += not problem
        problems |= {case.name: problem} if problem else {}
    return problems


def _check(part: str, cases: Iterable[BackendCase], folder: Path, record: Record) -> None:
    """Run the cases of a module or kind."""
    counts: collections.Counter[str] = collections.Counter()
    problems = _problems(cases, folder, "onnxruntime", counts)
    record("backend_suite", dict(counts))
    assert not problems, "\n".join(problems.values())
    assert counts["passed"] == counts["onnxruntime"] + counts["older than onnxruntime"]
    known = expected_counts()
    if known is not None:
        assert dict(counts) == known[part]


COSTLY = "attention"
"""A module whose cases take as long as those of all modules up to "c"."""


@pytest.mark.parametrize(
    "module",
    [pytest.param(m, marks=pytest.mark.slow) if m == COSTLY else m for m in node_modules()],
)
def test_node_cases(module: str, tmp_path: Path, record_property: Record) -> None:
    _check(module, node_cases([module]), tmp_path, record_property)


def test_some_cases_of_the_costly_module(tmp_path: Path) -> None:
    cases = itertools.islice(node_cases([COSTLY]), 0, None, 8)
    counts: collections.Counter[str] = collections.Counter()
    assert not _problems(cases, tmp_path, "onnxruntime", counts)
    assert counts["passed"] == counts["onnxruntime"] + counts["older than onnxruntime"] > 5


@pytest.mark.parametrize(
    "kind",
    others_slow(["simple", "pytorch-converted", "pytorch-operator"], ["simple"]),
)
def test_disk_cases(kind: str, tmp_path: Path, record_property: Record) -> None:
    _check(kind, disk_cases([kind]), tmp_path, record_property)


def test_light_cases(tmp_path: Path, record_property: Record) -> None:
    _check("light", disk_cases(["light"]), tmp_path, record_property)


def test_the_counts_are_of_all_parts_of_the_suite() -> None:
    known = expected_counts()
    if known is None:
        pytest.skip("other versions of onnx or onnxruntime than those that the counts are of")
    assert known.keys() == {*node_modules(), *DISK_KINDS}
    total = collections.Counter[str]()
    for part in known.values():
        counts = collections.Counter(part)
        total.update(counts)
        assert counts["seen"] == counts["passed"] + counts["onnxruntime fails"]
    assert dict(total) == TOTAL


TOTAL = {
    "seen": 2025,
    "older than onnxruntime": 115,
    "onnxruntime fails": 197,
    "onnxruntime": 1713,
    "passed": 1828,
}
"""All cases of the suite, with onnx 1.23 and onnxruntime 1.31."""
_IF = "if_" if "if_" in node_modules() else "if"  # as older versions of onnx name it
REFERENCE_SAMPLE = (_IF, *node_modules()[4::5])
"""Every fifth module of node cases, and the one that the second engine is known to fail in."""
REFERENCE_FAULTS = {
    "test_scan_sum": "onnx.reference runs Scan as of version 9, which has no lengths of sequences",
    "test_if_opt": "onnx.reference makes a list of an optional sequence, once more than it should",
    **dict.fromkeys(
        (
            "test_range_bfloat16_type_positive_delta_expanded",
            "test_range_float16_type_positive_delta_expanded",
            "test_range_float_type_positive_delta_expanded",
            "test_range_int32_type_negative_delta_expanded",
        ),
        "onnx.reference gives the results of a Loop an axis too many, where a Loop makes a Range",
    ),
}
"""All cases of the suite that onnxruntime passes and onnx.reference does not: 6 of the 1,530 from opset 7 on."""


def test_a_sample_on_the_reference_engine(tmp_path: Path, record_property: Record) -> None:
    """With onnx 1.23, 278 of the 280 cases of the sample that onnxruntime passes pass here, too."""
    counts: collections.Counter[str] = collections.Counter()
    problems = _problems(node_cases(REFERENCE_SAMPLE), tmp_path, "reference", counts)
    record_property("reference_suite", dict(counts))
    unknown = {name: text for name, text in problems.items() if name not in REFERENCE_FAULTS}
    assert not unknown, "\n".join(unknown.values())
    assert counts["passed"] + len(problems) == counts["onnxruntime"]
    known = expected_counts()
    if known is None:
        assert counts["passed"] >= 200
        return
    stated = sum(
        (collections.Counter(known[part]) for part in REFERENCE_SAMPLE), collections.Counter()
    )
    assert counts["seen"] == stated["seen"]
    assert counts["onnxruntime"] == stated["onnxruntime"] == 280
    assert counts["passed"] == 278
