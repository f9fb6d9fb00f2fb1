"""Put the steps of a Loop or Scan in its place, where their number is known and few, or no section repeats a body."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import onnx_ir as ir

from samba_onnx.facts.domains import qualified
from samba_onnx.facts.families import SIZES, VANISHING
from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft, own_outputs
from samba_onnx.passes.rewrites.lift_constants import LiftConstantsPass
from samba_onnx.passes.rewrites.loop_steps import is_short, write_steps
from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal
from samba_onnx.passes.rewrites.rewriting import each_graph, is_operator, replace_node
from samba_onnx.program.dataflow import subgraphs

if TYPE_CHECKING:
    from samba_onnx.passes.rewrites.expand_functions import Knows

OLDEST: Final = 13
"""Oldest version of the default operator set in which axes of Unsqueeze are an operand."""
_SEQUENCES: Final = frozenset(
    {"SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceInsert", "ConcatFromSequence"}
)
"""Operators that no target knows, and that go where the places of their tensors are known."""
_VANISHING: Final = VANISHING | SIZES
"""Operators that go when shapes are known."""


class UnrollLoopsPass(ReasonedPass):
    """Write a Loop or Scan as its steps, one behind the other, as tracing would have.

    1. It is short, or no section of the target repeats its body (``keeps_long``): longer Scans stay as they are. Loops
       are unrolled, and become Scans by the rules of legalisation where that is too long.
    2. The target knows every operator of the body, but for those that go when shapes and places of tensors in
       sequences are known; otherwise the loop stays whole for the CPU, or for the rules of legalisation.
    3. A body that holds a loop or a branch of its own waits until that is gone.
    4. :func:`~samba_onnx.passes.rewrites.loop_steps.write_steps` can write it.
    """

    def __init__(self, target: Knows, *, keeps_long: bool = False) -> None:
        """Take the target that decides which loops are unrolled.

        Args:
            target: Says which operators it has.
            keeps_long: Whether only short loops are unrolled.
        """
        super().__init__()
        self.target = target
        self.keeps_long = keeps_long

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Unroll every loop that can be."""
        modified = False
        if model.graph.opset_imports.get("", 0) < OLDEST:
            return ir.passes.PassResult(model, modified=False)
        for graph in reversed(list(each_graph(model))):
            for node in list(graph):
                if is_operator(node, "Loop", "Scan"):
                    modified |= self.refusals.applied(node, self._unroll(node))
        if modified:
            LiftConstantsPass()(model)  # steps have their numbers as Constant nodes
        return ir.passes.PassResult(model, modified=modified)

    def _unroll(self, node: ir.Node) -> Refusal | None:
        # Case 1.
        # What a Loop takes on the CPU is not modelled, so that no rule could tell whether a Scan is better.
        if self.keeps_long and node.op_type == "Scan" and not is_short(node):
            return Refusal(
                "the target repeats its body, of which all steps together are no few nodes"
            )
        refusal = self._unsuitable(node.attributes["body"].as_graph())
        if refusal is not None:
            return refusal
        draft = Draft(node)
        # Case 4.
        try:
            results = write_steps(draft)
        except CannotExpandError as error:
            draft.discard()
            return Refusal(str(error))
        outputs = own_outputs(draft, results)
        replace_node(node, draft.nodes, outputs)
        return None

    def _unsuitable(self, body: ir.Graph) -> Refusal | None:
        # Case 3.
        if any(True for node in body for _ in subgraphs(node)):
            return Refusal("its body has subgraphs")
        # Case 2.
        unknown = {
            qualified(node.domain, node.op_type) for node in body if not self._goes_or_runs(node)
        }
        if unknown:
            return Refusal(f"the target lacks {', '.join(sorted(unknown))} of its body")
        return None

    def _goes_or_runs(self, node: ir.Node) -> bool:
        if self.target.knows(node.domain, node.op_type):
            return True
        return node.domain == "" and node.op_type in _SEQUENCES | _VANISHING
