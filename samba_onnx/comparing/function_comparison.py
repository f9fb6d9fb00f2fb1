"""What a PEF computes as a function, compared with the original: rounding hides nothing there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from samba_onnx.comparing.expectations import ChosenTolerances, Expectation
from samba_onnx.comparing.judge import Verdict, judge
from samba_onnx.facts.precisions import stored_precision
from samba_onnx.facts.tolerances import COARSER
from samba_onnx.pef import Pef
from samba_onnx.pef.manifest import Graph
from samba_onnx.runtime.engine.protocol import Engine

__all__ = ["coarseness", "compare_functions"]


def compare_functions(
    pef: Pef,
    graph: Graph,
    runs: Mapping[str, tuple[Mapping[str, Any], Expectation]],
    limits: ChosenTolerances,
    engine: Engine,
) -> dict[str, tuple[Verdict, ...]]:
    """Compare a graph and the original on some inputs, both in float32 and without rounding.

    Args:
        pef: The compiled model.
        graph: One of its graphs.
        runs: Inputs by the model's names, with what the original answers, by the name of the run.
        limits: Tolerances that the user gave.
        engine: What computes the graph.

    Returns:
        The comparisons by run; none where the original has nothing to round, or where either of them
        cannot be computed so.
    """
    from samba_onnx.runtime.exact_graphs import open_exact

    # Without an answer in float32 there is nothing that a graph without rounding is held against.
    if not all(expected.wide for _, expected in runs.values()):
        return {}
    exact = open_exact(pef, graph, engine)
    if exact is None:
        return {}
    compared: dict[str, tuple[Verdict, ...]] = {}
    for name, (inputs, expected) in runs.items():
        actual, wide = exact.run(inputs), dict(expected.wide or {})
        if actual is not None:
            run = f"{name}, in float32 without rounding"
            kept = {output: _as_number(actual.get(output), wide[output]) for output in wide}
            right = {output: _as_number(wide[output], actual.get(output)) for output in wide}
            whole = Expectation(right, again=expected.again_wide)
            compared[run] = judge(kept, whole, limits, run)
    return compared


def _as_number(value: Any, other: Any) -> Any:
    """Return a value as a float where it is an integer and the other side has a float in its place.

    Sums of products of integers are floats on that side of the two which has nothing to round in its way.
    """
    kinds = [getattr(each, "dtype", np.dtype(object)).kind for each in (value, other)]
    return value.astype(other.dtype) if kinds[0] in "iu" and kinds[1] == "f" else value


def coarseness(pef: Pef, graph: Graph) -> float:
    """Return how many times larger a rounding on the device is than one of the model's own type.

    Args:
        pef: The compiled model.
        graph: One of its graphs.

    Returns:
        8, against float16, where a model in float16 or float32 is computed in bfloat16; otherwise 1.
    """
    from samba_onnx.runtime.engine.lowerings.bfloat16 import uses_bfloat16

    replaced = any(step.name == "ReplaceFloat16" and step.modified for step in pef.manifest.passes)
    # In a model's own types, bfloat16 among them, the tolerances are those of the types already.
    if not replaced and stored_precision(pef.manifest.metadata).is_own:
        return 1.0
    # float16 may have become float32, which rounds less than the original does.
    stages = dict.fromkeys(call.stage for call in graph.calls)
    if not any(uses_bfloat16(pef.stage_model(stage)) for stage in stages):
        return 1.0
    return COARSER
