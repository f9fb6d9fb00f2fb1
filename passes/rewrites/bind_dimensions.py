"""Make dynamic dimensions static: to the sizes that are stated, and to an assumed one elsewhere."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

import onnx_ir as ir

from samba_onnx.errors import UsageError
from samba_onnx.passes.rewrites.interface import Dimension, dimensions
from samba_onnx.passes.rewrites.rewriting import each_graph
from samba_onnx.program.dataflow import each_node

Shapes = Mapping[str, tuple[Dimension, ...]]


ASSUMED: Final = "samba_onnx.assumed"
"""Key in ``Model.meta`` of the dimensions that nobody stated a size of: the size that each was given, by its
name, or its place (``x[0]``) where it has none."""

LENGTHS: Final = "samba_onnx.lengths"
"""Key in ``Model.meta`` of sizes that are assumed instead of the one for all: by name or place, as above."""

DEFAULT_SHAPE: Final = "samba_onnx.default_shape"
"""Key in ``Value.meta`` of the sizes that the default of an input has, which passes do not see."""

BOUND: Final = "samba_onnx.bound"
"""Key in ``Model.meta`` of the sizes that names were given."""


class BindDimensionsPass(ir.passes.InPlacePass):
    """Give dynamic dimensions of the inputs static sizes.

    1. ``dims`` sets every dimension of that name, wherever it occurs in the model and its functions.
    2. ``input_shapes`` sets the dimensions of one input; a name or None in it leaves that
       dimension as it is. A named dimension that it sets is set everywhere. An empty name stands
       for the only input.
    3. ``assumed``, where it is no None, sets every other dimension of the inputs, unless the default
       of an input knows better, or ``AssumeLengthsPass`` found a length. A name that is a sum of two
       others, as ``past + tokens``, gets the sum of their sizes. An input of unknown rank stays as it is, and so do dimensions whose names
       stand in a type of sequences or optionals: their elements may be of different sizes.
    4. Outputs keep their names: models that name the dimensions of an output after those of an
       input are often wrong, and inference knows better. ``BindOutputsPass`` sets what is left.
    """

    def __init__(
        self, dims: Mapping[str, int], input_shapes: Shapes, assumed: int | None = None
    ) -> None:
        """Take the sizes that the user states.

        Args:
            dims: Sizes by name of dimension.
            input_shapes: Shapes by name of input.
            assumed: Size of every dimension that these leave dynamic; None leaves them so.
        """
        super().__init__()
        self.dims = dims
        self.input_shapes = input_shapes
        self.assumed = assumed

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Bind the dimensions.

        Raises:
            UsageError: An unknown name, a size below 1, or sizes that contradict each other.
        """
        # Case 2.
        shapes = _named_shapes(model, self.input_shapes)
        sizes = self._sizes(model, shapes)
        modified = False
        for name, shape in shapes.items():
            value = next(value for value in model.graph.inputs if value.name == name)
            modified |= _set_static(value, shape)
        # Case 3. After what is stated, so that it only fills gaps.
        sums = _sums(model)
        if self.assumed is not None:
            modified |= _assume(model, self.assumed, sizes, {*sums, *_names_in_containers(model)})
        _add(sums, sizes, model)
        # Case 4. An output that is an input or a constant has no node whose inference could know
        # better.
        computed = {value for value in model.graph.outputs if value.producer() is not None}
        for value in _all_values(model):
            if value not in computed:
                modified |= _set_named(value, sizes)
        # BindOutputsPass runs after inference and sets what is left.
        model.meta[BOUND] = sizes
        return ir.passes.PassResult(model, modified=modified)

    def _sizes(self, model: ir.Model, shapes: Shapes) -> dict[str, int]:
        """Return the sizes by dimension name, of both options together."""
        known = sorted(
            {
                dim
                for value in model.graph.inputs
                for dim in dimensions(value.shape) or ()
                if isinstance(dim, str)
            }
        )
        # A misspelt name would leave the dimension dynamic, and the model on the CPU, without a
        # word.
        for name, size in self.dims.items():
            if name not in known:
                has = f"it has {', '.join(known)}" if known else "it has no named dimensions"
                raise UsageError(f"the model's inputs have no dimension {name!r}; {has}")
            if size < 1:
                raise UsageError(f"dimension {name!r} must be at least 1, not {size}")
        # Case 1.
        sizes = dict(self.dims)
        inputs = {value.name: value for value in model.graph.inputs}
        for name, shape in shapes.items():
            if name not in inputs:
                has = ", ".join(str(known) for known in inputs) or "none"
                raise UsageError(f"the model has no input {name!r}; it has {has}")
            # Names that input_shapes sets count as stated, and must agree with --dim.
            _collect(name, dimensions(inputs[name].shape), shape, sizes)
        return sizes


