"""Places in device memory that a program's user lets several values share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from samba_onnx.errors import UsageError
from samba_onnx.passes.planning.plan import GraphPlan
from samba_onnx.pef.manifest import Fallback
from samba_onnx.program.program import Program


def refuse_split_regions(programs: Sequence[Program], plans: Sequence[GraphPlan]) -> None:
    """Refuse values that are to share a region, but have their values on the host.

    Args:
        programs: All programs of a PEF.
        plans: What was planned for each.

    Raises:
        UsageError: One value would be in two places, of which only one is read.
    """
    sharers: dict[str, dict[str, None]] = {}
    for program in programs:
        for name in (*program.inputs, *program.outputs):
            sharers.setdefault(program.regions.get(name, name), {})[name] = None
    placed = {symbol.name for plan in plans for symbol in plan.symbols if symbol.region}
    users = _fallbacks_by_symbol(plans)
    for region, names in sharers.items():
        if len(names) == 1:
            continue
        for name in names:
            if name in users and name not in placed:
                raise UsageError(
                    f"tensor {name!r} is to be in region {region!r} of device memory together with "
                    f"{', '.join(repr(other) for other in names if other != name)}, but only the "
                    f"host has it: {_reason(users[name])}. Give it a region of its own and pass "
                    "its value to run(), or let the RDU compute it"
                )


def _fallbacks_by_symbol(plans: Sequence[GraphPlan]) -> Mapping[str, Fallback]:
    return {
        name: fallback
        for plan in plans
        for fallback in plan.fallbacks
        for name in (*fallback.inputs, *fallback.outputs)
    }


def _reason(fallback: Fallback) -> str:
    node = fallback.reasons[0] if fallback.reasons else None
    if node is None:
        return f"{fallback.name} runs there"
    place = f" at {node.location}" if node.location else ""
    return f"{node.op_type}{place} runs there, for {node.reason}"
