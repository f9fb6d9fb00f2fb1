"""What users say about rules of legalisation, by name."""

from __future__ import annotations

from collections.abc import Sequence

from samba_onnx.errors import UsageError
from samba_onnx.passes.planning.legalising import LegalisationOptions
from samba_onnx.passes.rewrites.legalisation import all_rules
from samba_onnx.safety.files import printable

EVERYTHING = "all"


def legalisation_options(legalise: str, no_legalise: Sequence[str]) -> LegalisationOptions:
    """Return what the user decides about rules.

    Args:
        legalise: ``auto``: a rule is applied where it makes a run shorter; ``all``: wherever it can be.
        no_legalise: Names of rules that are not applied; ``all`` for none.

    Raises:
        UsageError: There is no such choice or rule, or the two contradict each other.
    """
    if legalise not in ("auto", EVERYTHING):
        raise UsageError(f"legalise is {printable(legalise)!r}: expected auto or all")
    names = [rule.name for rule in all_rules()]
    for name in no_legalise:
        if name not in (*names, EVERYTHING):
            raise UsageError(
                f"there is no rule {printable(name)!r} of legalisation: expected all, or one of "
                f"{', '.join(names)}"
            )
    if EVERYTHING in no_legalise:
        if legalise == EVERYTHING:
            raise UsageError("all rules of legalisation are asked for and excluded: choose one")
        return LegalisationOptions(excluded=frozenset(names))
    return LegalisationOptions(frozenset(no_legalise), everything=legalise == EVERYTHING)