class BindOutputsPass(ir.passes.InPlacePass):
    """Give dimensions of the outputs that inference did not find the sizes of their names.

    1. Only after ``BindDimensionsPass``, and only names that it gave a size.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Bind the dimensions."""
        sizes: dict[str, int] = model.meta.get(BOUND, {})
        changed = [_set_named(value, sizes) for value in model.graph.outputs]
        return ir.passes.PassResult(model, modified=any(changed))


def _named_shapes(model: ir.Model, shapes: Shapes) -> dict[str, tuple[Dimension, ...]]:
    """Return the stated shapes with the only input's name in place of an empty one."""
    if "" not in shapes:
        return dict(shapes)
    names = [str(value.name) for value in model.graph.inputs]
    if len(names) != 1:
        raise UsageError(
            f"a shape without the name of an input is for models with one; this one has "
            f"{len(names)} ({', '.join(names)}): say which is meant, as in {(names or ['x'])[0]}=..."
        )
    if names[0] in shapes and shapes[names[0]] != shapes[""]:
        raise UsageError(f"input {names[0]!r} is given two shapes")
    return {name or names[0]: shape for name, shape in shapes.items()}


def _assume(
    model: ir.Model, size: int, sizes: dict[str, int], others: Collection[Dimension]
) -> bool:
    """Set the nameless dimensions of all inputs, and add the names that have no size to ``sizes``, but for others."""
    assumed: dict[str, int] = {}
    lengths: Mapping[str, int] = model.meta.get(LENGTHS, {})
    modified = False
    # The default of an input knows its sizes, and those of other inputs that have the same names.
    for value in sorted(model.graph.inputs, key=lambda value: DEFAULT_SHAPE not in value.meta):
        old = dimensions(value.shape)
        if old is None or _is_container(value):
            continue
        default = value.meta.get(DEFAULT_SHAPE)
        # A dimension without a name is told by its input and axis in reports.
        names = [f"{value.name}[{axis}]" if dim is None else dim for axis, dim in enumerate(old)]
        known = default or tuple(lengths.get(str(name), size) for name in names)
        for axis, dim in enumerate(old):
            new = names[axis]
            if dim in others or isinstance(new, int) or new in sizes:
                continue
            # What the default of an input says is known and not assumed.
            if default is None:
                assumed[new] = known[axis]
            if isinstance(dim, str):
                sizes[dim] = known[axis]
        if None in old:
            value.shape = ir.Shape([known[i] if dim is None else dim for i, dim in enumerate(old)])
            modified = True
    model.meta[ASSUMED] = assumed
    return modified


_SUM: Final = re.compile(r"\s*(\w+)\s*\+\s*(\w+)\s*")
"""A name that exporters give to the sum of two dimensions, or of one and a number."""


def _sums(model: ir.Model) -> dict[str, tuple[str, str]]:
    """Return the names of dimensions that are sums of other names, or of one and a number, with the terms."""
    names = {
        dim
        for value in model.graph.inputs
        for dim in dimensions(value.shape) or ()
        if isinstance(dim, str)
    }
    matches = {name: _SUM.fullmatch(name) for name in names}
    return {
        name: (match[1], match[2])
        for name, match in matches.items()
        if match and all(term in names or term.isdigit() for term in match.groups())
    }


