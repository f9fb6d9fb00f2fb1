"""What users say about a compilation, by names and numbers, as what the compiler takes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import onnx_ir as ir

from samba_onnx.compiling.choices import ShardingMode
from samba_onnx.compiling.half_types import float16_type, precision_for
from samba_onnx.compiling.model_options import InputShapes
from samba_onnx.compiling.options import CompileOptions
from samba_onnx.compiling.planning import CompilerSettings, Progress, silent
from samba_onnx.compiling.planning_options import ChipOptions
from samba_onnx.compiling.sizes import each_size
from samba_onnx.errors import UsageError
from samba_onnx.facts.defaults import DEFAULT_LEGALISATION
from samba_onnx.facts.names import in_a_list
from samba_onnx.loading import FixedInputs
from samba_onnx.passes.order import PipelineOptions
from samba_onnx.passes.planning.fusion.choosing import FusionOptions, chosen_rules
from samba_onnx.passes.planning.legalising import LegalisationOptions
from samba_onnx.passes.rewrites.interface import dimensions
from samba_onnx.passes.rewrites.legalisation import all_rules
from samba_onnx.passes.rewrites.legalisation.proofs import NARROW
from samba_onnx.passes.sharding.sharded_programs import ParallelOptions
from samba_onnx.passes.targets import LOOPING, Target, load_target, with_condition
from samba_onnx.passes.timing.hosts import load_host
from samba_onnx.passes.watching import PassWatch
from samba_onnx.safety.files import printable

__all__ = [
    "ASSUMED_SIZE",
    "EVERYTHING",
    "chosen_target",
    "compiler_settings",
    "legalisation_options",
    "pipeline_options",
    "with_fixed_inputs",
]

ASSUMED_SIZE: Final = 1
"""Size of a dynamic dimension of an input of which nobody states a size."""

EVERYTHING = "all"
_ROUNDING: Final = "float64"


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


def compiler_settings(
    options: CompileOptions, progress: Progress | None = None
) -> CompilerSettings:
    """Look up target and host and check what goes together, before a model is loaded.

    Args:
        options: What the user decides.
        progress: Called with the name of each step before it begins; None for nobody.

    Raises:
        TargetError: The target or the host is unknown or malformed.
        UsageError: A rule is unknown, a file of rules cannot be used, or two options contradict each other.
    """
    sections, placement = options.sections, options.placement
    target = chosen_target(options)
    level = str(sections.level)
    rules = FusionOptions(sections.optimization_rules, sections.default_rules)
    return CompilerSettings(
        target,
        level,
        progress=progress or silent,
        placement=str(placement.placement),
        host=load_host(placement.host),
        legalisation=legalisation_options(placement.legalise, placement.no_legalise),
        guard=_watch if options.checks.check_passes else None,
        parallel=_parallel(options.chips),
        rules=chosen_rules(target, level, rules),
        texts=options.texts(),
    )


def _watch(model: ir.Model) -> PassWatch:
    # Only who asks for it pays for what compares.
    from samba_onnx.comparing.pass_guard import PassGuard

    return PassGuard(model)


def chosen_target(options: CompileOptions) -> Target:
    """Return the device, which loops over equal sections where that is asked for.

    Args:
        options: What the user decides.

    Raises:
        TargetError: The target is unknown or malformed.
        UsageError: A loaded target is asked to loop.
    """
    target = options.device.target
    if not options.device.kernel_looping:
        return load_target(target)
    if isinstance(target, Target):
        raise UsageError(
            f"kernel_looping is asked of a target that is loaded: load {target.name}:{LOOPING}"
        )
    return load_target(with_condition(os.fspath(target), LOOPING))


def _parallel(chips: ChipOptions) -> ParallelOptions | None:
    """Return for how many RDUs programs are cut, and how; None for one."""
    if chips.n_chips != 1:
        return ParallelOptions(str(chips.tensor_parallel or ShardingMode.WEIGHT), chips.n_chips)
    if chips.tensor_parallel is not None:
        raise UsageError(
            "--tensor-parallel cuts a program for several RDUs: say how many with --n-chips"
        )
    return None


def pipeline_options(options: CompileOptions, target: Target) -> list[PipelineOptions]:
    """Return what the user says of sizes and types, for each graph.

    Args:
        options: What the user decides.
        target: The device.

    Raises:
        UsageError: The target lacks a type, or sizes contradict each other.
    """
    sizes, numbers = options.sizes, options.numbers
    precision = precision_for(target, numbers.precision)
    half = float16_type(target, numbers.float16, precision)
    assumed = None if sizes.keep_dynamic else ASSUMED_SIZE
    return [
        PipelineOptions(each, sizes.input_shapes, assumed, half, precision)
        for each in each_size(sizes.dims)
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
    # A dimension that only constants had is asked of no input any more, and
    # would be refused as unknown.
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
