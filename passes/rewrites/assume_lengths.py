"""Assume a useful length where a dynamic dimension counts the elements of a sequence, and nobody states a size."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping
from typing import Final

import onnx_ir as ir
from onnx_ir.passes.common import TopologicalSortPass

from samba_onnx.errors import ModelError
from samba_onnx.facts.operators import Kind, facts
from samba_onnx.passes.rewrites.bind_dimensions import LENGTHS, BindDimensionsPass, Shapes
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.inline_functions import InlineFunctionsPass
from samba_onnx.passes.rewrites.interface import dimensions
from samba_onnx.passes.rewrites.lift_constants import LiftConstantsPass
from samba_onnx.passes.rewrites.refuse_impossible import RefuseImpossiblePass
from samba_onnx.passes.rewrites.signal_sizes import FRAMES, signal_sizes

DEFAULT_LENGTH: Final = FRAMES
"""Elements of a sequence where no table of positions says how many there may be."""

_LONGEST: Final = 1024
"""Elements of a sequence at most: work and activations of attention grow with its square."""

_SEQUENCE: Final = re.compile(r"seq|token|length|(^|_)len|time|frame|word|char", re.IGNORECASE)
_CACHE: Final = re.compile(r"past|cache", re.IGNORECASE)
_TOTAL: Final = re.compile(r"total|past.*\+|mask", re.IGNORECASE)
_ENCODER: Final = re.compile(r"encoder|enc_|src", re.IGNORECASE)
_POSITIONS: Final = re.compile(r"position|pos_?emb|pos_?enc|(^|\.|_)wpe(\.|$)", re.IGNORECASE)
_RECURRENT: Final = frozenset({"GRU", "LSTM", "RNN"})
_INTEGERS: Final = frozenset({ir.DataType.INT32, ir.DataType.INT64})


class AssumeLengthsPass(ir.passes.InPlacePass):
    """Note lengths of sequences for ``BindDimensionsPass``, which assumes another size elsewhere.

    1. A dimension is that of a sequence by its name, or as the last one of an input whose numbers choose rows of
       a table.
    2. Its length is that of the smallest table of positions, rounded down to a power of two (some tables have a few
       rows more than positions), or ``DEFAULT_LENGTH``.
    3. With a cache of keys and values, a run reads one element, and the others are in the cache.
    4. Sides of images and samples of sound have the sizes of ``signal_sizes``.
    5. Lengths that make a node impossible are none: the model stays as it was without this pass.
    """

    def __init__(self, dims: Mapping[str, int], input_shapes: Shapes, assumed: int | None) -> None:
        """Take what the user states, which counts before any assumption.

        Args:
            dims: Sizes by name of dimension.
            input_shapes: Shapes by name of input.
            assumed: Size of dimensions that are no sequence's; None where all stay dynamic.
        """
        super().__init__()
        self.dims, self.input_shapes, self.assumed = dims, input_shapes, assumed

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Note the lengths, if there are any that work."""
        unchanged = ir.passes.PassResult(model, modified=False)
        if self.assumed is None:
            return unchanged
        lengths = _lengths(model)
        if not lengths:
            return unchanged
        model.meta[LENGTHS] = lengths
        if not self._works(model):
            del model.meta[LENGTHS]
        return unchanged

    def _works(self, model: ir.Model) -> bool:
        """Return whether no node is impossible with these lengths."""
        trial = model.clone()
        trial.meta[LENGTHS] = model.meta[LENGTHS]
        # As the pipeline goes on: what an impossible node is told by are inferred shapes.
        steps: tuple[ir.passes.PassBase, ...] = (
            BindDimensionsPass(self.dims, self.input_shapes, self.assumed),
            InlineFunctionsPass(),
            TopologicalSortPass(),
            LiftConstantsPass(),
            InferShapesPass(),
            RefuseImpossiblePass(),
        )
        try:
            for step in steps:
                step(trial)
        except ModelError:
            return False
        return True


def _lengths(model: ir.Model) -> dict[str, int]:
    """Return lengths by the name of a dimension, or by its place, as ``x[1]``, where it has no name."""
    places = _places(model)
    signals = {
        name: size
        for value in model.graph.inputs
        for name, size in signal_sizes(value)
        if not _is_mask(value) and not _is_cache(name, value)
    }
    sequences = [name for name in _sequences(model, places) if name not in signals]
    return _sequence_lengths(model, places, sequences) | signals


def _sequence_lengths(
    model: ir.Model, places: Mapping[str, ir.Value], sequences: list[str]
) -> dict[str, int]:
    """Return lengths of sequences of tokens, frames and steps."""
    if not sequences:
        return {}
    length = positions(model) or DEFAULT_LENGTH
    roles = _roles(sequences, places)
    # One element is read in a run where there is a cache, so that all together are as many as there are positions.
    if LengthRole.CACHED not in roles.values():
        return dict.fromkeys(sequences, length)
    sizes = {LengthRole.READ: 1, LengthRole.CACHED: length - 1, LengthRole.WHOLE: length}
    return {name: sizes[role] for name, role in roles.items()}


def _places(model: ir.Model) -> dict[str, ir.Value]:
    """Return the dynamic dimensions of inputs, each with an input that has it."""
    return {
        _key(value, axis, dim): value
        for value in model.graph.inputs
        for axis, dim in enumerate(dimensions(value.shape) or ())
        if not isinstance(dim, int)
    }


def _sequences(model: ir.Model, places: Mapping[str, ir.Value]) -> list[str]:
    """Return the dimensions that count elements of a sequence, by name or by use."""
    chosen = {
        place for value in model.graph.inputs if _chooses_rows(value) for place in _last(value)
    }
    chosen |= {place for value in model.graph.inputs for place in _steps(value)}
    # A mask has as many elements as the indices, and chooses nothing.
    if any("[" in place for place in chosen):
        chosen |= {
            place for value in model.graph.inputs if _is_mask(value) for place in _last(value)
        }
    return [name for name in places if name in chosen or _is_named(name, places[name])]


