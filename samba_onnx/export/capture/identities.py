"""Values that an operator gave back unchanged, under their own names again."""

from __future__ import annotations

import operator
from typing import Any

from torch import Tensor, fx
from torch.export import ExportedProgram

__all__ = ["restore_identities"]


def restore_identities(program: ExportedProgram) -> None:
    """Let nodes read what ``broadcast_tensors`` was given, where it had nothing to broadcast.

    It returns such a tensor itself, and torch's tracer, which knows tensors and not their names,
    takes it for a part of the result from then on: a prediction that goes into ``mse_loss`` would be
    returned, and named, as a value of that loss.

    Args:
        program: As ``torch.export`` returned it; it is changed in place.
    """
    originals: dict[str, str] = {}
    for node in list(program.graph.nodes):
        original = _original(node)
        if original is not None:
            originals[node.name] = original.name
            source = node.all_input_nodes[0]
            node.replace_all_uses_with(original)
            program.graph.erase_node(node)
            if not source.users:
                program.graph.erase_node(source)
    if not originals:
        return
    # The signature knows outputs by name, and these names are gone.
    for spec in program.graph_signature.output_specs:
        name = getattr(spec.arg, "name", None)
        if name in originals:
            spec.arg = type(spec.arg)(name=originals[name])
    program.graph_module.recompile()


def _original(node: fx.Node) -> fx.Node | None:
    """Return the tensor that a node is another name of."""
    if node.target is not operator.getitem:
        return None
    source: Any = node.args[0]
    if str(source.target) != "aten.broadcast_tensors.default":
        return None
    original = source.args[0][node.args[1]]
    before, after = original.meta.get("val"), node.meta.get("val")
    if not isinstance(before, Tensor) or not isinstance(after, Tensor):
        return None
    # Of the same shape nothing was broadcast, and the result is the tensor itself.
    return original if before.shape == after.shape else None
