"""Types that a target lacks, narrowed where every value is proved to fit: int64 to int32, float64 to float32.

Evidence: no document shows float64 on the RDU, and all chips compute with float32 and int32. Integers fit where a range
analysis says so: places along axes, sizes, truth values, remainders, what is clipped, and sums and products of such.
Numbers of float64 fit where they are numbers of float32, or one rounding away from such and rounded to float32 next.
No proof covers longer islands: the worst case of a Softmax, a product and a sum over 360 numbers is beyond what
``verify`` allows, though real ones are far within it. There the user decides, and ``verify`` judges.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from samba_onnx.passes.rewrites.legalisation.legalise import Chooser
from samba_onnx.passes.rewrites.legalisation.proofs import (
    NARROW,
    helps,
    narrowings,
    useful_webs,
)
from samba_onnx.passes.rewrites.legalisation.rules import narrows
from samba_onnx.passes.rewrites.legalisation.webs import Web, misfit, narrow
from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal

narrows(
    name=NARROW,
    values="those of int64 and float64",
    makes="the same nodes in int32 and float32, with Casts at the border of a web",
    needs=(
        "int64: a range within int32; float64: numbers of float32, or one sum, product, quotient or root of such that "
        "a Cast rounds to float32 next, or anything with --legalise float64"
    ),
    numbers=(
        "equal; a product with a constant that float32 lacks within two roundings of float32; with --legalise float64 "
        "rounded to float32 by every node"
    ),
)


class NarrowPass(ReasonedPass):
    """Let webs of values of a type that the target lacks compute in a narrower one.

    1. A node that the target refuses would run, or be written by another rule, if its values were narrow.
    2. All values of one type variable at a node are proved to fit, or are of float64 and the user lets float32 round
       them.
    3. The chooser takes the web that the node is in.
    """

    def __init__(self, chooser: Chooser | None) -> None:
        """Keep what decides; None leaves every node."""
        super().__init__()
        self.chooser = chooser

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Narrow the webs that the chooser takes."""
        chooser = self.chooser
        if chooser is None or NARROW in chooser.finder.excluded:
            return ir.passes.PassResult(model, modified=False)
        refused = chooser.fallbacks(model)
        target, excluded = chooser.finder.target, chooser.finder.excluded
        rounds = chooser.finder.rounds_float64
        self._refuse(model.graph, refused, chooser)

        def useful_in(graph: ir.Graph, nodes: Collection[ir.Node]) -> tuple[Web, ...]:
            return useful_webs(
                graph, narrowings(graph, rounds_float64=rounds), nodes, target, excluded
            )

        useful = useful_in(model.graph, refused)
        if not useful:
            return ir.passes.PassResult(model, modified=False)

        def apply(copy: ir.Model, chosen: Collection[int]) -> None:
            own = list(copy.graph)
            places = {node: place for place, node in enumerate(model.graph)}
            # A copy has the same nodes in the same order, by which those that are refused are found
            # in it.
            nodes = {own[places[node]] for node in refused}
            for number, web in enumerate(useful_in(copy.graph, nodes)):
                if number in chosen:
                    narrow(copy, web)

        # Case 3.
        # Of each web what would fall back without it: by that the chooser knows what a web may
        # gain.
        left = [[node for node in web.nodes if node in refused] for web in useful]
        chosen = chooser.choose_webs(model, left, apply)
        for number, web in enumerate(useful):
            if number in chosen:
                narrow(model, web)
            else:
                why = Refusal("narrowing it would not make a run shorter")
                # One node speaks for the web: the reason is the same for all of them.
                self.refusals.applied(web.nodes[0], why)
        return ir.passes.PassResult(model, modified=bool(chosen))

    def _refuse(self, graph: ir.Graph, refused: Collection[ir.Node], chooser: Chooser) -> None:
        """Record why nodes that would run in a narrow type keep their wide one."""
        version = graph.opset_imports.get("", 0)
        for kinds in narrowings(graph, rounds_float64=chooser.finder.rounds_float64):
            # Case 1.
            for node in refused:
                if helps(node, kinds, chooser.finder.target, chooser.finder.excluded):
                    # Case 2.
                    refusal = misfit(node, kinds, version)
                    if not self.refusals.applied(node, refusal) and refusal is not None:
                        chooser.refuse(node, NARROW, refusal)
