"""A target: its operator table, asked node by node, and its hardware figures."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import onnx
import onnx_ir as ir

from samba_onnx.errors import TargetError
from samba_onnx.facts.advice import ADVICE
from samba_onnx.facts.domains import normal_domain, qualified
from samba_onnx.passes.targets import checks
from samba_onnx.passes.targets.bodies import REPEATING, body_reason
from samba_onnx.passes.targets.conditions import ordered, parted, under
from samba_onnx.passes.targets.hardware import summarise
from samba_onnx.passes.targets.reasons import OF_VALUES, Reason, ReasonCode
from samba_onnx.passes.targets.rows import (
    OperatorRow,
    Status,
    UnsupportedRow,
    build_row,
    build_unsupported,
)
from samba_onnx.passes.targets.target_files import available_targets, read_profile
from samba_onnx.pef.target_summary import TargetSummary


@dataclass(frozen=True)
class Support:
    """Whether a node can run on the RDU, and how well that is known."""

    reason: Reason | None
    """Why it cannot; None if it can."""
    evidence: str | None = None
    """``documented``, ``observed`` or ``assumed``; None if it cannot."""
    experimental: bool = False
    """Whether the vendor calls it experimental or does not document it at all."""


_SUPPORTED = {status: Support(None, status.evidence, status > Status.FULL) for status in Status}


@dataclass(frozen=True, eq=False)
class Target:
    """A device profile: which operators a kind of RDU runs, and how fast its parts are."""

    name: str
    description: str
    summary: TargetSummary
    """The hardware figures."""
    rows: tuple[OperatorRow, ...]
    """Supported operators, in the order of their names."""
    unsupported: tuple[UnsupportedRow, ...]
    """Operators that it is known not to run, and why."""
    opsets: tuple[int, int]
    """Oldest and newest version of the default operator set that the rows describe."""
    dtypes: tuple[str, ...]
    """Data types that it computes with."""
    granted: frozenset[str] = frozenset()
    """Operators that it is taken to run on tensors of static shape, whatever the rows say."""
    fusion_rules: Path | None = None
    """The file of its own rules of fusion, for level ``o1``; None for a target without."""
    tiles: int | None = None
    """Tiles of an RDU, of which a program may have a part; None for one that cannot be divided."""

    @functools.cached_property
    def _rows(self) -> Mapping[tuple[str, str], OperatorRow]:
        return {(row.domain, row.op_type): row for row in self.rows}

    @functools.cached_property
    def _unsupported(self) -> Mapping[tuple[str, str], UnsupportedRow]:
        return {(row.domain, row.op_type): row for row in self.unsupported}

    @functools.cached_property
    def _versions(self) -> dict[tuple[str, str, int], int | None]:
        return {}  # since-versions already looked up

    @property
    def repeats_bodies(self) -> bool:
        """Whether a section repeats the body of a Scan by itself, step by step."""
        return self.summary.repeats_bodies

    def knows(self, domain: str, op_type: str) -> bool:
        """Return whether the table has a row that supports the operator, within its limits."""
        return (normal_domain(domain), op_type) in self._rows

    def runs(self, node: ir.Node) -> bool:
        """Return whether a node can run on the RDU as it is."""
        return self.support(node).reason is None

    def row(self, domain: str, op_type: str) -> OperatorRow | None:
        """Return the row that supports an operator."""
        return self._rows.get((normal_domain(domain), op_type))

    def static_inputs(self, node: ir.Node) -> frozenset[int]:
        """Return the positions of operands that must be constants and are baked into a section.

        Args:
            node: Any node.

        Returns:
            Positions of inputs that the node has; empty for an operator without a row.
        """
        row = self.row(node.domain, node.op_type)
        if row is None:
            return frozenset()
        return frozenset(
            position
            for position, value in enumerate(node.inputs)
            if value is not None and (operand := row.input(position)) and operand.static
        )

    def support(self, node: ir.Node) -> Support:
        """Decide whether a node can run on the RDU.

        Types and shapes are taken as inference left them: what is unknown is refused. Contents of
        weights are never read.

        Args:
            node: Any node, of any domain.

        Returns:
            The first reason against it, or the least evidence that its data types have.
        """
        # What --what-if grants overrules the table, but not the need for static shapes, which no
        # operator escapes.
        if qualified(node.domain, node.op_type) in self.granted and checks.is_static(node):
            return Support(None, "assumed", experimental=True)
        if self.repeats_bodies and node.op_type == REPEATING and not node.domain:
            reason = body_reason(node, self.name, lambda inner: self.support(inner).reason)
            # Nothing documents it, whatever is known of the operators of the body.
            return Support(reason) if reason else Support(None, "assumed", experimental=True)
        reason = self._operator_reason(node)
        if reason is not None:
            return Support(reason)
        row = self._rows[normal_domain(node.domain), node.op_type]
        answer = checks.check(node, row, self.name)
        return Support(answer) if isinstance(answer, Reason) else _SUPPORTED[answer]

    def _operator_reason(self, node: ir.Node) -> Reason | None:
        """Return why the table refuses a node for its operator or version; None if it has a row for it."""
        domain = normal_domain(node.domain)
        name = qualified(domain, node.op_type)
        # Before all else, since a note about this very operator says more than what is generally
        # wrong with its node.
        refused = self._unsupported.get((domain, node.op_type))
        if refused is not None:
            # What else there is to do stands beside what a change would save, where that can be measured.
            advice = (
                ADVICE.get(node.op_type, "") if refused.code in OF_VALUES and not domain else ""
            )
            return Reason(
                refused.code, f"{name} does not run on {self.name}: {refused.note}", advice
            )
        # Before rows are looked at: a row limits types and shapes of operands, and can say nothing
        # of what a body computes.
        if any(
            attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
            for attribute in node.attributes.values()
        ):
            return Reason(
                ReasonCode.CONTROL_FLOW,
                f"{name} carries a subgraph; {self.name} runs static graphs",
            )
        row = self._rows.get((domain, node.op_type))
        if row is not None:
            return self._version_reason(node, row)
        if domain:
            return Reason(
                ReasonCode.DOMAIN,
                f"{name} belongs to a custom domain; the table of {self.name} covers ONNX's own",
                "state a row for it in a target file of your own (docs/targets.md)",
            )
        return Reason(ReasonCode.OPERATOR, f"{name} is not in the operator table of {self.name}")

    def _version_reason(self, node: ir.Node, row: OperatorRow) -> Reason | None:
        """Compare the operator's version with those that the row describes."""
        opset = _opset(node)
        if row.domain or opset is None:
            return None
        # No schema knows the versions of other domains, nor those of a node without a model.
        oldest, newest = self.opsets
        if opset < oldest:
            message = f"belongs to operator set {opset}; the table starts at {oldest}"
            return Reason(ReasonCode.VERSION, f"{row.name} {message}")
        # An operator is the same in all sets from one version of it to the next, so that the version
        # that it has since some set is compared, not the set of the model.
        since = self._since_version(row, opset)
        until = row.until or newest
        if since is None:
            return Reason(ReasonCode.VERSION, f"operator set {opset} has no {row.name}")
        if row.since <= since <= until:
            return None
        known = f"{row.since} to {until}" if row.since < until else f"{until}"
        return Reason(
            ReasonCode.VERSION,
            f"{row.name} has version {since}; the row of {self.name} describes {known}",
        )

    def _since_version(self, row: OperatorRow, opset: int) -> int | None:
        key = (row.domain, row.op_type, opset)
        if key not in self._versions:
            try:
                schema = onnx.defs.get_schema(row.op_type, opset, row.domain)
                self._versions[key] = schema.since_version
            except onnx.defs.SchemaError:
                self._versions[key] = None
        return self._versions[key]


