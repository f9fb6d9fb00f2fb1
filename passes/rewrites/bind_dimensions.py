"""Make dynamic dimensions static, as ``--dim`` and ``--input-shape`` say."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from samba_onnx.errors import UsageError
from samba_onnx.passes.rewrites.interface import Dimension, dimensions
from samba_onnx.passes.rewrites.rewriting import each_graph

Shapes = Mapping[str, tuple[Dimension, ...]]


class BindDimensionsPass(ir.passes.InPlacePass):
    """Give dynamic dimensions of the inputs the sizes that the user asked for.

    1. ``dims`` sets every dimension of that name, wherever it occurs in the model.
    2. ``input_shapes`` sets the dimensions of one input; a name or None in it leaves that
       dimension as it is. A named dimension that it sets is set everywhere.
    """

    def __init__(self, dims: Mapping[str, int], input_shapes: Shapes) -> None:
        """Keep the user's sizes.

        Args:
            dims: Sizes by name of dimension.
            input_shapes: Shapes by name of input.
        """
        super().__init__()
        self.dims = dims
        self.input_shapes = input_shapes

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Bind the dimensions.

        Raises:
            UsageError: An unknown name, a size below 1, or sizes that contradict each other.
        """
        if not self.dims and not self.input_shapes:
            return ir.passes.PassResult(model, modified=False)
        sizes = self._sizes(model)
        modified = False
        for name, shape in self.input_shapes.items():
            value = next(value for value in model.graph.inputs if value.name == name)
            modified |= _set_static(value, shape)
        for value in _all_values(model):
            old = dimensions(value.shape)
            if old is not None and any(isinstance(dim, str) and dim in sizes for dim in old):
                new = [sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in old]
                value.shape = ir.Shape(new)
                modified = True
        return ir.passes.PassResult(model, modified=modified)

    def _sizes(self, model: ir.Model) -> dict[str, int]:
        """Return the sizes by dimension name, of both options together."""
        known = sorted(
            {
                dim
                for value in model.graph.inputs
                for dim in dimensions(value.shape) or ()
                if isinstance(dim, str)
            }
        )
        for name, size in self.dims.items():
            if name not in known:
                has = f"it has {', '.join(known)}" if known else "it has no named dimensions"
                raise UsageError(f"the model's inputs have no dimension {name!r}; {has}")
            if size < 1:
                raise UsageError(f"dimension {name!r} must be at least 1, not {size}")
        sizes = dict(self.dims)
        inputs = {value.name: value for value in model.graph.inputs}
        for name, shape in self.input_shapes.items():
            if name not in inputs:
                has = ", ".join(str(known) for known in inputs) or "none"
                raise UsageError(f"the model has no input {name!r}; it has {has}")
            _collect(name, dimensions(inputs[name].shape), shape, sizes)
        return sizes


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
    return values
