"""Targets as they are not: with operators that they lack, or other hardware figures, to see what that would bring."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Final

from samba_onnx.errors import UsageError
from samba_onnx.facts.figures import LARGEST, LARGEST_WHOLE, SMALLEST
from samba_onnx.facts.operators import facts
from samba_onnx.passes.targets.target import Target, load_target
from samba_onnx.pef.target_summary import SUPPOSED, Assumption, TargetSummary, Tier
from samba_onnx.safety.files import printable

# Decimal prefixes, since vendors state bandwidths and operations in powers of ten. The prefix u is
# typed more easily than the micro sign, and both are accepted.
_POWERS: Final = {"": 0, "n": -9, "u": -6, "µ": -6, "m": -3} | {
    prefix: 3 * power for power, prefix in enumerate("kMGTP", 1)
}
# Lengths are bounded, so that no number becomes infinite or takes long to read.
_VALUE: Final = re.compile(r"(\d{1,18}(?:\.\d{1,9})?(?:e[+-]?\d{1,2})?) ?([numkMGTPµ]?)(s|B|B/s|)")

_EXAMPLES: Final = {
    "s": "2us",
    "bytes": "64GB",
    "bytes/s": "1.6TB/s",
    "operations/s": "300T",
}


def hypothetical(target: Target, suppositions: Sequence[str]) -> Target:
    """Return a target as it would be if suppositions held.

    Args:
        target: The target as it is.
        suppositions: Each ``support=OPERATOR,...``: it runs these operators on tensors of static shape;
            ``target=NAME``: it is another one, by name or path; or ``FIGURE=VALUE``, as
            ``link.latency=2us`` or ``hbm.bytes_per_second=2TB/s``: it has another hardware figure. A
            ``target`` is taken first, whatever its place.

    Raises:
        TargetError: There is no such target.
        UsageError: A supposition is malformed, or names an operator or figure that there is not.
    """
    pairs = [_parted(text) for text in suppositions]
    # First the target: figures and operators given before it would be lost with the one that it
    # replaces.
    for name, value in pairs:
        if name == "target":
            target = load_target(value)
    granted: set[str] = set()
    for name, value in pairs:
        if name == "support":
            granted |= _operators(value)
        elif name != "target":
            target = replace(target, summary=_with_figure(target.summary, name, value))
    return replace(target, granted=target.granted | granted) if granted else target


def _parted(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise UsageError(
            f"--what-if {printable(text)}: expected support=OPERATOR,..., target=NAME or "
            "FIGURE=VALUE, as link.latency=2us"
        )
    return name.strip(), value.strip()


def _operators(text: str) -> frozenset[str]:
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    for name in sorted(names):
        # Of other domains nobody has a list.
        if "::" not in name and facts(name, "") is None:
            raise UsageError(
                f"--what-if support={printable(text)}: ONNX has no operator {printable(name)!r}; write it "
                "as the report does, as TopK or com.example::Operator"
            )
    return names


def _with_figure(summary: TargetSummary, name: str, text: str) -> TargetSummary:
    """Return hardware figures of which one has another value, which counts as assumed."""
    units = _units(summary)
    if name not in units:
        raise UsageError(
            f"--what-if {printable(name)}={printable(text)}: there is no such figure; expected support, "
            f"target, or one of {', '.join(units)}"
        )
    value = _value(name, text, units[name])
    # The figure may have been an assumption before; a second note of the same name would contradict
    # the new value.
    notes = [figure for figure in summary.assumptions if figure.name != name]
    changed = replace(
        summary,
        # It is listed as assumed although the user is sure: a report must not pass the result off
        # as one of the real device.
        assumptions=(*notes, Assumption(name, value, units[name], SUPPOSED)),
    )
    owner, _, field = name.partition(".")
    if name == "link.latency":
        return replace(changed, link_latency_seconds=value)
    if name == "link.bytes_per_second":
        return replace(changed, link_bytes_per_second=value)
    if name == "rdu_link.latency":
        return replace(changed, rdu_link_latency_seconds=value)
    if name == "rdu_link.bytes_per_second":
        return replace(changed, rdu_link_bytes_per_second=value)
    if owner == "peak_flops":
        return replace(changed, peak_flops={**summary.peak_flops, field: value})
    tiers = (
        # A size is a whole number already, which only its type does not say.
        replace(tier, bytes=int(value)) if field == "bytes" else _faster(tier, value)
        for tier in summary.tiers
    )
    # The names of figures were checked above, so that whatever is left belongs to a tier: its size
    # or its rate.
    pairs = zip(summary.tiers, tiers, strict=True)
    return replace(changed, tiers=tuple(new if old.name == owner else old for old, new in pairs))


def _faster(tier: Tier, rate: float) -> Tier:
    """Return a tier of another bandwidth; sections achieve the same shares of it as before."""
    times = rate / tier.bytes_per_second
    return replace(
        tier,
        bytes_per_second=rate,
        wide_bytes_per_second=tier.wide_bytes_per_second * times,
        narrow_bytes_per_second=tier.narrow_bytes_per_second * times,
    )


def _units(summary: TargetSummary) -> dict[str, str]:
    """Return the unit of every figure that a target has."""
    return {
        "link.latency": "s",
        "link.bytes_per_second": "bytes/s",
        "rdu_link.latency": "s",
        "rdu_link.bytes_per_second": "bytes/s",
        **{f"{tier.name}.bytes": "bytes" for tier in summary.tiers},
        **{f"{tier.name}.bytes_per_second": "bytes/s" for tier in summary.tiers},
        **{f"peak_flops.{dtype}": "operations/s" for dtype in summary.peak_flops},
    }


def _value(name: str, text: str, unit: str) -> float:
    """Read a number with a decimal prefix, and with the figure's own unit or none."""
    match = _VALUE.fullmatch(text)
    spelled = {"s": "s", "B": "bytes", "B/s": "bytes/s"}
    # 2m would be minutes to one reader, and milliseconds to another.
    if match is None or ((match[3] or unit == "s") and spelled.get(match[3]) != unit):
        raise UsageError(
            f"--what-if {name}={printable(text)}: expected a number in {unit}, as {_EXAMPLES[unit]}"
        )
    # As a decimal number, so that 1.1GB is a whole number of bytes: 1.1 of float64 is not exactly that.
    exact = Decimal(match[1]).scaleb(_POWERS[match[2]])
    # Between the same bounds as in a target file: a target that a file may not state is no supposition.
    whole = unit == "bytes"
    least, most = (1, LARGEST_WHOLE) if whole else (SMALLEST, LARGEST)
    value = int(exact) if whole else float(exact)
    if not least <= value <= most or (whole and value != exact):
        kind = "a whole number" if whole else "a number"
        raise UsageError(
            f"--what-if {name}={printable(text)}: expected {kind} from {least} to {most}"
        )
    return value
