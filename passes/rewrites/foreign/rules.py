"""The table of rules for operators of other domains."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from samba_onnx.facts.domains import qualified
from samba_onnx.passes.rewrites.foreign.drafting import Draft

Rule = Callable[[Draft], "ir.Value | Sequence[ir.Value | None]"]
"""Writes what a node computes into a draft, and returns a value per output of the node, with None for an output
that it does not compute; a single value is that of the first output. It raises ``CannotExpandError`` where the
node is beyond it."""

_RULES: dict[str, Rule] = {}


def expands(domain: str, *op_types: str) -> Callable[[Rule], Rule]:
    """Enter a function as the rule of operators.

    Args:
        domain: Their domain.
        op_types: The operators.
    """

    def enter(rule: Rule) -> Rule:
        for op_type in op_types:
            # By domain and name: the same operator may exist in several domains with different
            # meanings.
            _RULES[qualified(domain, op_type)] = rule
        return rule

    return enter


def rule_of(node: ir.Node) -> Rule | None:
    """Return the rule that expands a node's operator; None if there is none."""
    return _RULES.get(qualified(node.domain, node.op_type))


def rule_named(name: str) -> Rule:
    """Return the rule of an operator that has one.

    Args:
        name: The operator, qualified by its domain.
    """
    return _RULES[name]


def operators_with_rules() -> tuple[str, ...]:
    """Return the names of all operators that have a rule, sorted."""
    return tuple(sorted(_RULES))
