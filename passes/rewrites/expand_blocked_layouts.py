"""Undo the layout that onnxruntime's highest level of optimisation saves models in."""

from __future__ import annotations

import onnx_ir as ir

from samba_onnx.errors import SambaError
from samba_onnx.facts.domains import BLOCKED_DOMAIN, qualified
from samba_onnx.passes.rewrites.expand_foreign import OLDEST
from samba_onnx.passes.rewrites.foreign.blocked_layouts import BLOCKED_RULES
from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.refusals import UNEXPANDED, ReasonedPass, Refusal
from samba_onnx.passes.rewrites.rewriting import replace_node
from samba_onnx.program.dataflow import each_node
from samba_onnx.safety.type_inference import channel_block

_ANYWHERE = "ORT_ENABLE_EXTENDED saves a model that is the same on every machine"


class ExpandBlockedLayoutsPass(ReasonedPass):
    """Replace nodes of onnxruntime's domain for blocked layouts by ONNX's, with weights in ONNX's order.

    1. All of them or none: between them are values in blocks of channels, whose shapes do not show it.
       Expanded nodes that the target lacks are operators of ONNX's own domain, which run on the CPU.
    2. None is in a subgraph, every weight is constant, and the model is of the version that the rules
       write for.
    3. How many channels a block has is not in the model: as many as suit the processor that it was saved
       on. onnxruntime takes it to be the one that it runs on, and so does this pass; a note says so.
    """

    def __init__(self) -> None:
        """Start without notes."""
        super().__init__()
        self.notes: list[str] = []

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Expand all nodes of blocked layouts, or none of them."""
        nodes = [node for node in each_node(model.graph) if node.domain == BLOCKED_DOMAIN]
        if not nodes:
            return ir.passes.PassResult(model, modified=False)
        drafts: list[tuple[Draft, ir.Value]] = []
        try:
            block = self._draft(model, nodes, drafts)
        except (CannotExpandError, SambaError) as error:
            for draft, _ in drafts:
                draft.discard()
            self._keep(nodes, Refusal(str(error)))
            return ir.passes.PassResult(model, modified=False)
        for draft, result in drafts:
            replace_node(draft.node, draft.nodes, [result])
        self.notes = [
            f"its convolutions are laid out in blocks of {block} channels, as this machine's processor "
            "has them: if it was saved on a machine with others, it computes something else, in "
            f"onnxruntime as well; {_ANYWHERE}"
        ]
        return ir.passes.PassResult(model, modified=True)

    def _draft(
        self, model: ir.Model, nodes: list[ir.Node], drafts: list[tuple[Draft, ir.Value]]
    ) -> int:
        """Write what each node becomes, and return how many channels a block has."""
        # Case 2.
        version = model.graph.opset_imports.get("", 0)
        if version < OLDEST:
            raise CannotExpandError(
                f"the model keeps opset {version}, and its rule writes for {OLDEST}"
            )
        if any(node.graph is not model.graph for node in nodes):
            raise CannotExpandError("some of them are in branches or loops")
        # Case 3.
        block = channel_block()
        for node in nodes:
            rule = BLOCKED_RULES.get(node.op_type)
            if rule is None:
                raise CannotExpandError(f"there is no rule for {node.op_type}")
            draft = Draft(node)
            # A node of its own at once: an operand will be another value when its turn comes.
            drafts.append((draft, _own(draft, rule(draft, block))))
        return block

    def _keep(self, nodes: list[ir.Node], refusal: Refusal) -> None:
        """Write down why they stay: they run where blocks are as large as where the model was saved."""
        for node in nodes:
            self.refusals.applied(node, refusal)
            node.meta[UNEXPANDED] = f"{refusal.reason}; {_ANYWHERE}"
        operators = sorted({qualified(node.domain, node.op_type) for node in nodes})
        self.notes = [
            f"{', '.join(operators)} are not expanded: {refusal.reason}; they compute the same only on "
            f"processors like the one that the model was saved on, and {_ANYWHERE}"
        ]


def _own(draft: Draft, result: ir.Value) -> ir.Value:
    """Return a result that a node of the draft computes."""
    return result if result.producer() in draft.nodes else draft.op("Identity", result)
