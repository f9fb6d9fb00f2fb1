"""Outputs that something is added to last, written where they belong from the beginning.

onnxruntime would compute the sum's first operand elsewhere and copy it to the output before it scatters
onto it. Bound to the same memory, both are one: ``ScatterND`` onto itself copies nothing. The gradient
of a weight that is an embedding and an output layer, too, is of that kind, and mostly the largest.
"""

from __future__ import annotations

import collections
from collections.abc import Collection

import onnx

from samba_onnx.runtime.engine.lowerings.stage_model import StageModel


def scatter_stage_in_place(stage: StageModel) -> None:
    """Make what a stage scatters onto last an output, too, where nothing is overwritten.

    Args:
        stage: Is changed in place; its places say where the new outputs are written.
    """
    stage.places.update(scatter_in_place(stage.model, fixed_outputs=stage.overwriting()))


def scatter_in_place(model: onnx.ModelProto, fixed_outputs: Collection[str]) -> dict[str, str]:
    """Make what is scattered onto last an output, too.

    Args:
        model: Is changed in place: the new outputs come after those that there are.
        fixed_outputs: Outputs that nothing may be written to before.

    Returns:
        The output in whose memory each new one must be, by new output.
    """
    graph = model.graph
    if any(attribute.g.node for node in graph.node for attribute in node.attribute):
        # What subgraphs read is not among the readers.
        return {}
    outputs = {value.name for value in graph.output}
    stated = {value.name: value for value in graph.value_info}
    results = {name for node in graph.node for name in node.output}
    readers = collections.Counter(name for node in graph.node for name in node.input)
    places = {}
    for node in graph.node:
        if node.op_type != "ScatterND" or node.output[0] not in outputs - set(fixed_outputs):
            continue
        onto = node.input[0]
        if onto in results and onto in stated and onto not in outputs and readers[onto] == 1:
            graph.output.append(stated[onto])
            places[onto] = node.output[0]
    return places
