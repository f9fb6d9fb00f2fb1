"""Compilation over the number of layers: the fit, and the memory that full sizes take."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest

from benchmarks.published import published_row
from benchmarks.scale import exponent
from benchmarks.scale_worker import with_layers


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
def test_the_exponent_is_that_of_a_power(power: float) -> None:
    times = [(layers, 0.3 * layers**power) for layers in (6, 12, 24, 48)]
    assert exponent(times) == pytest.approx(power)


def test_a_row_with_other_layers_is_the_same_but_for_them() -> None:
    row = published_row("sn30/gpt2/o3/1600x6")
    assert with_layers(row, 48).sizes == {**row.sizes, "layers": 48}
    llama = with_layers(published_row("sn40l/llama/token/llama-3-70b"), 2)
    assert llama.sizes["num_hidden_layers"] == 2
    assert dataclasses.replace(llama, sizes=row.sizes).rdus == 8


@pytest.mark.slow
@pytest.mark.parametrize("level", [pytest.param("o0", marks=pytest.mark.exhaustive), "o3"])
@pytest.mark.parametrize(
    ("name", "layers"), [("sn30/gpt2/o3/1600x6", 48), ("sn40l/llama/token/llama-3-70b", 80)]
)
def test_full_sizes_compile_below_4_gb(name: str, layers: int, level: str) -> None:
    command = [sys.executable, "-m", "benchmarks.scale_worker", name, str(layers), level]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    *_, peak, sections = done.stdout.split()
    # Weights alone would take 3 GB in bfloat16, and 18 GB with AdamW's state; those of Llama 141 GB.
    assert float(peak) < 4e9
    assert int(sections) > layers
