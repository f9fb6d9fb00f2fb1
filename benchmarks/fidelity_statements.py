"""What published statements say of ways to run a program, and what the model of time gives: the second table of ``docs/fidelity.md``.

A statement has a range by which one way is faster than another, or a share of the chip, and no figure of one
program; :func:`statements` computes each for programs of published rows. Which ones follows a rule: both papers are about 8 sockets of SN40L, and do not say in what is stored here which model
is at which end of a range. So decoding is both published models on 8 sockets, prefill the published prompt,
and training, of which nothing is published on an SN40L, GPT-2 of 6 layers compiled for one socket of it. Fusion and launches
are compared without kernel looping, which is younger; launches at ``o3``, of one and the same program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from benchmarks.fidelity_programs import planned
from benchmarks.published import HIGH, LOW, PublishedRow, published_figures, published_row
from samba_onnx.compiling.planning import PlannedPrograms
from samba_onnx.passes.targets import load_target
from samba_onnx.passes.timing.matrix_products import units_of
from samba_onnx.passes.timing.schedule_time import run_time
from samba_onnx.pef.exchanges import rdu_calls
from samba_onnx.pef.manifest import Call, Manifest, Section
from samba_onnx.pef.target_summary import TimingFigures

__all__ = [
    "NOT_MODELLED", "SOURCES", "Finding", "Statement", "bandwidth", "by_host", "fusion", "looping", "statements",
    "table", "units",
]  # fmt: skip

TARGET: Final = "sn40l"
SOCKETS: Final = 8
"""Of the statement about copies."""
TOKENS: Final = ("sn40l/llama/token/llama-3-8b", "sn40l/llama/token/llama-3-70b")
PROMPTS_AND_STEPS: Final = ("sn40l/llama-3-8b/prompt", "sn30/gpt2/o3/1600x6")


@dataclass(frozen=True)
class Finding:
    """What the model gives of a statement, for one program."""

    program: str
    """The row that the program is of, its target and how many RDUs it is cut for."""
    value: float
    """In the unit of the statement."""


@dataclass(frozen=True)
class Statement:
    """A published statement, and what the model gives."""

    id: str
    what: str
    low: float
    high: float
    unit: str
    findings: tuple[Finding, ...] = ()
    """One for each program; none where the model does not have what the statement is about."""
    reason: str = ""
    """Why there is no finding."""

    def holds(self, value: float) -> bool:
        """Return whether a value is within the published range, or as near to a single figure as rows have to be."""
        if self.low < self.high:
            return self.low <= value <= self.high
        return LOW <= value / self.low <= HIGH

    @property
    def within(self) -> bool:
        """Whether it was computed, and holds for all of its programs."""
        return bool(self.findings) and all(self.holds(one.value) for one in self.findings)


def fusion(row: PublishedRow, target: str) -> float:
    """Return by what factor operators that share sections are faster than a section for each.

    Args:
        row: Of the program.
        target: The device.
    """
    return _seconds(planned(row, target=target, level="o0").manifest) / _seconds(
        planned(row, target=target, level="o3").manifest
    )


def by_host(row: PublishedRow, target: str) -> float:
    """Return by what factor launches from a schedule on the device are faster than the same ones by the host.

    Args:
        row: Of the program.
        target: A device that launches sections itself.

    Raises:
        ValueError: The target has no figures of launches.
    """
    manifest = planned(row, target=target, level="o3").manifest
    seconds = _figures(manifest).host_launch_seconds
    sections = tuple(_launched_in(section, seconds) for section in manifest.sections)
    return _seconds(replace(manifest, sections=sections)) / _seconds(manifest)


def looping(row: PublishedRow, target: str) -> float:
    """Return by what factor equal programs that are launched once are faster than a launch for each.

    Args:
        row: Of the program.
        target: A device without kernel looping.
    """
    each = planned(row, target=target, level="o3").manifest
    looped = planned(row, target=f"{target}:kernel-looping", level="o3").manifest
    return _seconds(each) / _seconds(looped)


def units(row: PublishedRow, target: str) -> float:
    """Return the share of the chip's compute units, each with its memory unit, that a fused decoder layer has.

    Args:
        row: Of a program of which most launches are decoder layers.
        target: A device without kernel looping.

    Raises:
        ValueError: No program is launched again.
    """
    plan = planned(row, target=target, level="o3")
    layer = {call.stage for call in _layer(plan)}
    nodes = [node for stage, group in plan.graphs[0].plan.stages if stage in layer for node in group.nodes]  # fmt: skip
    target_summary = plan.manifest.target
    own = sum(units_of(node, target_summary) for node in nodes)
    return own / _figures(plan.manifest).compute_units


def bandwidth(row: PublishedRow, target: str) -> float:
    """Return the share of the quoted bandwidth of HBM that a fused decoder layer has, without its launch.

    The sums of its results over RDUs, during which it reads no weights, are in its time.

    Args:
        row: Of a program of which most launches are decoder layers, with weights and cache in HBM.
        target: A device without kernel looping.

    Raises:
        ValueError: No program is launched again.
    """
    plan = planned(row, target=target, level="o3")
    manifest, layer = plan.manifest, _layer(plan)
    stages = manifest.stages()
    times = rdu_calls(manifest.graphs[0], stages, manifest.target)
    seconds = sum(times[call.id].seconds - times[call.id].launch for call in layer)
    moved = sum(stage.bytes for call in layer if isinstance(stage := stages[call.stage], Section))
    return moved / seconds / manifest.target.tier("hbm").bytes_per_second


@dataclass(frozen=True)
class Source:
    """How a statement is computed."""

    compute: Callable[[PublishedRow, str], float]
    """From the row of a program, and a target."""
    rows: tuple[str, ...]
    """The programs."""


SOURCES: Final[Mapping[str, Source]] = MappingProxyType(
    {
        "fusion/training": Source(fusion, PROMPTS_AND_STEPS),
        "fusion/decoding": Source(fusion, TOKENS),
        "launch/decoding": Source(by_host, TOKENS),
        "launch/training": Source(by_host, PROMPTS_AND_STEPS),
        "looping": Source(looping, TOKENS),
        "layer/units": Source(units, TOKENS),
        "layer/bandwidth": Source(bandwidth, TOKENS),
    }
)
"""By the id of the statement."""


def _no_copies() -> str:
    rate = SOCKETS * load_target(TARGET).summary.tier("ddr").wide_bytes_per_second / 1e12
    return (
        "no copy between tiers is modelled, a value stays in the tier that the plan gives it; "
        f"DDR of {SOCKETS} sockets has {rate:.2f} TB/s in the target"
    )


NOT_MODELLED: Final[Mapping[str, Callable[[], str]]] = MappingProxyType({"copy": _no_copies})
"""Why a statement is not computed, by its id."""


def statements(text: str = "") -> Iterator[Statement]:
    """Compile programs and yield published statements with what the model gives.

    Plans are those of :func:`benchmarks.fidelity_programs.planned`, which keeps them.

    Args:
        text: Only statements whose id has it.

    Yields:
        Each statement, in the order of the file.
    """
    for figure in published_figures("statements"):
        name = figure["id"]
        if text not in name:
            continue
        bare = Statement(name, figure["what"], figure["low"], figure["high"], figure["unit"])
        if name in NOT_MODELLED:
            yield replace(bare, reason=NOT_MODELLED[name]())
            continue
        source = SOURCES[name]
        rows = [published_row(row) for row in source.rows]
        findings = tuple(Finding(_program(row), source.compute(row, TARGET)) for row in rows)
        yield replace(bare, findings=findings)


def table(chosen: Sequence[Statement]) -> str:
    """Return statements as a Markdown table, with how many hold behind it.

    Args:
        chosen: The statements.
    """
    lines = ["| statement | published | program | modelled | |", "|---|---|---|---|---|"]
    for one in chosen:
        scale = f"{one.low:g}" if one.low == one.high else f"{one.low:g} to {one.high:g}"
        first = f"| {one.id}: {one.what} | {scale}, {one.unit} |"
        if not one.findings:
            lines.append(f"{first} | not computed: {one.reason} | |")
        for number, finding in enumerate(one.findings):
            head = "| | |" if number else first
            verdict = "within" if one.holds(finding.value) else "**outside**"
            lines.append(f"{head} {finding.program} | {finding.value:.4g} | {verdict} |")
    computed = [one for one in chosen if one.findings]
    lines += [
        "",
        f"- statements within the published range for all of their programs: {sum(one.within for one in computed)} "
        f"of {len(computed)}; not computed: {len(chosen) - len(computed)}",
        f"- a statement with one figure holds from {LOW:g} to {HIGH:g} of it, as a row does",
    ]
    return "\n".join(lines)


def _program(row: PublishedRow) -> str:
    sockets = f"{row.rdus} sockets" if row.rdus > 1 else "1 socket"
    return f"{row.id} on `{TARGET}`, {sockets}"


def _seconds(manifest: Manifest) -> float:
    return run_time(manifest, manifest.graphs[0]).on_rdu


def _figures(manifest: Manifest) -> TimingFigures:
    timing = manifest.target.timing
    if timing is None:
        raise ValueError(f"target {manifest.target.name} has no figures of launches and units")
    return timing


def _launched_in(section: Section, seconds: float) -> Section:
    """Return a section whose launch takes another time, if it has one."""
    if section.time is None or not section.time.launch:
        return section
    time = replace(section.time, launch=seconds)
    return replace(section, time=time, seconds=time.seconds)


def _layer(plan: PlannedPrograms) -> Sequence[Call]:
    """Return the calls of a launch of the program that is launched most often: a decoder layer."""
    manifest = plan.manifest
    stages = manifest.stages()
    programs: list[list[Call]] = []
    for call in manifest.graphs[0].calls:
        stage = stages[call.stage]
        if not programs or (isinstance(stage, Section) and stage.time and stage.time.launch):
            programs.append([])
        programs[-1].append(call)
    kinds = [_kind(program, stages) for program in programs]
    kind, count = Counter(kinds).most_common(1)[0]
    if count == 1:
        raise ValueError(f"{manifest.graphs[0].name}: no program is launched again")
    return programs[kinds.index(kind)]


def _kind(program: Sequence[Call], stages: Mapping[int, object]) -> tuple[tuple[int, int], ...]:
    """Return what programs have in common that do the same, as far as sections say it."""
    sections = [stages[call.stage] for call in program]
    return tuple((one.flops, one.bytes) for one in sections if isinstance(one, Section))
