"""The dynamic dimensions of a model's inputs: those that stayed, and what the others became."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from samba_onnx.passes.rewrites.bind_dimensions import ASSUMED, taken_text
from samba_onnx.passes.targets.dimensions import EXAMPLE_SIZE
from samba_onnx.pef.dimensions import BoundDimension, DynamicDimension


def dynamic_dimensions(model: ir.Model) -> tuple[DynamicDimension, ...]:
    """Return the inputs' dimensions that are not static, with the option that would make them so."""
    named: dict[str, list[str]] = {}
    nameless: list[DynamicDimension] = []
    for value in model.graph.inputs:
        if value.shape is None:
            continue
        example = ",".join(
            str(dim if isinstance(dim, int) else EXAMPLE_SIZE) for dim in value.shape
        )
        for axis, dim in enumerate(value.shape):
            if isinstance(dim, int):
                continue
            place = f"{value.name}[{axis}]"
            if dim.value is None:
                option = f"--input-shape {value.name}={example}"
                nameless.append(DynamicDimension("", (place,), option))
            else:
                named.setdefault(dim.value, []).append(place)
    dimensions = [
        DynamicDimension(name, tuple(places), f"--dim {name}={EXAMPLE_SIZE}")
        for name, places in named.items()
    ]
    return (*dimensions, *nameless)


def bound_dimensions(
    model: ir.Model, before: Sequence[DynamicDimension], graph: str
) -> tuple[BoundDimension, ...]:
    """Return the dimensions that became static, with the sizes that they have now.

    Args:
        model: The model after all passes.
        before: Its dynamic dimensions before the first pass.
        graph: Name of the graph that it becomes.
    """
    sizes = {
        f"{value.name}[{axis}]": size
        for value in model.graph.inputs
        for axis, size in enumerate(value.shape or ())
        if isinstance(size, int)
    }
    assumed = model.meta.get(ASSUMED, {})
    return tuple(
        BoundDimension(
            graph=graph,
            name=dimension.name,
            inputs=dimension.inputs,
            size=sizes[dimension.inputs[0]],
            assumed=(dimension.name or dimension.inputs[0]) in assumed,
            option=dimension.option,
        )
        for dimension in before
        if dimension.inputs[0] in sizes
    )


def assumption_note(bound: Sequence[BoundDimension]) -> str:
    """Return the sentence that says which sizes nobody stated, and how to state them.

    Args:
        bound: The dimensions that became static, of one graph.

    Returns:
        One sentence; empty where every size was stated.
    """
    assumed = [dimension for dimension in bound if dimension.assumed]
    if not assumed:
        return ""
    sizes = {dimension.name or dimension.inputs[0]: dimension.size for dimension in assumed}
    options = dict.fromkeys(
        f"--dim {dimension.name}={dimension.size}" if dimension.name else dimension.option
        for dimension in assumed
    )
    advice = " ".join(list(options)[:2]) + (" ..." if len(options) > 2 else "")
    return (
        f"of the dynamic dimensions {taken_text(sizes)}, for nothing states a size: state "
        f"it as in {advice}, or leave it dynamic, and on the CPU, with --keep-dynamic"
    )
