"""Which rules of fusion a compilation has: those of the user's file, of the target, or both."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path

from samba_onnx.errors import UsageError
from samba_onnx.passes.planning.fusion.patterns import NO_RULES, FusionRules
from samba_onnx.passes.targets import Target
from samba_onnx.passes.targets.target_files import FOLDER
from samba_onnx.safety.files import printable

FUSING = "o1"
"""The level at which rules of fusion count."""


@dataclass(frozen=True)
class FusionOptions:
    """What the user says about rules of fusion."""

    file: str | os.PathLike[str] | None = None
    """A file of rules; None for those of the target."""
    defaults: bool | None = None
    """Whether the rules of the target count; None if there is no file."""


def chosen_rules(target: Target, level: str, options: FusionOptions) -> FusionRules:
    """Return the rules of a compilation, in the order in which they are tried.

    Args:
        target: The device, whose profile names a file of rules.
        level: The level; rules count at ``o1``.
        options: What the user says.

    Returns:
        The rules by priority, of equal ones the user's first. A rule of the user's takes the place of the
        target's of the same name.

    Raises:
        UsageError: A file cannot be used, or rules are stated for a level without any.
    """
    if level != FUSING:
        # Refused, not ignored: whoever states rules counts on their sections.
        if options.file is not None or options.defaults:
            what = (
                "rules of the target were" if options.file is None else "a file of fusion rules was"
            )
            raise UsageError(f"{what} stated for level {level}: they count at level {FUSING}")
        return NO_RULES
    stated = NO_RULES if options.file is None else _read(options.file)
    # A file alone takes the place of the target's rules: whoever wants both says so.
    with_defaults = options.file is None if options.defaults is None else options.defaults
    if not with_defaults or target.fusion_rules is None:
        return stated
    default = _of_target(target.fusion_rules)
    names = {rule.name for rule in stated.rules}
    replaced = [rule.name for rule in default.rules if rule.name in names]
    notes = [
        f"rule {printable(name)!r} of the file takes the place of the target's" for name in replaced
    ]
    rules = [*stated.rules, *(rule for rule in default.rules if rule.name not in names)]
    # A stable sort: of equal priorities the user's, which stand first, stay first.
    rules.sort(key=lambda rule: -rule.priority)
    return FusionRules(tuple(rules), (*stated.notes, *default.notes, *notes))


def _of_target(path: Path) -> FusionRules:
    """Read a target's rules; those of the package do not change while it runs."""
    return _built_in(path) if path.parent == FOLDER else _read(path)


@functools.cache
def _built_in(path: Path) -> FusionRules:
    return _read(path)


def _read(path: str | os.PathLike[str]) -> FusionRules:
    # What reads YAML takes as long to import as a small model to plan, which mostly has no rules.
    from samba_onnx.passes.planning.fusion.rule_files import read_rules

    return read_rules(path)
