"""Why rewrites leave nodes as they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import onnx_ir as ir

UNEXPANDED: Final = "samba_onnx.unexpanded"
"""Key in ``Node.meta`` of the reason why a node of a foreign operator was not expanded: a text without a
subject, as a :class:`Refusal` has it. Whoever says why the node runs on the CPU says this, too."""


@dataclass(frozen=True)
class Refusal:
    """Why a rewrite does not apply to a node.

    A rule of a rewrite returns one instead of ``False``, and None when it applied: whoever asks why
    a node is still there reads the answer in the log instead of stepping through the rule.
    """

    reason: str
    """What the rule needs and the node lacks, to be read after the node's name."""


@dataclass
class Refusals:
    """Why one run of a pass left nodes as they were: every reason, with the nodes that it holds for."""

    _remaining: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """Names of the nodes by operator and reason, in the order in which they came up."""

    def applied(self, node: ir.Node, outcome: Refusal | None) -> bool:
        """Keep the reason why a rule does not apply to a node, if there is one.

        Args:
            node: The node that the rule was tried on.
            outcome: What the rule returned: a refusal, or None when it changed the graph.

        Returns:
            Whether the rule changed the graph.
        """
        if outcome is None:
            return True
        # By operator and reason: thousands of nodes of one kind are one line of the log.
        key = (node.op_type, outcome.reason)
        name = node.name or next((value.name for value in node.outputs if value.name), "")
        self._remaining.setdefault(key, []).append(name)
        return False

    def lines(self) -> tuple[str, ...]:
        """Return one sentence per operator and reason, naming the first node and counting others."""
        return tuple(
            f"{operator} {names[0]!r}"
            + (f" and {len(names) - 1} more" if len(names) > 1 else "")
            + f": {reason}"
            for (operator, reason), names in self._remaining.items()
        )


class ReasonedPass(ir.passes.InPlacePass):
    """A pass that remembers why its rules did not apply to nodes that they were tried on.

    The pipeline writes ``refusals`` to the log at debug level, with the pass's name before them.
    """

    def __init__(self) -> None:
        """Start without refusals."""
        super().__init__()
        self.refusals = Refusals()