def _add(sums: Mapping[str, tuple[str, str]], sizes: dict[str, int], model: ir.Model) -> None:
    """Give sums the sizes that follow from their terms; one of an assumed term is assumed, too."""
    assumed: dict[str, int] = model.meta.get(ASSUMED, {})
    for name in sorted(sums.keys() - sizes.keys()):
        terms = [int(term) if term.isdigit() else sizes.get(term) for term in sums[name]]
        known = [term for term in terms if term is not None]
        if len(known) == len(terms):
            sizes[name] = sum(known)
            if not assumed.keys().isdisjoint(sums[name]):
                assumed[name] = sizes[name]


def taken_text(assumed: Mapping[str, int]) -> str:
    """Return ``batch is taken as 1, tokens as 128``, with four names at most.

    Args:
        assumed: Sizes by name or place.
    """
    by_size: dict[int, list[str]] = {}
    for name in list(assumed)[:4]:
        by_size.setdefault(assumed[name], []).append(name)
    (first, names), *others = by_size.items()
    verb = "is" if len(names) == 1 else "are"
    texts = [f"{', '.join(names)} {verb} taken as {first}"]
    texts += [f"{', '.join(more)} as {size}" for size, more in others]
    return ", ".join(texts) + (", ..." if len(assumed) > 4 else "")


def _is_container(value: ir.Value) -> bool:
    return value.type is not None and not isinstance(value.type, ir.TensorType)


def _names_in_containers(model: ir.Model) -> set[Dimension]:
    """Return the names of dimensions of what sequences and optionals hold."""
    return {
        dim
        for value in _all_values(model)
        if _is_container(value)
        for dim in dimensions(value.shape) or ()
        if isinstance(dim, str)
    }


def _set_named(value: ir.Value, sizes: Mapping[str, int]) -> bool:
    """Set the dimensions of a value whose names have a size."""
    old = dimensions(value.shape)
    if old is None or not any(isinstance(dim, str) and dim in sizes for dim in old):
        return False
    value.shape = ir.Shape([sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in old])
    return True


def _collect(
    name: str,
    old: tuple[Dimension, ...] | None,
    new: tuple[Dimension, ...],
    sizes: dict[str, int],
) -> None:
    """Add the sizes that one input's new shape gives to named dimensions; check the others."""
    if old is None:
        return
    if len(old) != len(new):
        raise UsageError(f"input {name!r} has {len(old)} dimensions, the given shape {len(new)}")
    for axis, (before, size) in enumerate(zip(old, new, strict=True)):
        if not isinstance(size, int):
            continue
        if size < 1:
            raise UsageError(f"dimension {axis} of input {name!r} must be at least 1, not {size}")
        if isinstance(before, int) and before != size:
            raise UsageError(f"dimension {axis} of input {name!r} is {before}, not {size}")
        if isinstance(before, str) and sizes.setdefault(before, size) != size:
            raise UsageError(f"dimension {before!r} is given two sizes, {sizes[before]} and {size}")


def _set_static(value: ir.Value, shape: tuple[Dimension, ...]) -> bool:
    """Set the nameless dimensions of one input."""
    old = dimensions(value.shape) or (None,) * len(shape)
    new = [
        size if isinstance(size, int) and not isinstance(dim, str) else dim
        for dim, size in zip(old, shape, strict=True)
    ]
    value.shape = ir.Shape(new)
    return tuple(new) != tuple(old)


def _all_values(model: ir.Model) -> list[ir.Value]:
    values: list[ir.Value] = []
    for graph in each_graph(model):
        values += [*graph.inputs, *graph.outputs]
        values += [output for node in graph for output in node.outputs]
    for function in model.functions.values():
        values += [output for node in each_node(function) for output in node.outputs]
    return values
