"""Which reference samples are worth their time, and how many runs one has."""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

from samba_onnx.comparing.sample_inputs import RUNS
from samba_onnx.facts.domains import is_custom
from samba_onnx.facts.operators import Randomness, operators
from samba_onnx.passes.timing.node_work import node_flops
from samba_onnx.pef.manifest import Graph, Manifest
from samba_onnx.program.dataflow import each_node

WEIGHT_BYTES = 1 << 30
"""Beyond this much weight a sample is made on request only: it would read all of it once more."""
WORK: Final = 50_000_000_000
"""Operations of all runs together, unless one takes more: some two seconds of a core."""

RANDOM_OPERATORS = operators(random=[Randomness.ALWAYS])


def obstacle(model: ir.Model, *, explicit: bool) -> str:
    """Say what stands against a sample.

    Args:
        model: The rewritten model.
        explicit: Whether the user asked for one, however large the weights are.

    Returns:
        A reason, or nothing.
    """
    random = {node.op_type for node in each_node(model.graph)}
    random &= RANDOM_OPERATORS
    if random:
        return f"{', '.join(sorted(random))} draws other numbers in every run"
    weight = _weight_bytes(model)
    if weight > WEIGHT_BYTES and not explicit:
        return f"it has {weight / 1e9:.1f} GB of weights; ask for one with --sample"
    return ""


def _weight_bytes(model: ir.Model) -> int:
    tensors = [value.const_value for value in model.graph.initializers.values()]
    return sum(tensor.nbytes for tensor in tensors if tensor is not None)


def count_of_runs(model: ir.Model) -> int:
    """Return how many sets of inputs are worth their time: one of a model that computes for seconds."""
    return _runs(sum(map(node_flops, model.graph)))


def count_of_trials(manifest: Manifest, graph: Graph) -> int:
    """Return with how many sets of inputs a graph of a PEF is verified; one if it computes for seconds."""
    work = {section.id: section.flops for section in manifest.sections}
    # What is on the CPU has no count of its own.
    return _runs(sum(work.get(call.stage, 0) for call in graph.calls))


def _runs(work: int) -> int:
    return min(RUNS, max(1, WORK // max(work, 1)))


def may_never_end(model: ir.Model) -> bool:
    """Return whether a model has loops whose end only running them tells, or operators of others."""
    return any(node.op_type == "Loop" or is_custom(node.domain) for node in each_node(model.graph))
