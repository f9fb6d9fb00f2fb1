"""Options of planning: the RDUs, what runs on them, and in which sections."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from samba_onnx.compiling.choices import Level, PlacementMode, ShardingMode
from samba_onnx.compiling.option import CommandFlag, option
from samba_onnx.compiling.sambaflow_arguments import Argument, compiler_row
from samba_onnx.facts.defaults import (
    DEFAULT_HOST,
    DEFAULT_LEGALISATION,
    DEFAULT_LEVEL,
    DEFAULT_PLACEMENT,
    DEFAULT_TARGET,
)

if TYPE_CHECKING:
    from samba_onnx.passes.targets import Target
    from samba_onnx.pef.host_summary import HostSummary

__all__ = ["ChipOptions", "PlacementOptions", "SectionOptions", "TargetOptions"]

_ARCHITECTURES: Final = {
    "sn10": "sn10",
    "sn20": "sn10",
    "sn30": "sn30",
    "sn40": "sn40l",
    "sn40l": "sn40l",
}
"""Target by what SambaFlow calls an architecture; SN20 has the chips of SN10."""


def _asked(level: Level) -> Any:
    """Return what reads a level's own flag, which says something where it is given only."""
    return lambda given: level if given is True else None


def _level(given: Any) -> Level | None:
    """Return the level of ``optim_level``, a number or a name; others say nothing, as SambaFlow's default."""
    name = str(given).lower()
    # o3 is the default of SambaFlow: programs state it without having chosen it.
    return {"o0": Level.O0, "0": Level.O0, "o1": Level.O1, "1": Level.O1}.get(name)


@dataclass(frozen=True)
class TargetOptions:
    """The RDU."""

    target: str | os.PathLike[str] | Target = option(
        DEFAULT_TARGET,
        "Device: sn10, sn30, sn40l, or a TOML file of your own; conditions behind a colon, as sn30:4tiles "
        "(docs/timing.md).",
        flag=CommandFlag(str, metavar="TARGET", default=DEFAULT_TARGET),
        python="Or a loaded target.",
        is_path=True,
        settings=(
            compiler_row(
                "arch",
                "the RDU to compile for",
                choices=tuple(_ARCHITECTURES),
                states=lambda given: _ARCHITECTURES.get(str(given).lower()),
            ),
        ),
    )
    kernel_looping: bool = option(
        False,
        "Equal sections that follow each other are launched once, as with --target TARGET:kernel-looping.",
        flag=CommandFlag(bool, default=False),
        settings=(
            compiler_row(
                "kernel_looping",
                "launch equal sections that follow each other once",
                bool,
                states=lambda given: bool(given) or None,
            ),
        ),
    )


@dataclass(frozen=True)
class SectionOptions:
    """How nodes on the RDU become sections."""

    level: Level = option(
        Level(DEFAULT_LEVEL),
        "o0: a section per operator; o1: sections by rules of fusion; o3: sections as large as on-chip memory "
        "allows.",
        flag=CommandFlag(str, metavar="o0|o1|o3", default=DEFAULT_LEVEL),
        choices=Level,
        settings=(
            compiler_row("o0", "every operator a section", bool, states=_asked(Level.O0)),
            compiler_row("o1", "sections by rules of fusion", bool, states=_asked(Level.O1)),
            compiler_row("o3", "sections as large as can be", bool),
            compiler_row("optim_level", "o0, o1 or o3", Any, experimental=True, states=_level),
        ),
    )
    optimization_rules: str | os.PathLike[str] | None = option(
        None,
        "With --level o1: rules of fusion in YAML, in the shape of SambaFlow's (docs/fusion.md); those of the "
        "target if left out.",
        flag=CommandFlag(str, metavar="FILE"),
        panel="Sections",
        is_path=True,
        settings=(
            compiler_row(
                "optimization_rules",
                "file with rules of fusion, for o1",
                states=lambda given: given or None,
            ),
        ),
    )
    default_rules: bool | None = option(
        None,
        "With --optimization-rules: the target's rules count, too.",
        flag=CommandFlag(bool, "use_o1_default_rules", default=False),
        read=lambda given: given or None,
        panel="Sections",
        settings=(
            compiler_row(
                "use_o1_default_rules",
                "add the target's rules of fusion to those of the file",
                Any,
                experimental=True,
                states=lambda given: str(given).lower() in ("true", "1", "yes"),
            ),
        ),
    )


@dataclass(frozen=True)
class PlacementOptions:
    """Which nodes run on the RDU, and what the others are counted with."""

    placement: PlacementMode = option(
        PlacementMode(DEFAULT_PLACEMENT),
        "optimal: nodes beside a fallback run on the CPU, too, where that saves time; strict: all that the target "
        "supports runs on the RDU.",
        flag=CommandFlag(str, metavar="optimal|strict", default=DEFAULT_PLACEMENT),
        choices=PlacementMode,
    )
    host: str | os.PathLike[str] | HostSummary = option(
        DEFAULT_HOST,
        "CPU that fallbacks' times are modelled for: default; measured, by samba-port calibrate; or a TOML file of "
        "your own.",
        flag=CommandFlag(str, metavar="PROFILE", default=DEFAULT_HOST),
        python="Or a loaded profile; measured is for command lines.",
        is_path=True,
    )
    legalise: str = option(
        DEFAULT_LEGALISATION,
        "auto: operators that the device lacks are written with others where that makes a run shorter; all: "
        "wherever it can be done; float64, or all,float64: float64 may be computed in float32, too, and verify says "
        "how far that is off (docs/legalisation.md).",
        flag=CommandFlag(str, metavar="auto|all|float64", default=DEFAULT_LEGALISATION),
    )
    no_legalise: str | Sequence[str] = option(
        (),
        "A rule of that which is not applied, as resize; or all; repeatable.",
        flag=CommandFlag(list[str], metavar="RULE"),
        python="One, or several.",
    )


@dataclass(frozen=True)
class ChipOptions:
    """The RDUs that a program is cut for."""

    n_chips: int = option(
        1,
        "RDUs that the program is cut for, up to 16.",
        flag=CommandFlag(int, metavar="N", default=1),
        panel="Several RDUs",
        settings=(
            Argument(
                "n_chips",
                "number of RDUs",
                kind=int,
                default=1,
                hint=True,
                beside="tensor_parallel",
                states=int,
            ),
        ),
    )
    tensor_parallel: ShardingMode | None = option(
        None,
        "weight: linear layers, heads of attention and embeddings are cut, as without this option; batch: the batch "
        "is, and every RDU has all weights (docs/tensor_parallel.md).",
        flag=CommandFlag(str, metavar="weight|batch", shows_default=False),
        panel="Several RDUs",
        choices=ShardingMode,
        settings=(
            compiler_row(
                "tensor_parallel",
                "cut tensors between RDUs",
                choices=("batch", "weight"),
                hint=True,
                beside="n_chips",
                states=lambda given: str(given) if given else None,
            ),
        ),
    )
