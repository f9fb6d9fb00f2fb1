"""What users of a model are told to change first: savings by reason, with what to write instead."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import onnx_ir as ir

from samba_onnx.facts.advice import ADVICE, ADVICE_BY_REASON, ADVICE_BY_TYPE
from samba_onnx.facts.domains import ONNX_DOMAINS
from samba_onnx.passes.planning.changes import Advise, PlacedGraph, changes
from samba_onnx.passes.planning.joining import JoinedProgram
from samba_onnx.passes.planning.legalising import LegalisationOptions
from samba_onnx.passes.planning.optimum import Machine
from samba_onnx.passes.rewrites.legalisation.functions import DEFINITION
from samba_onnx.passes.rewrites.legalisation.proofs import NARROW
from samba_onnx.passes.rewrites.legalisation.rules import all_rules, rule_for
from samba_onnx.passes.targets.reasons import Reason
from samba_onnx.pef.changes import Bound, Change
from samba_onnx.pef.rewrite_records import LegalisedRule
from samba_onnx.program.dataflow import name_of

__all__ = ["advice", "graph_changes"]


def graph_changes(
    name: str,
    joined: JoinedProgram,
    machine: Machine,
    rules: Sequence[LegalisedRule],
    options: LegalisationOptions,
    pinned: Collection[str],
    *,
    optimal: bool,
) -> tuple[tuple[Change, ...], Bound | None]:
    """Plan a graph without each of the reasons that nodes fall back for.

    Args:
        name: Name of the graph.
        joined: The graph, placed by what the target supports.
        machine: The device, the CPU and the level.
        rules: What rules of legalisation did to the graph, and what they left.
        options: What the user decided about rules.
        pinned: Names of values that other graphs of the PEF know.
        optimal: Whether supported nodes may move to the CPU.

    Returns:
        The changes, the one that saves most first, and what a run would cost without fallbacks; None
        where there are none, or where shapes are not known.
    """
    graph = PlacedGraph(
        name=name,
        model=joined.model,
        placement=joined.placement,
        roles=joined.roles,
        machine=machine,
        pinned=pinned,
        optimal=optimal,
    )
    return changes(graph, _adviser(rules, options))


def _adviser(rules: Sequence[LegalisedRule], options: LegalisationOptions) -> Advise:
    left = {node: rule.rule for rule in rules for node in rule.left}
    # A rule for the node itself comes before the one for its web.
    ordered = sorted(rules, key=lambda rule: rule.rule != NARROW)
    refused = {
        node: (rule.rule, reason) for rule in ordered for node, reason in rule.refused.items()
    }

    def advise(node: ir.Node, reason: Reason) -> str:
        name = name_of(node)
        rule, refusal = refused.get(name, (left.get(name, ""), ""))
        return advice(node, reason, options, left=name in left, refusal=refusal, named=rule)

    return advise


def advice(
    node: ir.Node,
    reason: Reason,
    options: LegalisationOptions,
    *,
    left: bool,
    refusal: str,
    named: str = "",
) -> str:
    """Return what to do about a node that falls back.

    Args:
        node: The node.
        reason: Why it does.
        options: What the user decided about rules of legalisation.
        left: Whether a rule could have written it otherwise, and that would have made no run shorter.
        refusal: Why its rule could not write it otherwise; empty where it could or there is none.
        named: The rule that says so, where that is not the one for the node's operator.

    Returns:
        One sentence without its full stop.
    """
    rule = next((rule for rule in all_rules() if rule.name == named), None) or rule_for(node)
    # Before any other advice: none of it holds while the rule is turned off.
    if rule is not None and rule.name in options.excluded:
        return f"leave out --no-legalise {rule.name}: it becomes {rule.makes}"
    if rule is not None and left:
        return f"--legalise all writes it as {rule.makes}, which makes this run no shorter"
    if (
        rule is not None
        and rule.name == NARROW
        and "float32" in refusal
        and not options.rounds_float64
    ):
        # No proof is left to hope for: what remains is the user's word.
        return f"--legalise float64 computes it in float32 all the same; {refusal}"
    known = _known(node, reason)
    # What an operator is defined by is not up to the user, and no rule lifts a type.
    if rule is None or not refusal or rule.name == DEFINITION or reason.dtype:
        return known
    return f"rule {rule.name} writes it as {rule.makes}, given {rule.needs}; {refusal}; or {known}"


def _known(node: ir.Node, reason: Reason) -> str:
    """Return what to write in the place of a node, whatever the rules say of it."""
    if reason.dtype:
        return ADVICE_BY_TYPE.get(reason.dtype, ADVICE_BY_REASON[reason.code])
    own = ADVICE.get(node.op_type) if node.domain in ONNX_DOMAINS else None
    return own or ADVICE_BY_REASON.get(reason.code, reason.hint)
