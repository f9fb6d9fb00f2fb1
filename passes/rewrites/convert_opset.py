"""Bring every node of the default domain to one version of the operator set."""

from __future__ import annotations

import onnx_ir as ir

from samba_onnx.passes.rewrites.opset_adapters import ADAPTERS, Apply

INTERNAL_OPSET = 21
"""Version that models are brought to: of all versions that onnxruntime 1.31 knows, the one at which
it runs the most cases of the ONNX backend suite."""

NEWEST_RUNNABLE_OPSET = 26
"""Newest version that onnxruntime 1.31 accepts."""

NEWEST_RUNNABLE_IR = 13
"""Newest version of the file format that onnxruntime 1.31 accepts."""


class ConvertOpsetPass(ir.passes.InPlacePass):
    """Convert all nodes, or none of them.

    1. A node whose operator is the same at both versions only changes its stamp, upwards and
       downwards; so is one whose newer version only adds types that the node does not use.
    2. Upwards, ``ADAPTERS`` rewrite what changed its meaning.
    3. A model with a node that cannot be converted keeps its version, and a note says why. One
       that is newer than onnxruntime accepts is then brought to the newest version that it does.
    """

    def __init__(self, target_version: int = INTERNAL_OPSET) -> None:
        """Choose the version to convert to."""
        super().__init__()
        self.target_version = target_version
        self.notes: list[str] = []

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Convert."""
        imports = model.graph.opset_imports
        model.ir_version = min(model.ir_version, NEWEST_RUNNABLE_IR)
        if "ai.onnx" in imports:
            imports[""] = max(imports.pop("ai.onnx"), imports.get("", 0))
        version = imports.setdefault("", self.target_version)
        targets = [self.target_version]
        if version > NEWEST_RUNNABLE_OPSET:
            targets.append(NEWEST_RUNNABLE_OPSET)
        for target in targets:
            work = _plan(model, target)
            if isinstance(work, list):
                modified = bool(work) or version != target
                _apply(model, work, target)
                return ir.passes.PassResult(model, modified=modified)
            self.notes.append(f"the model keeps opset {version}, not {target}: {work}")
        return ir.passes.PassResult(model, modified=False)


def _plan(model: ir.Model, target: int) -> list[Apply] | str:
    """Return what is to be done, or the reason why the conversion is impossible."""
    default = model.graph.opset_imports[""]
    work: list[Apply] = []
    for node in model.graph.all_nodes():
        if node.domain != "":
            continue
        version = node.version or default
        step = _plan_node(model, node, version, target)
        if isinstance(step, str):
            return f"node {node.name!r} ({node.op_type}) cannot be converted: {step}"
        if step is not None:
            work.append(step)
    return work


def _plan_node(model: ir.Model, node: ir.Node, version: int, target: int) -> Apply | str | None:
    entry = ADAPTERS.get(node.op_type)
    if version <= target:
        needed = entry is not None and version < entry.until <= target
        return entry.adapt(model, node) if needed and entry is not None else None
    return _lowering_obstacle(node, version, target)


def _lowering_obstacle(node: ir.Node, version: int, target: int) -> str | None:
    """Return why a node of a newer version is not also a node of the older one."""
    from onnx import defs

    if not defs.has(node.op_type, node.domain):
        return "onnx does not know the operator"
    try:
        new = defs.get_schema(node.op_type, version, node.domain)
        old = defs.get_schema(node.op_type, target, node.domain)
    except defs.SchemaError:
        return f"version {target} does not have it"
    if new.since_version == old.since_version:
        return None
    if node.op_type in CHANGED_SINCE and CHANGED_SINCE[node.op_type] > target:
        return f"its meaning changed in version {CHANGED_SINCE[node.op_type]}"
    unknown = [name for name in node.attributes if name not in old.attributes]
    if unknown:
        return f"attribute {unknown[0]} is new since version {target}"
    if len(node.inputs) > old.max_input or len(node.outputs) > old.max_output:
        return f"it has inputs or outputs that are new since version {target}"
    return _type_obstacle(node, old)


def _type_obstacle(node: ir.Node, schema: object) -> str | None:
    """Return which type the older version does not have."""
    from samba_onnx.passes.rewrites.interface import describe_type

    for values, formals in (
        (node.inputs, schema.inputs),  # type: ignore[attr-defined]
        (node.outputs, schema.outputs),  # type: ignore[attr-defined]
    ):
        for position, value in enumerate(values):
            formal = formals[min(position, len(formals) - 1)]
            if value is None or (not value.name and not value.uses()):
                continue
            if value.type is None or describe_type(value) not in formal.types:
                return f"its type {describe_type(value) or 'is not known'} is new"
    return None


CHANGED_SINCE: dict[str, int] = {"GroupNormalization": 21, "DFT": 20, "GridSample": 20}
"""Operators whose meaning changed while inputs and attributes look the same."""


def _apply(model: ir.Model, work: list[Apply], target: int) -> None:
    for step in work:
        step()
    for node in model.graph.all_nodes():
        if node.domain == "":
            node.version = None
    for graph in (model.graph, *model.graph.subgraphs()):
        if "" in graph.opset_imports:
            graph.opset_imports[""] = target
    for function in model.functions.values():
        function.opset_imports.setdefault("", target)
    model.graph.opset_imports[""] = target
