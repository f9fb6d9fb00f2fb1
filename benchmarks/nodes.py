"""Nodes that are left of a model, against onnxslim, onnxsim and onnxscript.optimizer on the same file."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx_ir as ir

from benchmarks.processes import python
from benchmarks.table import Row
from models import MODELS
from models.cache import cached_onnx
from samba_onnx.facts.defaults import DEFAULT_TARGET
from samba_onnx.passes.pipeline import run_pipeline
from samba_onnx.passes.targets import load_target

EXPORTERS = ("torch.export", "TorchScript")

SLIM = "import onnxslim\ndef simplify(path): return onnxslim.slim(onnx.load(path))"
SIM = "import onnxsim\ndef simplify(path): return onnxsim.simplify(onnx.load(path))[0]"
SCRIPT = """
import onnxscript.optimizer
def simplify(path):
    model = onnx_ir.load(path)
    onnxscript.optimizer.optimize(model)
    return onnx_ir.to_proto(model)
"""
SIMPLIFIERS = {"onnxslim": SLIM, "onnxsim": SIM, "onnxscript.optimizer": SCRIPT}

COUNT = """
import contextlib, io, json, sys
import onnx, onnx_ir
{simplifier}
for path in sys.argv[1:]:
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            nodes = onnx_ir.from_proto(simplify(path)).graph.all_nodes()
            count = sum(node.op_type != "Constant" for node in nodes)
    except Exception:
        count = None
    print(json.dumps([path, count]), flush=True)
"""


def rows(folder: Path, *, quick: bool = False) -> Iterator[Row]:
    """Yield the nodes that we leave as ratios to the fewest that any simplifier leaves.

    Constants are not counted: they are initializers or will be. Dynamic dimensions stay dynamic, and
    operators that the default target does not know are written with those that it has, which the others need not
    do. Rules of legalisation trade nodes for transfers (an LSTM becomes hundreds), so none is applied here.

    Args:
        folder: Where exports may be written.
        quick: Only the static exports, optimised by the exporter.

    Yields:
        One row per file, with all counts in its note.
    """
    files = dict(_files(folder, quick=quick))
    counts = {name: _counts(code, list(files)) for name, code in SIMPLIFIERS.items()}
    for path, what in files.items():
        model = ir.load(path)
        before = count(model)
        # Without a chooser no rule of legalisation is applied.
        ours = count(run_pipeline(model, load_target(DEFAULT_TARGET), chooser=None).model)
        theirs = {name: found[path] for name, found in counts.items()}
        known = [number for number in theirs.values() if number is not None]
        shown = ", ".join(
            f"{name} {'failed' if number is None else number}" for name, number in theirs.items()
        )
        ratio = ours / min(known) if known else None
        note = f"({before} nodes; ours {ours}, {shown})"
        yield Row(f"nodes of {what}", "the fewest", ratio, 1.0, note)


def count(model: ir.Model) -> int:
    """Return how many nodes compute something, in the main graph and its subgraphs."""
    return sum(node.op_type != "Constant" for node in model.graph.all_nodes())


def _files(folder: Path, *, quick: bool) -> Iterator[tuple[str, str]]:
    """Yield the path of every export that torch can make, and what it is."""
    folder.mkdir(parents=True, exist_ok=True)
    choices = [(False, False)] if quick else list(itertools.product((False, True), repeat=2))
    for name, exporter, (raw, dynamic) in itertools.product(MODELS, EXPORTERS, choices):
        what = f"{name}, {exporter}{', raw' * raw}{', dynamic' * dynamic}"
        if exporter == "torch.export":
            yield str(cached_onnx(name, "tiny", raw=raw, dynamic=dynamic)), what
            continue
        path = folder / f"{name}{'-raw' * raw}{'-dynamic' * dynamic}.onnx"
        command = [sys.executable, "-m", "models", name, str(path), "--variant", "tiny", "--traced"]
        command += ["--raw"] * raw + ["--dynamic"] * dynamic
        # Some operators of the newest models are not in this exporter any more.
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            yield str(path), what


def _counts(simplifier: str, paths: Sequence[str]) -> dict[str, int | None]:
    """Return the nodes that a simplifier leaves of each file; None where it fails.

    Where it takes its process with it, a new one goes on behind the file that was its last.
    """
    found: dict[str, int | None] = {}
    while rest := [path for path in paths if path not in found]:
        command = python(COUNT.format(simplifier=simplifier), *rest)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
        found |= dict(answers)
        if len(answers) < len(rest):
            found[rest[len(answers)]] = None
    return found