class LengthRole(enum.Enum):
    """What the length of a sequence counts, in a model with a cache of keys and values."""

    READ = "read"
    """Elements that a run reads."""
    CACHED = "cached"
    """Elements that the cache holds before it."""
    WHOLE = "whole"
    """Both together, as in a mask; or what an encoder reads, which no cache is of."""


def length_roles(model: ir.Model) -> dict[str, LengthRole]:
    """Return what dynamic dimensions of inputs count, by name or by place, as ``x[1]``; batches are left out.

    Args:
        model: With the types of its inputs. Where there is no cache, nothing is ``CACHED``.
    """
    places = _places(model)
    return _roles(_sequences(model, places), places)


def _roles(sequences: list[str], places: Mapping[str, ir.Value]) -> dict[str, LengthRole]:
    caches = {name for name, value in places.items() if _is_cache(name, value)}
    roles: dict[str, LengthRole] = {}
    for name in sequences:
        whole = _ENCODER.search(name) or _TOTAL.search(name) or _is_mask(places[name])
        roles[name] = LengthRole.WHOLE if whole else LengthRole.READ
    # Sums that caches are named by follow from their terms.
    cached = [name for name in caches if not _TOTAL.search(name)]
    return roles | dict.fromkeys(cached, LengthRole.CACHED)


def _is_named(name: str, value: ir.Value) -> bool:
    """Return whether a dimension is called as that of a sequence."""
    # Names of dimensions alone: an input that is called `tokens` has a batch, too. Frames of a video, which have
    # rows and columns, are a batch to every convolution.
    return "[" not in name and len(value.shape or ()) < 4 and bool(_SEQUENCE.search(name))


def _key(value: ir.Value, axis: int, dim: object) -> str:
    return dim if isinstance(dim, str) else f"{value.name}[{axis}]"


def _last(value: ir.Value) -> Iterator[str]:
    """Yield the last dimension of an input of several, if it is dynamic."""
    shape = dimensions(value.shape) or ()
    # Of one dimension it may as well be the batch.
    if len(shape) > 1 and not isinstance(shape[-1], int):
        yield _key(value, len(shape) - 1, shape[-1])


def _steps(value: ir.Value) -> Iterator[str]:
    """Yield the dimension of an input that recurrent layers go along, if it is dynamic."""
    shape = dimensions(value.shape) or ()
    for node, position in value.uses():
        perm = node.attributes["perm"].as_ints() if "perm" in node.attributes else ()
        swapped = tuple(perm[:2]) == (1, 0)
        axis = 1 if swapped else 0
        behind = node.outputs[0].uses() if swapped else [(node, position)]
        if len(shape) != 3 or isinstance(shape[axis], int):
            continue
        # Layers whose batch comes first say so; exporters transpose instead.
        if any(
            n.op_type in _RECURRENT and p == 0 and "layout" not in n.attributes for n, p in behind
        ):
            yield _key(value, axis, shape[axis])


def _is_mask(value: ir.Value) -> bool:
    return "mask" in (value.name or "").lower()


def _is_cache(name: str, value: ir.Value) -> bool:
    """Return whether a dimension counts what a cache holds: by its name, or that of a nameless one's input."""
    if value.dtype in _INTEGERS or _is_mask(value):
        return False
    if name.endswith("]"):
        # Keys and values are [batch, heads, cached, head size]: the batch has no name either.
        return bool(_CACHE.search(name)) and not name.endswith("[0]")
    return bool(_CACHE.search(name))


def _chooses_rows(value: ir.Value) -> bool:
    """Return whether an input's numbers are indices of a table of the model."""
    # Of any type: Keras takes indices as float32, and converts them.
    seen, pending = {value}, [value]
    while pending:
        for node, position in pending.pop().uses():
            if node.op_type == "Gather" and position == 1 and _table(node) is not None:
                return True
            row = facts(node.op_type, node.domain)
            # Keras adds the rows to indices below zero, others clip or convert them.
            if row is not None and row.kind in (Kind.ELEMENTWISE, Kind.VIEW):
                pending += [output for output in node.outputs if output not in seen]
                seen.update(node.outputs)
    return False


def _table(node: ir.Node) -> tuple[int, ...] | None:
    """Return the shape of the table whose rows a Gather chooses; None where it chooses something else."""
    data = node.inputs[0]
    if (
        data is None
        or data.const_value is None
        or ("axis" in node.attributes and node.attributes["axis"].as_int())
    ):
        return None
    shape = tuple(data.const_value.shape.numpy())
    return shape if len(shape) == 2 and shape[0] > 1 else None


def positions(model: ir.Model) -> int:
    """Return for how many positions the smallest table of them has rows, as a power of two of at most 1,024.

    Args:
        model: With the shapes of its weights; 0 where none is a table of positions.
    """
    rows = []
    for name, value in model.graph.initializers.items():
        if value.const_value is None or not _POSITIONS.search(name):
            continue
        shape = tuple(value.const_value.shape.numpy())
        if value.const_value.dtype in _INTEGERS:
            # A buffer of the positions themselves, as [1, 512].
            rows.append(shape[-1] if shape and shape[-1] > 1 else 0)
        elif len(shape) in (2, 3) and (len(shape) == 2 or shape[0] == 1):
            rows.append(shape[-2])
    least = min((count for count in rows if count > 1), default=0)
    return min(1 << (least.bit_length() - 1), _LONGEST) if least else 0
