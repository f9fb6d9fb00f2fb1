"""Compile in one process; trace and run in another, which compiled nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import samba_onnx as samba
from models import MODELS, build
from samba_onnx.sessions import SambaSession

ROOT = Path(__file__).parent.parent.parent
QUICK = ("logistic_regression", "lenet")
TOLERANCE = 1e-4
"""Of the largest magnitude of an output: deep networks sum in another order."""

PROGRAM = """
import sys
import torch
import samba_onnx as samba
from models import build

folder, names = sys.argv[1], sys.argv[2:]
for name in names:
    example = build(name, "tiny")
    inputs = samba.from_named_dict(example.draw(0))
    outputs = samba.utils.trace_graph(example.module, inputs, pef=f"{folder}/{name}.pef")
    results = []
    for seed in (1, 2, 3):
        given = samba.from_named_dict(example.draw(seed))
        results.append([samba.to_torch(x) for x in samba.session.run(given, outputs)])
    torch.save(results, f"{folder}/{name}.pt")
"""


def check(session: SambaSession, folder: Path, names: tuple[str, ...]) -> None:
    expected = {}
    for name in names:
        example = build(name, "tiny")
        inputs = samba.from_named_dict(example.draw(0))
        session.compile(example.module, inputs, output=folder / f"{name}.pef")
        with torch.no_grad():
            runs = [example.module(**example.draw(seed)) for seed in (1, 2, 3)]
        expected[name] = [(run,) if isinstance(run, torch.Tensor) else tuple(run) for run in runs]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), *names], check=True, env=environment, cwd=ROOT
    )
    for name in names:
        results = torch.load(folder / f"{name}.pt")
        for made, wanted in zip(results, expected[name], strict=True):
            for one, other in zip(made, wanted, strict=True):
                assert one.dtype == other.dtype, name
                error = (one.double() - other.double()).abs().max()
                assert error <= TOLERANCE * other.double().abs().max(), name


def test_another_process_runs_what_was_compiled(session: SambaSession, tmp_path: Path) -> None:
    check(session, tmp_path, QUICK)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in QUICK])
def test_every_model_runs_in_another_process(
    session: SambaSession, tmp_path: Path, name: str
) -> None:
    check(session, tmp_path, (name,))
