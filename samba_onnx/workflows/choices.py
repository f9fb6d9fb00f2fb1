"""What users choose of a conversion, as the compiler takes it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, TypeAlias

from samba_onnx.passes.order import PipelineOptions
from samba_onnx.passes.planning.hosts import DEFAULT_HOST, load_host
from samba_onnx.passes.targets import Target, load_target
from samba_onnx.pef.host_summary import HostSummary
from samba_onnx.workflows.half_types import float16_type
from samba_onnx.workflows.pass_guard import PassGuard
from samba_onnx.workflows.planning import CompilerSettings, Progress, silent
from samba_onnx.workflows.sizes import Sizes, each_size

ASSUMED_SIZE: Final = 1
"""Size of a dynamic dimension of an input of which nobody states a size."""

InputShapes: TypeAlias = Mapping[str, tuple[int | str | None, ...]]


def chosen_settings(
    target: str | os.PathLike[str] | Target,
    level: str,
    progress: Progress | None,
    placement: str = "optimal",
    host: str | os.PathLike[str] | HostSummary = DEFAULT_HOST,
    *,
    check_passes: bool = False,
) -> CompilerSettings:
    """Look up target and host and check the level, before a model is loaded.

    Args:
        target: A target's name, a path to a target profile, or a loaded target.
        level: ``o0`` or ``o3``.
        progress: Called with the name of each step before it begins; None for nobody.
        placement: ``optimal`` or ``strict``.
        host: The CPU: ``default``, or a profile.
        check_passes: Whether a model is run after every pass that changes it.

    Raises:
        TargetError: The target or the host is unknown or malformed.
        UsageError: The level or the placement is unknown.
    """
    return CompilerSettings(
        load_target(target),
        level,
        progress=progress or silent,
        placement=placement,
        host=load_host(host),
        guard=PassGuard if check_passes else None,
    )


def chosen_options(
    target: Target,
    dims: Sizes | None,
    input_shapes: InputShapes | None,
    keep_dynamic: bool,
    float16: str | None,
) -> list[PipelineOptions]:
    """Return what the user says of sizes and types, for each graph.

    Args:
        target: The device.
        dims: Sizes of dynamic dimensions by name; several make a graph for each.
        input_shapes: Shapes of inputs by name.
        keep_dynamic: Whether other dimensions of inputs stay dynamic; otherwise they become 1.
        float16: The type in which float16 is computed, as ``convert`` takes it.
    """
    half = float16_type(target, float16)
    assumed = None if keep_dynamic else ASSUMED_SIZE
    return [
        PipelineOptions(sizes, input_shapes or {}, assumed, half) for sizes in each_size(dims or {})
    ]
