"""The table of rules that write what a target lacks with what it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft

Drafting = Callable[[Draft], "ir.Value | Sequence[ir.Value | None]"]
"""Writes what a node computes into a draft, and returns a value per output of the node, with None for an output
that it does not compute; a single value is that of the first output. It raises ``CannotExpandError`` where the
node is beyond it."""


@dataclass(frozen=True)
class Rule:
    """How nodes that a target refuses are written with operators that it has."""

    name: str
    """What users and reports call it: ``pad``, ``resize``."""
    operators: tuple[str, ...]
    """Operators of the default domain that it is for."""
    makes: str
    """What takes the place of a node, in words."""
    needs: str
    """What must be known of a node, in words: otherwise it is left."""
    numbers: str
    """How the results compare with those of the node: ``equal``, or where they are rounded otherwise."""
    draft: Drafting
    values: str = ""
    """The values that the rule is for, in words; empty for a rule that is for operators."""

    def fits(self, node: ir.Node) -> bool:
        """Return whether the rule is for the node's operator."""
        return node.domain == "" and node.op_type in self.operators


_RULES: dict[str, Rule] = {}


def legalises(
    *operators: str, name: str, makes: str, needs: str, numbers: str = "equal"
) -> Callable[[Drafting], Drafting]:
    """Enter a function as a rule.

    Args:
        *operators: Operators of the default domain.
        name: What users call the rule.
        makes: What takes the place of a node.
        needs: What must be known of a node.
        numbers: How the results compare with those of the node.
    """

    def enter(draft: Drafting) -> Drafting:
        _RULES[name] = Rule(name, operators, makes, needs, numbers, draft)
        return draft

    return enter


def narrows(*, name: str, values: str, makes: str, needs: str, numbers: str) -> str:
    """Enter a rule that is for webs of values, and applied by a pass of its own.

    Args:
        name: What users call the rule.
        values: What values it is for, in words.
        makes: What takes the place of nodes.
        needs: What must be known of values.
        numbers: How the results compare with those of the nodes.

    Returns:
        The name.
    """
    _RULES[name] = Rule(name, (), makes, needs, numbers, _undrafted, values=values)
    return name


# Webs are narrowed by a pass of their own; a rule without operators is never chosen for a node.
def _undrafted(draft: Draft) -> ir.Value:
    raise CannotExpandError("its rule is for webs, not for nodes")


def all_rules() -> tuple[Rule, ...]:
    """Return all rules in the order of their names."""
    return tuple(_RULES[name] for name in sorted(_RULES))


def rule_for(node: ir.Node, excluded: frozenset[str] = frozenset()) -> Rule | None:
    """Return the rule for a node's operator, if there is one.

    Args:
        node: Any node.
        excluded: Names of rules that the user does not want.
    """
    # In the order of names, so that the choice does not depend on which file was imported first.
    fitting = (rule for rule in all_rules() if rule.fits(node) and rule.name not in excluded)
    return next(fitting, None)
