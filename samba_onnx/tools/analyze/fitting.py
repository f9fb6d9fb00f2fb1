"""``samba-port analyze --fit``: the largest sizes of a dimension that fit into device memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from samba_onnx.cli.options import SHAPES
from samba_onnx.cli.progress import Activity
from samba_onnx.compiling.choices import ShardingMode
from samba_onnx.errors import OutOfDeviceMemoryError, UsageError
from samba_onnx.facts.figures import LARGEST_WHOLE

if TYPE_CHECKING:
    from samba_onnx.compiling.largest_sizes import FitSearch, LargestSize, SizePlan
    from samba_onnx.compiling.model_options import SizeOptions
    from samba_onnx.compiling.options import CompileOptions
    from samba_onnx.compiling.planning_options import ChipOptions
    from samba_onnx.compiling.size_dimensions import Sizing
    from samba_onnx.pef.manifest import Manifest
    from samba_onnx.pef.target_summary import TargetSummary
    from samba_onnx.report import Report
    from samba_onnx.report.fitting import FitLimitReport, FitReport, FitSizeReport

__all__ = [
    "FitMultipleOption",
    "FitOption",
    "FitStart",
    "fit_report",
    "onnx_sizing",
    "refuse_fit",
    "shown",
    "start",
]

_ENDLESS: Final = f"{LARGEST_WHOLE}B"
"""Size of a memory in which every program has room."""

FitOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fit",
        metavar="DIMENSION",
        help="Find the largest size of a dimension that fits into HBM, and into HBM and DDR: batch, seq, "
        "the model's name of one, or axes of inputs, as ids[1]; repeatable (docs/memory.md).",
        rich_help_panel=SHAPES,
    ),
]
FitMultipleOption = Annotated[
    int,
    typer.Option(
        "--fit-multiple",
        metavar="N",
        min=1,
        help="Sizes that --fit tries are multiples of N.",
        rich_help_panel=SHAPES,
    ),
]


def refuse_fit(
    texts: Sequence[str] | None, sizes: SizeOptions, *, supposes: bool, multiple: int
) -> None:
    """Refuse to look for the largest size beside options that leave none, or several plans.

    Args:
        texts: The dimensions that are asked for.
        sizes: What the user says of sizes.
        supposes: Whether there is a supposition.
        multiple: The number of which sizes are to be multiples.

    Raises:
        UsageError: There is such an option, or a multiple and no dimension.
    """
    if not texts:
        if multiple > 1:
            raise UsageError("--fit-multiple is for --fit: say which dimension, as --fit seq")
        return
    if supposes:
        raise UsageError(
            "--what-if compares two plans: look for sizes that fit without it, or with --target FILE"
        )
    if sizes.keep_dynamic:
        raise UsageError("--keep-dynamic leaves sizes open, and --fit looks for one: give either")
    if any(not isinstance(size, int) for size in sizes.dims.values()):
        raise UsageError("--fit looks at one graph: give --dim one size per dimension")


def onnx_sizing(
    text: str,
    manifest: Manifest,
    options: CompileOptions,
    plan: Callable[[CompileOptions], Manifest],
) -> Sizing:
    """Return how an ONNX model is planned at sizes of a dimension.

    Args:
        text: What the user calls the dimension.
        manifest: The plan of the model as the user states its sizes.
        options: These, among others.
        plan: Plans the model with other such options.

    Raises:
        UsageError: It cannot be told which dimension is meant, or all are static.
    """
    from samba_onnx.compiling.size_dimensions import Sizing, onnx_dimension, sized_options

    dimension = onnx_dimension(text, manifest)
    return Sizing(dimension, lambda size: plan(sized_options(options, dimension, size, manifest)))


@dataclass(frozen=True)
class FitStart:
    """Where a search begins: the plan of the model as the user states its sizes."""

    manifest: Manifest
    """The plan; where it has no room on the device, that of one whose memory has no end."""
    target: TargetSummary
    """The device itself."""
    obstacle: OutOfDeviceMemoryError | None = None
    """Why the plan has no room; None where it has."""


def start(plan: Callable[[Any], Manifest], target: str) -> FitStart:
    """Return where a search for a size begins: sizes that do not fit are a reason to look for others.

    Args:
        plan: Plans the model for a target.
        target: Its name.

    Raises:
        SambaError: The model cannot be planned for another reason than memory.
    """
    try:
        manifest = plan(target)
    except OutOfDeviceMemoryError as error:
        from samba_onnx.passes.planning.allocation import off_chip_tiers
        from samba_onnx.passes.targets import load_target
        from samba_onnx.passes.targets.hypotheses import hypothetical

        device = load_target(target)
        slowest = off_chip_tiers(device.summary)[-1].name
        # To try other sizes, the search needs a plan at this one, which has room there.
        endless = hypothetical(device, [f"{slowest}.bytes={_ENDLESS}"])
        return FitStart(plan(endless), device.summary, error)
    return FitStart(manifest, manifest.target)


def shown(begin: FitStart, searches: Sequence[tuple[FitReport, Manifest | None]]) -> Report:
    """Return the report with its largest sizes: of the plan that the user stated, or of the largest that fits.

    Args:
        begin: Where the searches began.
        searches: What each came to, with the plan at the largest size that fits.

    Raises:
        OutOfDeviceMemoryError: The stated sizes have no room, and nor has any of the first dimension.
    """
    from samba_onnx.report import Report
    from samba_onnx.report.fitting import fit_phrase

    fits = tuple(fit for fit, _ in searches)
    # What was asked for is part of the first line, which may be all that is printed.
    found = f"; {'; '.join(map(fit_phrase, fits))}"
    if begin.obstacle is None:
        report = Report.from_manifest(begin.manifest)
        return replace(report, headline=report.headline + found, fits=fits)
    fit, manifest = searches[0]
    largest = fit.limits[-1].largest
    if manifest is None or largest is None:
        raise begin.obstacle
    report = Report.from_manifest(manifest)
    note = (
        f"The size of {fit.name or fit.dimension} that was stated does not fit: this report is of "
        f"{largest.size:,}, the largest that does."
    )
    return replace(report, headline=report.headline + found, fits=fits, notes=(note, *report.notes))


def fit_report(
    sizing: Sizing,
    begin: FitStart,
    multiple: int,
    chips: ChipOptions,
    activity: Activity,
) -> tuple[FitReport, Manifest | None]:
    """Return the largest size of a dimension that fits, all else as it was planned.

    Args:
        sizing: The dimension.
        begin: The plan at the size that it has there.
        multiple: Sizes that are tried are multiples of this.
        chips: For how many RDUs the program is cut, and how.
        activity: Shows what is planned.

    Returns:
        The answer, and the plan at the largest size that fits into all tiers; None where none does.

    Raises:
        SambaError: The model cannot be planned at the first multiple.
    """
    from samba_onnx.compiling.largest_sizes import MOST_PLANNINGS, FitSearch

    dimension = sizing.dimension
    if chips.tensor_parallel is ShardingMode.BATCH and dimension.text == "batch":
        multiple = math.lcm(multiple, chips.n_chips)  # each has an equal part

    def progress(size: int, count: int) -> None:
        activity.step(f"fit {dimension.text}: plan {size:,}")
        activity.count(count, MOST_PLANNINGS)

    search = FitSearch(
        sizing.plan,
        begin.target,
        first=dimension.size,
        step=multiple,
        most=sizing.most,
        known={} if begin.obstacle else {dimension.size: begin.manifest},
        progress=progress,
    )
    return _answer(search, sizing, begin.manifest, multiple)


def _answer(
    search: FitSearch, sizing: Sizing, manifest: Manifest, multiple: int
) -> tuple[FitReport, Manifest | None]:
    """Search, and put the answer together."""
    from samba_onnx.report.fitting import FitReport

    dimension, answers = sizing.dimension, search.largest()
    # The last is for all tiers together: what is streamed from the slower ones fits all the same.
    largest = answers[-1].largest
    report = FitReport(
        dimension=dimension.text,
        name=dimension.name,
        inputs=dimension.inputs,
        multiple=multiple,
        # Whoever stated a size knows it; one that was assumed decides the answer unseen.
        others=tuple(
            f"{bound.name or bound.inputs[0]}={bound.size}"
            for bound in manifest.bound_dimensions
            if bound.assumed and bound.inputs != dimension.inputs
        ),
        limits=tuple(_limit(answer, multiple, sizing.most) for answer in answers),
        planned=search.sizes,
    )
    return report, None if largest is None else largest.manifest


def _limit(answer: LargestSize, step: int, most: int | None) -> FitLimitReport:
    from samba_onnx.report.fitting import FitLimitReport

    low, high = answer.largest, answer.next
    least = 0 if low is None else low.size
    limit = "memory" if high and not high.refusal else "model" if high else "nothing"
    # Nothing larger was tried where the model takes nothing larger.
    if high is None and most is not None and least + step > most:
        limit = "model"
    return FitLimitReport(
        tiers=answer.tiers,
        capacity_bytes=answer.capacity,
        largest=_size(low),
        next=_size(high),
        exact=high is not None and high.size - least == step,
        limit=limit,
    )


def _size(plan: SizePlan | None) -> FitSizeReport | None:
    from samba_onnx.report.fitting import fit_size

    if plan is None:
        return None
    return fit_size(plan.size, plan.manifest, plan.reserved, plan.refusal)