def _opset(node: ir.Node) -> int | None:
    """Return the version of the default operator set that a node follows, if it is known."""
    if node.version is not None:
        return node.version
    owner = node.graph
    if owner is None:
        return None
    imports = owner.opset_imports
    return imports.get("", imports.get("ai.onnx"))


def load_target(name_or_path: str | os.PathLike[str] | Target) -> Target:
    """Load a target.

    Args:
        name_or_path: A built-in target's name, a path to a TOML file, either with conditions behind it
            (``sn30:4tiles``, see :mod:`samba_onnx.passes.targets.conditions`), or a target, which is
            returned as it is.

    Returns:
        The target.

    Raises:
        TargetError: There is no such target or condition, conditions contradict each other, or its file is
            malformed; names the file and key.
    """
    if isinstance(name_or_path, Target):
        return name_or_path
    name = os.fspath(name_or_path)
    base, conditions = parted(name)
    # Only built-in targets are kept, and so shared: a file of the user's may change between two
    # calls.
    whole = _load_builtin(base) if base in available_targets() else _build(base)
    if not conditions:
        return whole
    conditions = ordered(conditions, name)
    named = f"{whole.name}:{','.join(conditions)}"
    return replace(whole, name=named, summary=under(whole.summary, conditions, whole.tiles, named))


@functools.cache
def _load_builtin(name: str) -> Target:
    return _build(name)


def _build(name: str) -> Target:
    profile = read_profile(name)
    dtypes = None if profile.dtypes is None else frozenset(profile.dtypes)
    try:
        rows = tuple(build_row(key, row, dtypes) for key, row in profile.operators.items())
    except ValueError as error:
        message = f"target file {profile.path}: operators.{error}"
        raise TargetError(message, path=profile.path) from error
    return Target(
        name=profile.name,
        description=profile.description,
        summary=summarise(profile),
        rows=rows,
        unsupported=tuple(build_unsupported(key, row) for key, row in profile.unsupported.items()),
        opsets=profile.opsets,
        dtypes=profile.dtypes or (),
        fusion_rules=profile.fusion_rules,
        tiles=None if profile.hardware.tiles is None else profile.hardware.tiles.value,
    )
