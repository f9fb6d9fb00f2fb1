"""Bring every node of the default domain to one version of the operator set."""

from __future__ import annotations

import onnx_ir as ir

from samba_onnx.facts.versions import NEWEST_IR_VERSION, NEWEST_OPSET, OPSET
from samba_onnx.passes.rewrites.opset_adapters import ADAPTERS, Apply
from samba_onnx.passes.rewrites.refusals import Refusal
from samba_onnx.program.dataflow import each_node
from samba_onnx.program.value_types import type_text


class ConvertOpsetPass(ir.passes.InPlacePass):
    """Convert all nodes, or none of them.

    1. A node whose operator is the same at both versions only changes its stamp, upwards and
       downwards; so is one whose newer version only adds types that the node does not use.
    2. Upwards, ``ADAPTERS`` rewrite what changed its meaning.
    3. A model with a node that cannot be converted keeps its version, and a note says why. One
       that is newer than what is written is then brought to the newest version that is.
    4. A model whose ranks may be known later keeps its version till then, if an adapter asks for one.
    """

    def __init__(self, target_version: int = OPSET, *, waits_for_ranks: bool = False) -> None:
        """Choose the version to convert to, and whether another conversion follows."""
        super().__init__()
        self.target_version = target_version
        self._waits = waits_for_ranks
        self.notes: list[str] = []

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Convert to the target version, or say in a note why the model keeps its own."""
        imports = model.graph.opset_imports
        # onnxruntime refuses models of a newer IR version than it knows, though the graph says
        # nothing new.
        model.ir_version = min(model.ir_version, NEWEST_IR_VERSION)
        # Both names are the default domain; the newer version holds for a model that imports both.
        if "ai.onnx" in imports:
            imports[""] = max(imports.pop("ai.onnx"), imports.get("", 0))
        version = imports.setdefault("", self.target_version)
        targets = [self.target_version]
        if version > NEWEST_OPSET:
            targets.append(NEWEST_OPSET)
        for target in targets:
            changes = _changes(model, target, self._waits)
            if not isinstance(changes, Refusal):
                modified = bool(changes) or version != target
                _apply(model, changes, target)
                return ir.passes.PassResult(model, modified=modified)
            self.notes.append(f"the model keeps opset {version}, not {target}: {changes.reason}")
        return ir.passes.PassResult(model, modified=False)


def _changes(model: ir.Model, target: int, waits: bool) -> list[Apply] | Refusal:
    """Return what changes in the model, or why one of its nodes cannot be converted."""
    default = model.graph.opset_imports[""]
    changes: list[Apply] = []
    for node in each_node(model.graph):
        if node.domain != "":
            continue
        version = node.version or default
        # Case 4. Ranks become known when shapes are folded, for which another conversion follows.
        missing = _missing_rank(model, node, version) if waits else None
        change = missing or _change(model, node, version, target)
        if isinstance(change, Refusal):
            return Refusal(
                f"node {node.name!r} ({node.op_type}) cannot be converted: {change.reason}"
            )
        if change is not None:
            changes.append(change)
    return changes


def _missing_rank(model: ir.Model, node: ir.Node, version: int) -> Refusal | None:
    """Return that an adapter asks for a rank that is not known yet: shapes are folded after the first conversion."""
    adapter = ADAPTERS.get(node.op_type)
    if adapter is None or not adapter.asks_for_rank or version >= adapter.until:
        return None
    operand = node.inputs[0] if node.inputs else None
    is_known = operand is not None and operand.shape is not None
    if is_known or adapter.adapt(model, node) is None:  # as over the last axis, whatever that is
        return None
    return Refusal("the rank of its input is not known yet")


def _change(model: ir.Model, node: ir.Node, version: int, target: int) -> Apply | Refusal | None:
    """Return what changes in a node, None when its stamp alone does, or why it cannot change."""
    # Case 2: upwards, the node is rewritten where its operator changed its meaning on the way.
    if version <= target:
        adapter = ADAPTERS.get(node.op_type)
        if adapter is None or not version < adapter.until <= target:
            return None
        return adapter.adapt(model, node)
    # Case 1: downwards, it must mean the same already.
    return _lowering_obstacle(node, version, target)


def _lowering_obstacle(node: ir.Node, version: int, target: int) -> Refusal | None:
    """Return why a node of a newer version is not also a node of the older one."""
    from onnx import defs

    if not defs.has(node.op_type):
        return Refusal("onnx does not know the operator")
    try:
        new = defs.get_schema(node.op_type, version)
        old = defs.get_schema(node.op_type, target)
    except defs.SchemaError:
        return Refusal(f"version {target} does not have it")
    # Between two versions of an operator nothing of it changes.
    if new.since_version == old.since_version:
        return None
    if node.op_type in CHANGED_SINCE and CHANGED_SINCE[node.op_type] > target:
        return Refusal(f"its meaning changed in version {CHANGED_SINCE[node.op_type]}")
    # Attributes of the newer version would be unknown in the older one.
    unknown = [name for name in node.attributes if name not in old.attributes]
    if unknown:
        return Refusal(f"attribute {unknown[0]} is new since version {target}")
    if len(node.inputs) > old.max_input or len(node.outputs) > old.max_output:
        return Refusal(f"it has inputs or outputs that are new since version {target}")
    return _type_obstacle(node, old)


def _type_obstacle(node: ir.Node, schema: object) -> Refusal | None:
    """Return which type the older version does not have."""
    for values, formals in (
        (node.inputs, schema.inputs),  # type: ignore[attr-defined]
        (node.outputs, schema.outputs),  # type: ignore[attr-defined]
    ):
        for position, value in enumerate(values):
            formal = formals[min(position, len(formals) - 1)]
            if value is None or (not value.name and not value.uses()):
                continue
            if value.type is None or type_text(value) not in formal.types:
                return Refusal(f"its type {type_text(value) or 'is not known'} is new")
    return None


CHANGED_SINCE: dict[str, int] = {"GroupNormalization": 21, "DFT": 20, "GridSample": 20}
"""Operators whose meaning changed while inputs and attributes look the same."""


def _apply(model: ir.Model, changes: list[Apply], target: int) -> None:
    # Only now: every adapter has been asked, so that all nodes change or none (case 3).
    for apply in changes:
        apply()
    # A node without a version of its own is of the version that its model imports.
    for node in each_node(model.graph):
        if node.domain == "":
            node.version = None
    for graph in (model.graph, *model.graph.subgraphs()):
        if "" in graph.opset_imports:
            graph.opset_imports[""] = target
    for function in model.functions.values():
        function.opset_imports.setdefault("", target)
    model.graph.opset_imports[""] = target
