"""What users say about a compilation, by names and numbers, as what the compiler takes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import onnx_ir as ir

from samba_onnx.comparing.pass_guard import PassGuard
from samba_onnx.errors import UsageError
from samba_onnx.facts.defaults import DEFAULT_HOST, DEFAULT_LEGALISATION, DEFAULT_PLACEMENT
from samba_onnx.facts.names import in_a_list
from samba_onnx.loading import FixedInputs
from samba_onnx.passes.order import PipelineOptions
from samba_onnx.passes.planning.fusion.choosing import FUSING, FusionOptions, chosen_rules
from samba_onnx.passes.planning.hosts import load_host
from samba_onnx.passes.planning.legalising import LegalisationOptions
from samba_onnx.passes.rewrites.interface import dimensions
from samba_onnx.passes.rewrites.legalisation import all_rules
from samba_onnx.passes.rewrites.legalisation.proofs import NARROW
from samba_onnx.passes.sharding.programs import ParallelOptions
from samba_onnx.passes.targets import LOOPING, Target, load_target, with_condition
from samba_onnx.pef.host_summary import HostSummary
from samba_onnx.safety.files import printable
from samba_onnx.workflows.half_types import float16_type, precision_for
from samba_onnx.workflows.planning import CompilerSettings, Progress, silent
from samba_onnx.workflows.sizes import Sizes, each_size

__all__ = [
    "ASSUMED_SIZE", "EVERYTHING", "FUSING", "FusionOptions", "InputShapes", "ParallelOptions", "chosen_options", "chosen_settings",
    "legalisation_options", "looped_target", "with_fixed_inputs",
]  # fmt: skip

ASSUMED_SIZE: Final = 1
"""Size of a dynamic dimension of an input of which nobody states a size."""

InputShapes: TypeAlias = Mapping[str, tuple[int | str | None, ...]]

EVERYTHING = "all"
_ROUNDING: Final = "float64"


def looped_target(target: str | os.PathLike[str]) -> str:
    """Return the name of a target whose device loops over equal sections.

    Args:
        target: A name or path, with or without conditions, this one among them or not.
    """
    return with_condition(os.fspath(target), LOOPING)


def legalisation_options(legalise: str, no_legalise: str | Sequence[str]) -> LegalisationOptions:
    """Return what the user decides about rules.

    Args:
        legalise: ``auto``: a rule is applied where it makes a run shorter; ``all``: wherever it can be;
            ``float64``, alone or behind a comma: float64 may be computed in float32, which rounds.
        no_legalise: The name of a rule that is not applied, or several; ``all`` for none.

    Raises:
        UsageError: There is no such choice or rule, or the two contradict each other.
    """
    words = frozenset(legalise.split(","))
    if not words <= {DEFAULT_LEGALISATION, EVERYTHING, _ROUNDING}:
        raise UsageError(
            f"legalise is {printable(legalise)!r}: expected auto or all, float64, or all,float64"
        )
    names, left_out = [rule.name for rule in all_rules()], in_a_list(no_legalise)
    for name in left_out:
        if name not in (*names, EVERYTHING):
            raise UsageError(
                f"there is no rule {printable(name)!r} of legalisation: expected all, or one of "
                f"{', '.join(names)}"
            )
    if EVERYTHING in left_out:
        if EVERYTHING in words:
            raise UsageError("all rules of legalisation are asked for and excluded: choose one")
        left_out = tuple(names)
    if _ROUNDING in words and NARROW in left_out:
        raise UsageError(
            f"--legalise {_ROUNDING} is what rule {NARROW} does, which is excluded: choose one"
        )
    return LegalisationOptions(
        frozenset(left_out), everything=EVERYTHING in words, rounds_float64=_ROUNDING in words
    )


def chosen_settings(
    target: str | os.PathLike[str] | Target,
    level: str,
    progress: Progress | None,
    placement: str = DEFAULT_PLACEMENT,
    host: str | os.PathLike[str] | HostSummary = DEFAULT_HOST,
    legalisation: LegalisationOptions | None = None,
    check_passes: bool = False,
    fusion: FusionOptions | None = None,
    parallel: ParallelOptions | None = None,
) -> CompilerSettings:
    """Look up target and host and check the level, before a model is loaded.

    Args:
        target: A target's name, a path to a target profile, or a loaded target.
        level: ``o0``, ``o1`` or ``o3``.
        progress: Called with the name of each step before it begins; None for nobody.
        placement: ``optimal`` or ``strict``.
        host: The CPU: ``default``, or a profile.
        legalisation: Which rules write what the target lacks with other operators; None for those that
            make a run shorter.
        check_passes: Whether a model is run after every pass that changes it.
        fusion: Which rules of fusion count at ``o1``; None for those of the target.
        parallel: For how many RDUs programs are cut, and how; None for one RDU.

    Raises:
        TargetError: The target or the host is unknown or malformed.
        UsageError: The level or the placement is unknown, or a file of rules cannot be used.
    """
    device = load_target(target)
    settings = CompilerSettings(
        device,
        level,
        progress=progress or silent,
        placement=placement,
        host=load_host(host),
        legalisation=legalisation or LegalisationOptions(),
        guard=PassGuard if check_passes else None,
        parallel=parallel,
    )
    return replace(settings, rules=chosen_rules(device, level, fusion or FusionOptions()))


def chosen_options(
    target: Target,
    dims: Sizes | None,
    input_shapes: InputShapes | None,
    keep_dynamic: bool,
    float16: str | None,
    precision: str | None = None,
) -> list[PipelineOptions]:
    """Return what the user says of sizes and types, for each graph.

    Args:
        target: The device.
        dims: Sizes of dynamic dimensions by name; several make a graph for each.
        input_shapes: Shapes of inputs by name.
        keep_dynamic: Whether other dimensions of inputs stay dynamic; otherwise they become 1.
        float16: The type in which float16 is computed, as ``convert`` takes it.
        precision: In which types operators compute, as ``convert`` takes it.

    Raises:
        UsageError: There is no such choice, or the target lacks a type.
    """
    chosen = precision_for(target, precision)
    half = float16_type(target, float16, chosen)
    assumed = None if keep_dynamic else ASSUMED_SIZE
    return [
        PipelineOptions(sizes, input_shapes or {}, assumed, half, chosen)
        for sizes in each_size(dims or {})
    ]


def with_fixed_inputs(
    options: Sequence[PipelineOptions], fixed: FixedInputs, inputs: Sequence[ir.Value]
) -> list[PipelineOptions]:
    """Return what the user says of sizes for a model some of whose inputs were fixed as constants.

    Args:
        options: What was said, of the inputs that became constants, too.
        fixed: What became constants of the model.
        inputs: The inputs that are left.

    Raises:
        UsageError: A size contradicts the shape of a constant.
    """
    known = dict(fixed.sizes or {})
    left = {dim for value in inputs for dim in dimensions(value.shape) or ()}
    shapes = {record.name: record.shape for record in fixed.records}
    return [
        replace(
            each,
            dims={
                name: size
                for name, size in _joined(each.dims, known).items()
                if name in left or name not in known
            },
            input_shapes=_of_others(each.input_shapes, shapes),
        )
        for each in options
    ]


def _joined(dims: Mapping[str, int], known: Mapping[str, int]) -> dict[str, int]:
    for name, size in known.items():
        if dims.get(name, size) != size:
            raise UsageError(
                f"dimension {printable(name)!r} is given two sizes, {dims[name]} and, by the shape of an input that "
                f"is fixed as a constant, {size}"
            )
    return {**dims, **known}


def _of_others(
    stated: InputShapes, fixed: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int | str | None, ...]]:
    """Return the shapes that are stated of inputs which are no constants."""
    for name in stated.keys() & fixed.keys():
        sizes, shape = stated[name], fixed[name]
        if len(sizes) != len(shape) or any(
            isinstance(size, int) and size != length
            for size, length in zip(sizes, shape, strict=True)
        ):
            raise UsageError(
                f"input {printable(name)!r} is given two shapes, {list(sizes)} and, as a constant, {list(shape)}"
            )
    return {name: shape for name, shape in stated.items() if name not in fixed}
