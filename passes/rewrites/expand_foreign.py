"""Write operators of other domains with operators of ONNX's default one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import onnx_ir as ir

from samba_onnx.facts.domains import ONNXRUNTIME_DOMAINS, qualified
from samba_onnx.facts.families import VANISHING
from samba_onnx.passes.rewrites.expand_functions import Knows
from samba_onnx.passes.rewrites.expand_quantization import DEQUANTIZING, QUANTIZING
from samba_onnx.passes.rewrites.float_twins import OF_INTEGERS
from samba_onnx.passes.rewrites.foreign import reason_of, rule_of
from samba_onnx.passes.rewrites.foreign.drafting import (
    CannotExpandError,
    Draft,
    UnknownShapeError,
    own_outputs,
)
from samba_onnx.passes.rewrites.foreign.rules import Rule
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.lift_constants import LiftConstantsPass
from samba_onnx.passes.rewrites.refusals import UNEXPANDED, ReasonedPass, Refusal
from samba_onnx.passes.rewrites.rewriting import constant, is_operator, replace_node

OLDEST = 21
"""Oldest version of the default operator set that the rules write for: axes are inputs, DequantizeLinear has blocks."""

_EXPANDED_LATER: Final = {"DequantizeLinear": DEQUANTIZING, "QuantizeLinear": QUANTIZING}
"""Operators that rules write and another pass expands, with what it needs for that."""


class ExpandForeignPass(ReasonedPass):
    """Replace nodes of onnxruntime's domain and of ONNX's for machine learning by what they are made of.

    1. The target does not know the operator, and there is a rule for it.
    2. The target knows every operator that the rule writes, but for what is computed from constants and
       folds, and for quantisation, which another pass expands; otherwise the node stays whole for the CPU.
    3. The model is of the version that the rules write for; ConvertOpsetPass has seen to it where it could.
    4. Nodes of subgraphs stay: they run on the CPU as they are.
    5. Types behind operators that onnxruntime has no kernel for are inferred from what these have become.
    6. A note says once per operator why nodes of it stay, and ``Node.meta`` says it of every one.
    7. What takes the place of an operator of integers is marked, so that no precision rounds inside of it.
    """

    def __init__(self, target: Knows) -> None:
        """Keep the target that decides."""
        super().__init__()
        self.target = target
        self.notes: list[str] = []

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Expand every node of another domain that has a rule and that the target lacks."""
        modified = outdated = False
        version = model.graph.opset_imports.get("", 0)
        for node in list(model.graph):
            if self.target.knows(node.domain, node.op_type):
                continue
            if rule_of(node) is None:
                _keep_whole(node)
                continue
            outcome = self._expand(node, version)
            # Case 5.
            if isinstance(outcome, _UnknownShape) and outdated:
                LiftConstantsPass()(model)  # inference reads Constant nodes, and weights among them
                InferShapesPass()(model)
                outdated = False
                outcome = self._expand(node, version)
            outdated |= outcome is None
            modified |= self.refusals.applied(node, outcome)
            # Case 6.
            if outcome is not None:
                node.meta[UNEXPANDED] = outcome.reason
                self.notes.append(
                    f"{qualified(node.domain, node.op_type)} is not expanded: {outcome.reason}"
                )
        return ir.passes.PassResult(model, modified=modified)

    def _expand(self, node: ir.Node, version: int) -> Refusal | None:
        rule = rule_of(node)
        if rule is None:
            return Refusal("there is no rule for it")
        # Case 3.
        if version < OLDEST:
            return Refusal(f"the model keeps opset {version}, and its rule writes for {OLDEST}")
        draft = Draft(node)
        outcome = self._replace(rule, draft)
        if outcome is not None:
            draft.discard()
        return outcome

    def _replace(self, rule: Rule, draft: Draft) -> Refusal | None:
        """Put what a rule writes in the place of a node, or say why not."""
        # Case 1.
        try:
            results = rule(draft)
        except UnknownShapeError as error:
            return _UnknownShape(str(error))
        except CannotExpandError as error:
            return Refusal(str(error))
        outputs = own_outputs(draft, [results] if isinstance(results, ir.Value) else results)
        lost = [at for at, value in enumerate(outputs) if value is None and draft.is_read(at)]
        if lost:
            return Refusal(f"its output {lost[0]} is not computed by the rule")
        # Case 2.
        unknown = {made.op_type for made in _computed(draft) if not self._is_known(made.op_type)}
        if unknown:
            return Refusal(f"the target lacks {', '.join(sorted(unknown))}, which it is made of")
        # Case 7.
        if _answers_in_integers(draft.node, outputs):
            for made in draft.nodes:
                made.meta[OF_INTEGERS] = True
        replace_node(draft.node, draft.nodes, outputs)
        return None

    def _is_known(self, op_type: str) -> bool:
        if op_type in VANISHING or self.target.knows("", op_type):
            return True
        needed = _EXPANDED_LATER.get(op_type)
        return needed is not None and all(self.target.knows("", name) for name in needed)


def _answers_in_integers(node: ir.Node, outputs: Sequence[ir.Value | None]) -> bool:
    """Tell whether all results of a node are integers: what it is made of computes these exactly then."""
    kinds = [_type_of(old, new) for old, new in zip(node.outputs, outputs, strict=False) if new]
    return bool(kinds) and all(kind is not None and kind.is_integer() for kind in kinds)


def _type_of(old: ir.Value, new: ir.Value) -> ir.DataType | None:
    """Return the type of a result, as far as it is known or what computes it now tells."""
    producer = new.producer()
    if old.dtype is not None or producer is None or not is_operator(producer, "QuantizeLinear"):
        return old.dtype
    zero = producer.inputs[2] if len(producer.inputs) > 2 else None
    return None if zero is None else zero.dtype


class _UnknownShape(Refusal):
    """A type or shape that a rule needs is not known."""


def _keep_whole(node: ir.Node) -> None:
    """Write down why a node of an operator of onnxruntime's stays, if no rule expands it."""
    if node.domain in ONNXRUNTIME_DOMAINS and UNEXPANDED not in node.meta:
        node.meta[UNEXPANDED] = reason_of(node)


def _computed(draft: Draft) -> Iterator[ir.Node]:
    """Yield the nodes of a draft that depend on more than constants."""
    folded: set[ir.Value | None] = set()
    for node in draft.nodes:
        if all(value in folded or constant(value) is not None for value in node.inputs):
            folded.update(node.outputs)
        else:
            yield node
