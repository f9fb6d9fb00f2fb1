"""``--optimization-rules`` and ``--use-o1-default-rules``: which rules make sections at ``--level o1``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from samba_onnx.cli.options import SECTIONS
from samba_onnx.errors import UsageError

if TYPE_CHECKING:
    from samba_onnx.passes.planning.fusion.choosing import FusionOptions

RulesOption = Annotated[
    str | None,
    typer.Option(
        "--optimization-rules",
        metavar="FILE",
        help="With --level o1: rules of fusion in YAML, in the shape of SambaFlow's (docs/fusion.md); those "
        "of the target if left out.",
        rich_help_panel=SECTIONS,
    ),
]
DefaultRulesOption = Annotated[
    bool,
    typer.Option(
        "--use-o1-default-rules",
        help="With --optimization-rules: the target's rules count, too.",
        rich_help_panel=SECTIONS,
    ),
]


def fusion_choices(level: str, rules: str | None, default_rules: bool) -> dict[str, Any]:
    """Return what the options say about rules of fusion, as ``convert`` and ``analyze`` take it.

    Args:
        level: The level.
        rules: A file of rules; None for those of the target.
        default_rules: Whether those count beside the file's.

    Raises:
        UsageError: Rules are stated for another level than ``o1``.
    """
    if level != "o1":
        for option, stated in (
            ("--optimization-rules", rules is not None),
            ("--use-o1-default-rules", default_rules),
        ):
            if stated:
                raise UsageError(f"{option} counts at --level o1, and the level is {level}")
    return {"optimization_rules": rules, "default_rules": default_rules or None}


def torch_fusion(choices: dict[str, Any]) -> FusionOptions:
    """Return choices as what converts PyTorch models takes them.

    Args:
        choices: As :func:`fusion_choices` returned them.
    """
    from samba_onnx.passes.planning.fusion.choosing import FusionOptions

    return FusionOptions(choices["optimization_rules"], choices["default_rules"])
