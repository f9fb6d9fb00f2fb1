"""The ONNX backend suite through modules: how many of its floating-point cases pass."""

from __future__ import annotations

import collections
import warnings
from collections.abc import Iterable

import pytest

from tests.backend_cases import BackendCase, expected_counts, node_cases
from tests.importing.backend import is_floating, problem, trace
from tests.versions import needs

QUICK = (
    "batch_normalization",
    "clip",
    "conv",
    "convtranspose",
    "einsum",
    "gather",
    "gelu",
    "gemm",
    "gru",
    "layernormalization",
    "loop",
    "lstm",
    "maxpool",
    "pad",
    "rnn",
    "scan",
    "scatternd",
    "slice",
    "softmax",
    "topk",
)
"""Modules of the suite whose operators training needs most."""


def _count(cases: Iterable[BackendCase]) -> tuple[collections.Counter[str], list[str]]:
    counts: collections.Counter[str] = collections.Counter()
    problems = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # overflow inside the suite's own references
        for case in cases:
            if not case.eligible or not is_floating(case):
                continue
            counts["floating"] += 1
            found = problem(case)
            if found:
                counts[found.split(":")[0]] += 1
                problems.append(f"{case.name}: {found}")
            else:
                counts["passed"] += 1
    return counts, problems


@needs("onnx", "1.23")  # the modules of older ones have other names
def test_cases_that_training_needs_most() -> None:
    counts, problems = _count(node_cases(QUICK))
    print(dict(counts))
    # The batch axis of Scan 8 was removed; the sequence of loop16 compares as an optional.
    assert [text.split(":")[0] for text in problems] == ["test_loop16_seq_none", "test_scan_sum"]
    assert counts["passed"] == counts["floating"] - 2
    if expected_counts() is not None:  # the versions that they were counted with
        assert counts["floating"] == 204
    assert counts["passed"] >= 200


def test_all_cases() -> None:
    counts, problems = _count(node_cases())
    print("\n".join(problems))
    print(dict(counts))
    assert counts["passed"] >= 1197


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
def test_torch_traces_every_case_that_passes() -> None:
    cases = (
        case
        for case in node_cases()
        if case.eligible
        and is_floating(case)
        and not case.name.endswith("_expanded")  # the operators are the same
        and not problem(case)
    )
    counts = collections.Counter(trace(case) for case in cases)
    print(dict(counts))
    assert counts[False] == 0
    assert counts[True] >= 860
