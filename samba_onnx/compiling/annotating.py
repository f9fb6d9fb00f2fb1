"""Writes an ONNX model once more, each node with its placement, stage and reason as metadata.

Viewers of graphs show the metadata of nodes; so the question "which part of my model is that?" is
answered where the model is looked at.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import onnx
import onnx_ir as ir

from samba_onnx.compiling.compiler_settings import (
    compiler_settings,
    pipeline_options,
    with_fixed_inputs,
)
from samba_onnx.compiling.options import CompileOptions
from samba_onnx.compiling.packaging import PlannedGraph
from samba_onnx.compiling.planning import Progress, plan_sizes, silent
from samba_onnx.errors import UsageError
from samba_onnx.loading import LoadedModel, fix_inputs, load_model, onnx_program
from samba_onnx.passes.planning.partitioning import Home
from samba_onnx.pef.manifest import FallbackNode
from samba_onnx.program.dataflow import each_node, name_of, subgraphs
from samba_onnx.safety.all_tensors import all_tensors
from samba_onnx.safety.files import atomic_output, printable

PLACEMENT: Final = "samba.placement"
"""Where a node runs: ``rdu``, ``cpu``, ``rdu, cpu`` for one that became nodes on both, or ``none``."""
SECTION: Final = "samba.section"
"""Ids and names of the sections and fallbacks, as ``3 (layers.0)``."""
REASON: Final = "samba.reason"
"""Why a node, or a part of it, runs on the CPU; or why it runs nowhere."""
HINT: Final = "samba.hint"
"""What the user can do about that."""
TARGET: Final = "samba.target"
"""Key of the model itself: the name of the target."""

GONE: Final = (
    "nothing of it is left after conversion: it was computed in advance, merged with another node or "
    "has no effect"
)
_ORIGIN: Final = "samba.origin"
_NODE_METADATA_VERSION: Final = 10
"""IR version that brought metadata to nodes."""


@dataclass(frozen=True)
class NodeAnnotation:
    """What became of one node of the original."""

    homes: tuple[Home, ...]
    """Where its parts run; empty if nothing of it is left."""
    stages: tuple[str, ...]
    """Id and name of the sections and fallbacks that they are in."""
    reasons: tuple[FallbackNode, ...]
    """Why parts of it run on the CPU."""

    def metadata(self) -> dict[str, str]:
        """Return the annotation as metadata of a node; keys without a value are left out."""
        reasons = dict.fromkeys(reason.reason for reason in self.reasons)
        hints = dict.fromkeys(reason.hint for reason in self.reasons)
        entries = {
            PLACEMENT: ", ".join(home.value for home in self.homes) or "none",
            SECTION: ", ".join(self.stages),
            REASON: "; ".join(reasons) if self.homes else GONE,
            HINT: "; ".join(hint for hint in hints if hint),
        }
        return {key: text for key, text in entries.items() if text}


def annotate(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    options: CompileOptions | None = None,
    progress: Progress = silent,
) -> tuple[NodeAnnotation, ...]:
    """Write a model with what became of each of its nodes.

    Args:
        model: Path of an ONNX model.
        output: The model to write; in the folder of the original if that has data beside it.
        options: What the user decides; of several sizes, the first counts. None for all defaults.
        progress: Called with the name of each step before it begins.

    Returns:
        The annotations of the main graph's nodes, in their order in the file.

    Raises:
        ModelError: The model cannot be used.
        UsageError: An option contradicts the model, or its data are not where the output is.
        OutOfDeviceMemoryError: The model does not fit into the target's memory.
        OutputError: The file cannot be written.
    """
    chosen = options or CompileOptions()
    settings = compiler_settings(chosen, progress)
    first = pipeline_options(chosen, settings.target)[:1]
    loaded = load_model(model)
    _refuse_converted(loaded)
    # The file once more: what is loaded is rewritten, and written is the user's own model. Its data
    # stay beside it.
    proto = onnx.load(model, load_external_data=False)
    _refuse_far_away(proto, Path(model), Path(output))
    # Marked before anything changes, while the nodes are those of the file.
    names, fixed = _mark(loaded.model), fix_inputs(loaded.model, chosen.sizes.constants)
    sizes = with_fixed_inputs(first, fixed, loaded.model.graph.inputs)
    planned = plan_sizes(lambda: onnx_program(loaded), sizes, loaded.summary, settings)
    fates = _fates(planned.graphs[0], names)
    progress("annotate")
    annotations = _describe_all(proto, fates, settings.target.summary.name)
    with atomic_output(output) as file:
        file.write(proto.SerializeToString())
    return annotations


@dataclass(frozen=True)
class _Fate:
    """What one node after conversion is."""

    home: Home
    stage: str
    reason: FallbackNode | None


def _mark(model: ir.Model) -> dict[str, str]:
    """Give every node of the model, those of subgraphs too, the name of a value of the main graph.

    Returns:
        The mark of each value of the main graph.
    """
    names = {}
    for node in model.graph:
        # By its first output: ONNX asks for names of values that are unique, and for none of nodes.
        mark = next((value.name for value in node.outputs if value.name), "")
        names.update({value.name: mark for value in node.outputs if value.name})
        node.metadata_props[_ORIGIN] = mark
        # What a subgraph became is told of the node that has it: only nodes of
        # the main graph are shown.
        for graph in subgraphs(node):
            for inner in each_node(graph):
                inner.metadata_props[_ORIGIN] = mark
    return names


def _fates(graph: PlannedGraph, names: Mapping[str, str]) -> dict[str, list[_Fate]]:
    """Return the nodes after conversion by the mark of the original that they come from."""
    records = {s.id: s for s in (*graph.plan.sections, *graph.plan.fallbacks)}
    reasons = {fallback.id: fallback.reasons for fallback in graph.plan.fallbacks}
    fates: dict[str, list[_Fate]] = {}
    for number, group in graph.plan.stages:
        stage = f"{number} ({records[number].name})"
        causes: Sequence[FallbackNode | None] = reasons.get(number, (None,) * len(group.nodes))
        for node, reason in zip(group.nodes, causes, strict=True):
            fate = _Fate(group.home, stage, reason)
            for mark in _marks(node, names):
                fates.setdefault(mark, []).append(fate)
    return fates


def _marks(node: ir.Node, names: Mapping[str, str]) -> Iterable[str]:
    """Return the originals of a node: those that it was made of, and those whose values it has."""
    # A pass may make a node that has no mark, and give its outputs the names that were there.
    marks = [names[name_of(value)] for value in node.outputs if name_of(value) in names]
    return dict.fromkeys([node.metadata_props.get(_ORIGIN, ""), *marks])


def _annotation(node: onnx.NodeProto, fates: Mapping[str, list[_Fate]]) -> NodeAnnotation:
    mark = next((name for name in node.output if name), "")
    known = fates.get(mark, [])
    return NodeAnnotation(
        # Backwards, so that rdu comes before cpu.
        tuple(sorted({fate.home for fate in known}, reverse=True)),
        tuple(dict.fromkeys(fate.stage for fate in known)),
        tuple(fate.reason for fate in known if fate.reason is not None),
    )


def _describe(node: onnx.NodeProto, entries: Mapping[str, str]) -> None:
    """Replace annotations of a node; its other metadata stays."""
    kept = [entry for entry in node.metadata_props if not entry.key.startswith("samba.")]
    rest = {entry.key: entry.value for entry in kept}
    del node.metadata_props[:]
    for key, text in {**rest, **entries}.items():
        node.metadata_props.add(key=key, value=text)


def _describe_all(
    proto: onnx.ModelProto, fates: Mapping[str, list[_Fate]], target: str
) -> tuple[NodeAnnotation, ...]:
    """Annotate all nodes, and say in the model for which target it is and that nodes have metadata."""
    annotations = tuple(_annotation(node, fates) for node in proto.graph.node)
    for node, annotation in zip(proto.graph.node, annotations, strict=True):
        _describe(node, annotation.metadata())
    kept = {entry.key: entry.value for entry in proto.metadata_props}
    onnx.helper.set_model_props(proto, {**kept, TARGET: target})
    proto.ir_version = max(proto.ir_version, _NODE_METADATA_VERSION)
    return annotations


def _refuse_converted(loaded: LoadedModel) -> None:
    """Refuse a model whose nodes are replaced before anything else is done with them."""
    if loaded.converted is not None:
        raise UsageError(
            f"{printable(loaded.path)}: is of an operator set that is converted before anything else, so "
            "that its nodes have no placement; write it in operator set 7 or newer"
        )


def _refuse_far_away(proto: onnx.ModelProto, model: Path, output: Path) -> None:
    """Refuse a place in which references to data beside the model would lead nowhere."""
    outside = any(
        tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in all_tensors(proto)
    )
    if outside and model.absolute().parent.resolve() != output.absolute().parent.resolve():
        raise UsageError(
            f"{printable(output)}: would not find the weights, which are in files beside "
            f"{printable(model)}; write it into the same folder"
        )
