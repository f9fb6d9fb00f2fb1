"""Types that a target lacks, narrowed where every value is proved to fit: int64 to int32, float64 to float32.

Evidence: no document shows float64 on the RDU, and all chips compute with float32 and int32. Integers fit where a range
analysis says so: places along axes, sizes, truth values, remainders, what is clipped, and sums and products of such.
Numbers of float64 fit where they are numbers of float32, or one rounding away from such and rounded to float32 next.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import onnx_ir as ir

from samba_onnx.passes.rewrites.legalisation.exactness import Exactness
from samba_onnx.passes.rewrites.legalisation.forms import FormFinder
from samba_onnx.passes.rewrites.legalisation.legalise import Chooser
from samba_onnx.passes.rewrites.legalisation.registry import narrows, rule_for
from samba_onnx.passes.rewrites.legalisation.webs import (
    Narrowing,
    Web,
    misfit,
    narrow,
    webs,
)
from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal
from samba_onnx.program.bounds import Bounds, type_limits
from samba_onnx.program.legal_inputs import legal_inputs

NAME: Final = narrows(
    name="narrow",
    values="those of int64 and float64",
    makes="the same nodes in int32 and float32, with Casts at the border of a web",
    needs=(
        "int64: a range within int32; float64: numbers of float32, or one sum, product, quotient or root of such that "
        "a Cast rounds to float32 next"
    ),
    numbers="equal; a product with a constant that float32 lacks within two roundings of float32",
)


class NarrowPass(ReasonedPass):
    """Let webs of values of a type that the target lacks compute in a narrower one.

    1. A node that the target refuses would run, or be written by another rule, if its values were narrow.
    2. All values of one type variable at a node are proved to fit.
    3. The chooser takes the web that the node is in.
    """

    def __init__(self, chooser: Chooser | None) -> None:
        """Keep what decides; None leaves every node."""
        super().__init__()
        self.chooser = chooser

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Narrow what is chosen."""
        chooser = self.chooser
        if chooser is None or NAME in chooser.finder.excluded:
            return ir.passes.PassResult(model, modified=False)
        refused = chooser.fallbacks(model)
        version = model.graph.opset_imports.get("", 0)
        for kinds in _narrowings(model.graph):
            # Case 1.
            for node in refused:
                if _helps(node, kinds, chooser.finder):
                    # Case 2.
                    refusal = misfit(node, kinds, version)
                    if not self.refusals.applied(node, refusal) and refusal is not None:
                        chooser.refuse(node, NAME, refusal)
        useful = _useful(model.graph, refused, chooser.finder)
        if not useful:
            return ir.passes.PassResult(model, modified=False)

        def apply(copy: ir.Model, chosen: Collection[int]) -> None:
            own = list(copy.graph)
            places = {node: place for place, node in enumerate(model.graph)}
            nodes = {own[places[node]] for node in refused}
            for number, web in enumerate(_useful(copy.graph, nodes, chooser.finder)):
                if number in chosen:
                    narrow(copy, web)

        # Case 3.
        left = [[node for node in web.nodes if node in refused] for web in useful]
        chosen = chooser.choose_webs(model, left, apply)
        for number, web in enumerate(useful):
            if number in chosen:
                narrow(model, web)
            else:
                why = Refusal("narrowing it would not make a run shorter")
                self.refusals.applied(web.nodes[0], why)
        return ir.passes.PassResult(model, modified=bool(chosen))


def _narrowings(graph: ir.Graph) -> tuple[Narrowing, ...]:
    legal = legal_inputs(graph)
    bounds = Bounds(legal, by_type=True)
    exactness, limits = Exactness(bounds), type_limits(ir.DataType.INT32)

    def larger(value: ir.Value) -> str:
        interval = bounds.of(value)
        ends = f": from {interval.low:,} to {interval.high:,}" if interval.is_finite else ""
        return f"{value.name!r} may be larger than int32{ends}"

    return (
        Narrowing(
            ir.DataType.INT64,
            ir.DataType.INT32,
            lambda value: bounds.of(value).is_inside(limits),
            larger,
            legal,
        ),
        Narrowing(ir.DataType.DOUBLE, ir.DataType.FLOAT, exactness.fits, exactness.reason),
    )


def _useful(graph: ir.Graph, refused: Collection[ir.Node], finder: FormFinder) -> tuple[Web, ...]:
    """Return the webs with nodes that the target refuses for their type, and not only Casts at a border."""
    return tuple(
        web
        for kinds in _narrowings(graph)
        if any(_helps(node, kinds, finder) for node in refused)
        for web in webs(graph, kinds)
        if any(
            node in refused
            and _helps(node, kinds, finder)
            and not (web.has_border and node.op_type == "Cast")
            for node in web.nodes
        )
    )


def _helps(node: ir.Node, kinds: Narrowing, finder: FormFinder) -> bool:
    """Return whether a node would run on the target, or a rule may write it, if its values were narrow."""
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    wide = {value: value.type for value in values if value.dtype is kinds.wide}
    if not wide:
        return False
    if kinds.wide is ir.DataType.DOUBLE and rule_for(node, finder.excluded) is not None:
        return True
    try:
        for value in wide:
            value.type = ir.TensorType(kinds.narrow)
        return finder.target.support(node).reason is None
    finally:
        for value, kind in wide.items():
            value.type = kind
