"""Correct shapes that a model states of what it computes, and that are wrong."""

from __future__ import annotations

import onnx_ir as ir

from samba_onnx.passes.rewrites.impossible_shapes import Sizes
from samba_onnx.passes.rewrites.interface import dimensions
from samba_onnx.passes.rewrites.refuse_impossible import shapes_from_inputs
from samba_onnx.program.dataflow import each_node
from samba_onnx.safety.files import printable


class CorrectShapesPass(ir.passes.InPlacePass):
    """Take the shape that follows from the inputs in place of one that contradicts it.

    onnxruntime warns of such a statement and computes what there is; exporters leave the sizes of their
    example, or of another version of the model.

    1. Shapes are inferred from those of inputs and initializers alone.
    2. A statement is wrong where it has another rank, or another number for a dimension; what inference does
       not know is left as it is stated.
    3. Only values of the main graph. A note tells of outputs, whose shapes callers may rely on.
    """

    def __init__(self) -> None:
        """Start without notes."""
        super().__init__()
        self.notes: list[str] = []

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Correct the shapes."""
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
                    self.notes.append(
                        f"output {printable(value.name or '')!r} is declared as {_text(stated)}, but the model "
                        f"computes {_text(dimensions(value.shape) or ())}, which it has in the PEF, as in "
                        "onnxruntime"
                    )
        return ir.passes.PassResult(model, modified=modified)


def _agree(stated: tuple[int | str | None, ...], sizes: Sizes) -> bool:
    return len(stated) == len(sizes) and all(
        not isinstance(before, int) or size is None or before == size
        for before, size in zip(stated, sizes, strict=True)
    )


def _merged(stated: tuple[int | str | None, ...], sizes: Sizes) -> list[int | str | None]:
    if len(stated) != len(sizes):
        return list(sizes)
    return [before if size is None else size for before, size in zip(stated, sizes, strict=True)]


def _text(shape: tuple[int | str | None, ...]) -> str:
    return f"[{', '.join('?' if size is None else str(size) for size in shape)}]"
