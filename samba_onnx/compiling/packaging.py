"""Writes a compiled graph as a PEF: stage files, weights, reference sample, log."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir as ir

from samba_onnx.comparing.sample import Sample
from samba_onnx.errors import InternalError, InvalidModelError, ModelError, PefError, UsageError
from samba_onnx.passes.planning.emission import emit_stage, index_values, is_stored
from samba_onnx.passes.planning.plan import GraphPlan
from samba_onnx.pef import (
    FileRegion,
    WeightEntry,
    WeightsLayout,
    lay_out_weights,
    load_pef,
    render_log,
    write_pef,
)
from samba_onnx.pef.changes import Bound, Change
from samba_onnx.pef.manifest import Manifest, Symbol
from samba_onnx.pef.sources import Source
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.safety.files import atomic_output, printable, restored_on_failure
from samba_onnx.safety.preparing import refuse_unpreparable

KEPT_KINDS = (SymbolKind.WEIGHT, SymbolKind.CONSTANT)
"""Kinds of symbols whose content is inside the PEF."""


@dataclass(frozen=True)
class PlannedGraph:
    """A rewritten model with its plan."""

    model: ir.Model
    """Its initializers are read one at a time."""
    plan: GraphPlan
    changes: tuple[Change, ...] = ()
    """What a run would save if the target ran what it refuses."""
    bound: Bound | None = None
    """What a run would cost without fallbacks; None where it has none, or where nobody knows."""


@dataclass(frozen=True)
class Trial:
    """How the stages of a PEF are prepared before it is complete."""

    custom_ops: tuple[str, ...] = ()
    """Absolute paths of libraries with operators of custom domains."""


def pef_destination(
    model: str | os.PathLike[str] | onnx.ModelProto, output: str | os.PathLike[str] | None
) -> Path:
    """Return where the PEF of a model goes.

    Args:
        model: A path to an ONNX model, or the model in memory.
        output: The path that is asked for; None for one beside the model.

    Raises:
        UsageError: A model in memory has no name to derive a path from.
    """
    if output is not None:
        return Path(output)
    if not isinstance(model, str | os.PathLike):
        raise UsageError(
            "no output path was given: a model in memory has no name to derive it from"
        )
    return Path(model).with_suffix(".pef")


def package(
    destination: Path,
    graphs: Sequence[PlannedGraph],
    manifest: Manifest,
    sample: Sample,
    progress: Callable[[str], None],
    *,
    residents: Mapping[str, Source] | None = None,
    trial: Trial | None = None,
) -> None:
    """Write a PEF and its log, in whole or not at all.

    Args:
        destination: Where the PEF goes; the log goes beside it, as ``.pef.log``.
        graphs: The graphs of the PEF.
        manifest: All records but members, stored ranges and the reference sample.
        sample: The reference sample, or the reason why there is none.
        progress: Called with the name of each step before it begins.
        residents: What the PEF is to load into residents, by name; the others are loaded by the
            program that runs it.
        trial: How a child process tries whether the engine can prepare every stage; None for no trial.

    Raises:
        ExecutionError: The engine cannot prepare a stage.
        ModelLimitError: Preparing them takes too much time or memory.
        OutputError: A file cannot be written.
        ModelFileError: The model's weights cannot be read any more.
        InvalidModelError: What was compiled is no model that a runtime takes.
        InternalError: What was written cannot be read back.
    """
    weights = _lay_out(manifest, graphs, residents or {})
    manifest = _with_stored(manifest, weights)
    stages: dict[str, bytes] = {}
    for planned in graphs:
        stages |= _stage_files(planned, manifest, weights)
    manifest = dataclasses.replace(
        manifest, reference=sample.record, notes=manifest.notes + sample.notes
    )
    progress("write")
    log = f"{destination}.log"
    with restored_on_failure(log):
        write_pef(
            destination,
            manifest,
            weights=weights,
            stages=stages,
            reference=sample.content,
            review=functools.partial(_review, log, trial=trial),
        )


def _review(log: str, path: str, *, trial: Trial | None) -> None:
    """Look at a PEF that is complete, and write its log.

    The log is complete before the PEF appears: a disk that is full by then leaves both as they were.
    """
    # Before the trial: a file that cannot be read needs no child process that prepares it.
    text = _read_back(path)
    if trial is not None:
        refuse_unpreparable(path, custom_ops=trial.custom_ops)
    with atomic_output(log) as file:
        file.write(text.encode())


def _read_back(path: str) -> str:
    """Read a PEF as whoever runs it will, all of it but the content of large weights.

    Returns:
        Its log.
    """
    try:
        with load_pef(path) as pef:
            for number in pef.manifest.stages():
                pef.stage_model(number)
            return render_log(pef.manifest)
    except PefError as error:
        # The path is that of a draft, which is gone by the time that somebody reads this.
        reason = str(error).replace(f"{printable(path)}: ", "")
        if isinstance(error.__cause__, ModelError):
            # Constants that only the compiler computes may be as wrong as those that a file states: a range
            # whose step is 0, a shape of a hundred dimensions. Those of a file were refused before.
            raise InvalidModelError(
                f"it compiles to what no runtime takes: {reason}; correct the model, nothing was written"
            ) from error
        raise InternalError(
            f"the PEF that was compiled cannot be read back: {reason}; nothing was written"
        ) from error


def _lay_out(
    manifest: Manifest, graphs: Sequence[PlannedGraph], residents: Mapping[str, Source]
) -> WeightsLayout:
    """Decide what is kept in the weights member."""
    values: dict[str, ir.Value] = {}
    # Of several graphs the first one's value counts, as its symbol does in the manifest.
    for planned in reversed(graphs):
        # Names of other values are a graph's own: another graph may call a symbol so.
        symbols = {symbol.name for symbol in planned.plan.symbols}
        named = index_values(planned.model.graph)
        values |= {name: value for name, value in named.items() if name in symbols}
    outputs = {name for planned in graphs for name in planned.plan.graph.outputs}
    computed = {
        name for stage in manifest.stages().values() for name in (*stage.inputs, *stage.outputs)
    }
    entries = []
    for symbol in manifest.symbols:
        if symbol.name in residents:
            # Of a resident in shards the whole is kept, of which every RDU takes its part.
            whole = symbol.shape if symbol.sharded is None else symbol.sharded.shape
            shape = tuple(size for size in whole or () if isinstance(size, int))
            entries.append(WeightEntry(symbol.name, symbol.type, shape, residents[symbol.name]))
            continue
        value = values.get(symbol.name)
        tensor = None if value is None else value.const_value
        if value is not None and value.is_graph_input() and tensor is None:
            continue  # a resident; passes may have found that nothing depends on it
        if symbol.kind in KEPT_KINDS and tensor is None and symbol.name not in computed:
            raise InternalError(f"weight {symbol.name!r} has no content: please report this")
        if tensor is not None and _is_kept(symbol, tensor, outputs):
            entries.append(_entry(symbol, tensor))
    return lay_out_weights(entries)


def _is_kept(symbol: Symbol, tensor: ir.TensorProtocol, outputs: set[str]) -> bool:
    """Return whether a tensor belongs into the weights member: all but small ones and strings.

    Small ones go there too where no stage file has a place for them: the default of an input, and
    a weight that is an output as well.
    """
    if tensor.dtype == ir.DataType.STRING or symbol.bytes is None:
        return False
    if symbol.kind == SymbolKind.INPUT or symbol.name in outputs:
        return True
    return symbol.kind in KEPT_KINDS and is_stored(tensor)


def _entry(symbol: Symbol, tensor: ir.TensorProtocol) -> WeightEntry:
    shape = tuple(tensor.shape.numpy())
    return WeightEntry(symbol.name, symbol.type, shape, weight_source(tensor))


def weight_source(tensor: ir.TensorProtocol) -> Source:
    """Say where a weight's bytes come from, so that they are copied without being loaded.

    Args:
        tensor: An initializer's content.

    Returns:
        The file's region for a tensor that is still in the model's file; a function that computes
        the bytes for one that a pass derives when it is needed; its array otherwise.
    """
    region = getattr(tensor, "region", None)
    if isinstance(region, FileRegion):
        return region
    if isinstance(tensor, ir.LazyTensor):
        return lambda: (tensor.tobytes(),)
    # Files have numbers of fewer than 8 bits packed, and numpy's arrays have not.
    return tensor.tobytes() if tensor.dtype.bitwidth < 8 else tensor.numpy()


def _with_stored(manifest: Manifest, weights: WeightsLayout) -> Manifest:
    symbols = tuple(
        dataclasses.replace(symbol, stored=weights.stored.get(symbol.name))
        for symbol in manifest.symbols
    )
    return dataclasses.replace(manifest, symbols=symbols)


def _stage_files(
    planned: PlannedGraph, manifest: Manifest, weights: WeightsLayout
) -> dict[str, bytes]:
    model, records = planned.model, manifest.stages()
    values = index_values(model.graph)
    files = {}
    for number, group in planned.plan.stages:
        stage = records[number]
        proto = emit_stage(model, values, group.nodes, stage, weights.stored)
        # Maps of protobuf have no order of their own, and the same model
        # should give the same bytes.
        files[stage.member] = proto.SerializeToString(deterministic=True)
    return files
