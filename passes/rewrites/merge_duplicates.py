"""Keep one of equal initializers and one of equal nodes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import onnx_ir as ir
from onnx_ir.passes.common import CommonSubexpressionEliminationPass

from samba_onnx.facts.operators import Randomness, operators
from samba_onnx.passes.rewrites.rewriting import WEIGHT
from samba_onnx.pef.sources import FileRegion

SMALL_BYTES = 4096
"""Size up to which initializers are compared by content; larger ones by where they are stored."""

RANDOM = operators(random=[Randomness.ALWAYS, Randomness.TRAINING])
_TAG = "samba_onnx_unique"


class MergeInitializersPass(ir.passes.InPlacePass):
    """Keep one of initializers with the same type, shape and content.

    Small ones are compared by content, large ones by their range of a file or by the identity of
    their tensor, so that no weight is read. Those that are inputs or outputs stay.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Merge."""
        originals: dict[Hashable, ir.Value] = {}
        modified = False
        for name, value in list(model.graph.initializers.items()):
            key = _key(value)
            if key is None:
                continue
            first = originals.setdefault(key, value)
            if first is value:
                continue
            if value.meta.get(WEIGHT):
                first.meta[WEIGHT] = True
            value.replace_all_uses_with(first)
            del model.graph.initializers[name]
            modified = True
        return ir.passes.PassResult(model, modified=modified)


def _key(value: ir.Value) -> Hashable | None:
    tensor = value.const_value
    if tensor is None or value.is_graph_input() or value.is_graph_output():
        return None
    head = (tensor.dtype, tuple(tensor.shape))
    if tensor.dtype.is_string():
        return None
    region = getattr(tensor, "region", None)
    if isinstance(region, FileRegion) and tensor.nbytes > SMALL_BYTES:
        return (*head, region)
    return (*head, tensor.tobytes() if tensor.nbytes <= SMALL_BYTES else id(tensor))


class MergeNodesPass(ir.passes.InPlacePass):
    """Keep one of nodes with the same operator, attributes and inputs, with ``onnx_ir``'s pass.

    Nodes that may differ from run to run (random operators, Dropout) or of which nothing is known
    (custom domains) are told apart by a temporary attribute.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Merge."""
        tagged = list(_not_mergeable(model))
        for number, node in enumerate(tagged):
            node.attributes[_TAG] = ir.AttrInt64(_TAG, number)
        try:
            result = CommonSubexpressionEliminationPass()(model)
        finally:
            for node in tagged:
                node.attributes.pop(_TAG, None)
        return ir.passes.PassResult(model, modified=result.modified)


def _not_mergeable(model: ir.Model) -> Iterator[ir.Node]:
    for node in model.graph:
        if node.domain != "" or node.op_type in RANDOM:
            yield node
