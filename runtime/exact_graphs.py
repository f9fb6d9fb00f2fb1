"""The graph of a PEF as a function: what its stages compute, in float32 and without rounding."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samba_onnx.errors import ExecutionError, PefFormatError
from samba_onnx.pef import Pef
from samba_onnx.pef.layout import WEIGHTS_MEMBER
from samba_onnx.pef.manifest import Graph
from samba_onnx.runtime.engine.assembly import merge_stages, place_weights
from samba_onnx.runtime.engine.lowerings.bfloat16 import uses_bfloat16
from samba_onnx.runtime.engine.protocol import Computation, Engine, HostComputation
from samba_onnx.runtime.engine.unrounding import exact_form

__all__ = ["ExactGraph", "open_exact"]


@dataclass(frozen=True)
class ExactGraph:
    """A graph whose numbers are not rounded, ready to run on the host."""

    graph: Graph
    engine: Engine
    computation: HostComputation

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
        """Compute the outputs, without the device and its copies.

        Args:
            inputs: Arrays by the model's names, of the model's own types.

        Returns:
            Its outputs by the model's names, floats and quantised numbers in float32; None where the
            engine cannot compute them so.
        """
        names = {self.graph.model_name(symbol): symbol for symbol in self.graph.inputs}
        feeds = {names[name]: value for name, value in inputs.items() if name in names}
        try:
            values = self.computation.run(
                {name: value for name, value in feeds.items() if name in self.computation.inputs}
            )
        except self.engine.failures:
            return None
        outputs = map(self.graph.model_name, self.graph.outputs)
        return dict(zip(outputs, values, strict=True))


def open_exact(pef: Pef, graph: Graph, engine: Engine) -> ExactGraph | None:
    """Prepare a graph so that nothing is rounded but by float32 itself.

    Args:
        pef: Where its stages and weights come from.
        graph: One of its graphs.
        engine: What computes it.

    Returns:
        None where a PEF lacks weights, where its values are bfloat16 and its constants were rounded to
        that, or where the engine cannot compute it so.

    Raises:
        PefFormatError: The stages do not fit together.
    """
    stages = dict.fromkeys(call.stage for call in graph.calls)
    models = [pef.stage_model(stage) for stage in stages]
    if any(map(uses_bfloat16, models)):
        return None
    try:
        merged = merge_stages(models, graph.inputs, graph.outputs)
    except PefFormatError:
        return None  # an output that no stage computes
    written = {value.name for model in models for value in model.graph.output}
    read = {value.name for model in models for value in model.graph.input}
    # Weights that are loaded later are read by stages, and are inputs of no graph.
    if read - written - set(graph.inputs):
        return None
    path = Path(os.path.realpath(pef.path))
    place_weights(merged, path.name, pef.member_offset(WEIGHTS_MEMBER))
    exact = exact_form(merged)
    if exact is None:
        return None
    title = f"graph {graph.name!r} in float32"
    try:
        computation = engine.prepare(Computation(exact, title, str(path.parent)))
    except ExecutionError:
        return None
    return ExactGraph(graph, engine, computation)
