"""From a loaded ONNX model to the program that every front end makes."""

from __future__ import annotations

from samba_onnx.loading.model import LoadedModel
from samba_onnx.program.kinds import SectionType
from samba_onnx.program.program import DEFAULT_GRAPH, Part, Program


def onnx_program(loaded: LoadedModel) -> Program:
    """Return the program of an ONNX model.

    Args:
        loaded: As ``load_model`` returns it; its model becomes the program's.

    Returns:
        One part of type FWD, which exchanges all its inputs and outputs with the host in every run
        and has its weights as initializers. Dimensions may be dynamic still.
    """
    graph, ir_version = loaded.model.graph, loaded.model.ir_version
    # Before IR version 4 every initializer had to be declared as an input.
    inputs = [v for v in graph.inputs if ir_version >= 4 or not v.is_initializer()]
    return Program(
        name=DEFAULT_GRAPH,
        parts=(Part(SectionType.FWD, loaded.model, has_weights=True),),
        inputs=tuple(value.name or "" for value in inputs),
        outputs=tuple(value.name or "" for value in graph.outputs),
    )
