"""The largest sizes of a dimension that fit into device memory, in records and for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from samba_onnx.pef.manifest import Manifest
from samba_onnx.report.layout import table, titled
from samba_onnx.report.memory_timeline import memory_timelines
from samba_onnx.report.report_records import record
from samba_onnx.report.sizes import run_graphs
from samba_onnx.report.times import modelled_time
from samba_onnx.report.units import byte_text, count_text, printable, second_text

__all__ = ["FitLimitReport", "FitReport", "FitSizeReport", "fit_phrase", "fit_size", "fit_text"]


@record
class FitSizeReport:
    """A size at which the model was planned."""

    size: int
    """Size of the dimension."""
    reserved_bytes: int | None
    """All regions, with several RDUs of one of them; null where the model has no plan of that size."""
    needed_bytes: int | None
    """The most that one call of a run needs at once; null where it does not fit at all."""
    streamed_bytes: int | None
    """What a run reads and writes in a tier that is not the fastest; null where it does not fit at all."""
    modelled_seconds: float | None
    """Modelled time of a run; null where it does not fit at all."""
    refusal: str
    """Why the model has no plan of that size, other than for memory; else empty."""


@record
class FitLimitReport:
    """The largest size with which everything lies in some tiers of off-chip memory."""

    tiers: tuple[str, ...]
    """The tiers, the fastest first; with more than one, what has no room in the first is streamed."""
    capacity_bytes: int
    """Their size, of one RDU."""
    largest: FitSizeReport | None
    """The largest size that fits; null where the first one does not."""
    next: FitSizeReport | None
    """A larger size, which does not fit; null where none was found."""
    exact: bool
    """Whether ``next`` is the next size, or the next multiple, after ``largest``."""
    limit: str
    """What ends it: ``memory``, ``model`` (see ``refusal`` of ``next``, or the largest size that its configuration
    states), or ``nothing`` that was found."""


@record
class FitReport:
    """How large one dimension can be while everything else stays as it is."""

    dimension: str
    """The dimension, as the user called it."""
    name: str
    """The model's name for it; empty where it has none."""
    inputs: tuple[str, ...]
    """The axes that have the size, as ``input[axis]``."""
    multiple: int
    """Sizes that were tried are multiples of this."""
    others: tuple[str, ...]
    """Dimensions whose sizes nobody stated, as ``seq=1``."""
    limits: tuple[FitLimitReport, ...]
    """For the fastest tier, then for all tiers together, where there are several."""
    planned: tuple[int, ...]
    """All sizes that were planned."""


def fit_size(
    size: int, manifest: Manifest | None, reserved: int | None, refusal: str
) -> FitSizeReport:
    """Return what planning came to at one size.

    Args:
        size: The size.
        manifest: The plan; None where there is none.
        reserved: Bytes of all regions; None where nobody knows.
        refusal: Why there is no plan, other than for memory.
    """
    if manifest is None:
        return FitSizeReport(size, reserved, None, None, None, refusal)
    # Graphs run one at a time: the one that needs the most decides.
    timelines = memory_timelines(manifest)
    return FitSizeReport(
        size=size,
        reserved_bytes=reserved,
        needed_bytes=max((timeline.peak_bytes for timeline in timelines), default=0),
        streamed_bytes=max((timeline.streamed_bytes for timeline in timelines), default=0),
        modelled_seconds=modelled_time(manifest, run_graphs(manifest)).total_seconds,
        refusal=refusal,
    )


def fit_phrase(fit: FitReport) -> str:
    """Return the answer for a headline, as ``batch up to 4,096 in hbm, 98,304 in hbm and ddr``.

    Args:
        fit: A dimension and its largest sizes.
    """
    name = printable(fit.name or fit.dimension)
    sizes: dict[str, str] = {}
    for limit in fit.limits:
        if limit.largest is None:
            continue
        # The search ends somewhere, which is no limit of the device.
        size = f"{limit.largest.size:,}" + (" or more" if limit.limit == "nothing" else "")
        # The slower tiers hold no larger one where something else than memory ends the search.
        if size not in sizes.values():
            sizes[" and ".join(limit.tiers)] = size
    places = ", ".join(f"{size} in {place}" for place, size in sizes.items())
    return f"{name} up to {places}" if places else f"no size of {name} fits"


def fit_text(fits: Sequence[FitReport]) -> RenderableType | None:
    """Return the block of all dimensions whose largest sizes were asked for; None without any."""
    return Group(*(_fit(fit) for fit in fits)) if fits else None


def _fit(fit: FitReport) -> RenderableType:
    cells = [_row(limit) for limit in fit.limits]
    columns = ("in", ">largest", ">reserved", ">needed at once", ">streamed", ">time per run")
    parts: list[RenderableType] = [table(columns, cells)]
    refusals: set[str] = set()
    for limit in fit.limits:
        reason = limit.next.refusal if limit.next else ""
        if reason not in refusals:  # one that says why is enough
            parts.append(Text(printable(_end(limit))))
        refusals.update({reason} - {""})
    if fit.multiple > 1:
        parts.append(Text(f"multiples of {fit.multiple:,} were tried"))
    # A size that was assumed decides the answer as much as what was asked for.
    if fit.others:
        parts.append(Text(printable(f"with {', '.join(fit.others)}, which nobody stated")))
    where = f"{fit.name or fit.dimension} ({', '.join(fit.inputs)})"
    sizes = count_text(len(fit.planned), "size")
    return titled(printable(f"Largest {where} that fits, planned at {sizes}"), *parts)


def _row(limit: FitLimitReport) -> tuple[str, ...]:
    place = f"{' and '.join(limit.tiers)} ({byte_text(limit.capacity_bytes)})"
    size = limit.largest
    if size is None or size.reserved_bytes is None:
        return place, "none", "-", "-", "-", "-"
    return (
        place,
        f"{size.size:,}",
        byte_text(size.reserved_bytes),
        byte_text(size.needed_bytes or 0),
        byte_text(size.streamed_bytes or 0),
        second_text(size.modelled_seconds or 0.0),
    )


def _end(limit: FitLimitReport) -> str:
    """Say why no larger size fits."""
    place = " and ".join(limit.tiers)
    following = limit.next
    if following is None:
        # Planning alone has no such end: it is the configuration that states the longest sequence.
        if limit.limit == "model":
            return f"{place}: the configuration of the model states no more"
        return f"{place}: no size that was planned is too large"
    what = f"{place}: {following.size:,}"
    taken = following.reserved_bytes or 0
    if following.refusal:
        sentence = f"{what} is refused: {following.refusal}"
    else:
        sentence = f"{what} takes {taken:,} of {limit.capacity_bytes:,} bytes"
        # Fewer bytes than there are, and no room all the same: no tier alone had enough left for a region.
        if taken <= limit.capacity_bytes:
            sentence += ", in regions that lie whole in one tier each and leave gaps"
    # A search ends after so many plans, which may leave a gap between what fits and what does not.
    return sentence if limit.exact else f"{sentence}; sizes between them were not tried"
