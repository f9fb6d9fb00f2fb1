"""One maker of reference samples, whoever ran the original model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from samba_onnx.facts.tolerances import OUTPUT
from samba_onnx.program.program import DEFAULT_GRAPH
from samba_onnx.workflows import reference_sample
from samba_onnx.workflows.reference_sample import keep_sample

NUMBERS = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_a_sample_says_what_it_is_compared_with_and_how_closely() -> None:
    sample = keep_sample({"x": NUMBERS}, {"y": NUMBERS, "z": NUMBERS}, seed=7)
    record = sample.record
    assert record is not None
    assert (record.graph, record.seed) == (DEFAULT_GRAPH, 7)
    assert (record.inputs, record.outputs) == (("x",), ("y", "z"))
    assert (record.rtol, record.atol) == (OUTPUT.relative, OUTPUT.absolute)
    assert sample.content
    assert not sample.notes


@pytest.mark.parametrize("place", ["inputs", "outputs"])
def test_what_is_no_number_is_not_kept(place: str) -> None:
    values: dict[str, dict[str, Any]] = {"inputs": {"x": NUMBERS}, "outputs": {"y": NUMBERS}}
    values[place] = {"text": np.array(["a", "b"], dtype=object)}
    sample = keep_sample(**values)
    assert (sample.record, sample.content) == (None, None)
    assert sample.notes == (
        "The PEF carries no reference sample: its inputs or outputs are not all numbers.",
    )


def test_inputs_and_outputs_count_towards_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = 3 << 20
    monkeypatch.setattr(reference_sample, "KEPT_BYTES", limit)
    half = np.zeros(limit // 2, np.int8)
    assert keep_sample({"x": half}, {"y": half}).record is not None
    (note,) = keep_sample({"x": half}, {"y": np.zeros(limit, np.int8)}).notes
    assert "inputs and outputs take 4 MiB, the limit is 3" in note
