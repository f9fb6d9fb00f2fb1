"""All rules: one table, from which findings, documentation and tests are made."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from samba_onnx.errors import InternalError
from samba_onnx.tools.lint.findings import LintRule
from samba_onnx.tools.lint.forward_rules import FORWARD_RULES
from samba_onnx.tools.lint.program_rules import PROGRAM_RULES


def _by_id(*rules: LintRule) -> dict[str, LintRule]:
    """Return rules by their ids.

    Raises:
        InternalError: Two have the same id.
    """
    table: dict[str, LintRule] = {}
    for rule in rules:
        # A second rule would win in silence, and comments that switch the first off would mean it.
        if rule.id in table:
            raise InternalError(f"two rules have the id {rule.id!r}")
        table[rule.id] = rule
    return table


RULES: Final[Mapping[str, LintRule]] = MappingProxyType(_by_id(*FORWARD_RULES, *PROGRAM_RULES))
"""Every rule by its id."""
