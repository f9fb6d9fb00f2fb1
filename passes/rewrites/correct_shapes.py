"""Correct shapes that a model states of what it computes, and that are wrong."""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

from samba_onnx.passes.rewrites.impossible_shapes import Sizes
from samba_onnx.passes.rewrites.interface import dimensions
from samba_onnx.passes.rewrites.refuse_impossible import shapes_from_inputs
from samba_onnx.program.dataflow import each_node
from samba_onnx.safety.files import printable

_NOTED: Final = "samba_onnx.corrected"
"""Key in ``Model.meta`` of what the model states of outputs that were corrected, by their names."""


class CorrectShapesPass(ir.passes.InPlacePass):
    """Take the shape that follows from the inputs in place of one that contradicts it.

    onnxruntime warns of such a statement and computes what there is; exporters leave the sizes of their
    example, or of another version of the model.

    1. Shapes are inferred from those of inputs and initializers alone.
    2. A statement is wrong where it has another rank, or another number for a dimension; what inference does
       not know is left as it is stated.
    3. Only values of the main graph. A note tells of outputs, whose shapes callers may rely on.

    It runs before the nodes of the model are rewritten, and again when what is computed from sizes has become
    numbers: some shapes follow only then.
    """

    def __init__(self) -> None:
        """Start without notes."""
        super().__init__()
        self.notes: list[str] = []

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Correct the shapes."""
        # onnx infers a model of one version only.
        if any(node.version for node in each_node(model.graph)):
            return ir.passes.PassResult(model, modified=False)
        # Case 1.
        known = shapes_from_inputs(model)
        modified = False
        for node in model.graph:
            for value in node.outputs:
                sizes, stated = known.get(value), dimensions(value.shape)
                # Case 2.
                if sizes is None or stated is None or _agree(stated, sizes):
                    continue
                value.shape = ir.Shape(_merged(stated, sizes))
                modified = True
                # Case 3.
                if value.is_graph_output():
                    noted = model.meta.setdefault(_NOTED, {})
                    # What was stated first is what the note says, also after a second run.
                    noted.setdefault(value.name, _text(stated))
        self.notes = _notes(model)
        return ir.passes.PassResult(model, modified=modified)


def _notes(model: ir.Model) -> list[str]:
    """Return a note for every output that has been corrected so far."""
    shapes = {value.name: dimensions(value.shape) or () for value in model.graph.outputs}
    return [
        f"output {printable(name or '')!r} is declared as {stated}, but the model computes "
        f"{_text(shapes.get(name, ()))}, which it has in the PEF, as in onnxruntime"
        for name, stated in model.meta.get(_NOTED, {}).items()
    ]


def _agree(stated: tuple[int | str | None, ...], sizes: Sizes) -> bool:
    return len(stated) == len(sizes) and all(
        # Names are no statement that could be wrong.
        not isinstance(before, int) or size is None or before == size
        for before, size in zip(stated, sizes, strict=True)
    )


def _merged(stated: tuple[int | str | None, ...], sizes: Sizes) -> list[int | str | None]:
    if len(stated) != len(sizes):
        return list(sizes)
    return [before if size is None else size for before, size in zip(stated, sizes, strict=True)]


def _text(shape: tuple[int | str | None, ...]) -> str:
    return f"[{', '.join('?' if size is None else str(size) for size in shape)}]"
