"""What ``samba-port tokens`` found: how fast a language model answers."""

from __future__ import annotations

from dataclasses import field

from samba_onnx.pef.manifest import Manifest
from samba_onnx.report import Report
from samba_onnx.report.headline import most_text
from samba_onnx.report.report_records import SCHEMA_VERSION, record
from samba_onnx.report.units import byte_text, count_text, printable, second_text
from samba_onnx.tools.tokens.text_generators import GenerationSizes, TextGenerator


@record
class PhaseReport:
    """One of the two programs: that of a prompt, or that of a token."""

    seconds: float
    """Modelled time of a run; at least that, where nodes on the CPU are not modelled."""
    unmodelled_cpu_nodes: int
    """Nodes on the CPU whose time is not modelled."""
    most: str
    """What takes most of it, as ``57 % of it off-chip memory``."""
    parts: dict[str, float]
    """Seconds by what takes them, as in a report on a model."""
    rdu_nodes: int
    """Nodes on the RDU."""
    cpu_nodes: int
    """Nodes that fall back to the CPU."""
    fallbacks: dict[str, int]
    """Their number by operator, most first."""
    flops: int
    """Floating-point operations."""
    transfer_bytes: int
    """Bytes that a run copies between host and RDU."""
    sections: int
    """Sections."""
    validation: str
    """How near modelled times of this kind of program are to published ones."""


@record
class TokensReport:
    """How fast a language model answers, modelled."""

    headline: str
    """The answer in one line."""
    model: str
    """What was planned."""
    target: str
    """Name of the device."""
    rdus: int
    """How many of it."""
    batch: int
    """Texts at a time."""
    prompt: int
    """Tokens of a prompt."""
    context: int
    """Tokens that the cache has room for: of the token that is planned all are there."""
    first_token_seconds: float
    """Time to the first token: a run of the prompt's program."""
    token_seconds: float
    """Time of each further token: a run of the token's program, with a full cache."""
    tokens_per_second: float
    """Tokens of all texts together, behind the first."""
    prompt_tokens_per_second: float
    """Tokens of prompts that are read."""
    cache_bytes_per_token: float
    """Bytes that the cache keeps of a token of one text, on all devices together."""
    cache_bytes: int
    """Bytes of the whole cache: all texts, all of its tokens."""
    first: PhaseReport
    """The program that reads prompts."""
    each: PhaseReport
    """The program that reads a token of each text."""
    memory: dict[str, float] = field(default_factory=dict)
    """Share of each tier of device memory that the token's program occupies, the fastest first."""
    notes: tuple[str, ...] = ()
    """What a reader of the figures has to know."""
    schema_version: int = SCHEMA_VERSION
    """Version of this document's form."""


def tokens_report(
    source: TextGenerator, sizes: GenerationSizes, first: Manifest, each: Manifest
) -> TokensReport:
    """Put the two plans together.

    Args:
        source: The model.
        sizes: What it was planned for.
        first: The plan of a prompt.
        each: The plan of a token.
    """
    # Without nodes, of which a large model has many and these figures need none.
    before, whole = (Report.from_manifest(plan, program=False) for plan in (first, each))
    reading, writing = _phase(before, first), _phase(whole, each)
    # Weights and the cache lie on the device for both programs; the token's is the one with the whole cache.
    cache = source.cache_bytes(sizes)
    # Every run writes a token of each text.
    rate = sizes.batch / writing.seconds if writing.seconds else 0.0
    rdus = each.parallel.rdus if each.parallel else 1
    per_token = cache / (sizes.batch * sizes.context)
    device = printable(f"{rdus} RDUs of {each.target.name}" if rdus > 1 else each.target.name)
    headline = (
        f"{printable(source.name)} [batch {sizes.batch}, prompt {sizes.prompt}, context {sizes.context}] → {device}: "
        f"{_answers(reading, writing, rate)}; the cache keeps {byte_text(round(per_token))} per token"
    )
    read = sizes.batch * sizes.prompt
    return TokensReport(
        headline=headline,
        model=source.name,
        target=each.target.name,
        rdus=rdus,
        batch=sizes.batch,
        prompt=sizes.prompt,
        context=sizes.context,
        first_token_seconds=reading.seconds,
        token_seconds=writing.seconds,
        tokens_per_second=rate,
        prompt_tokens_per_second=read / reading.seconds if reading.seconds else 0.0,
        cache_bytes_per_token=per_token,
        cache_bytes=cache,
        first=reading,
        each=writing,
        memory={
            tier.tier: tier.used_bytes / tier.capacity_bytes
            for tier in whole.memory
            if tier.capacity_bytes
        },
        notes=(*source.notes, *_unlike(reading, writing)),
    )


def rate_text(rate: float) -> str:
    """Return tokens per second for people, with two digits at least."""
    # Below ten a rounded number would be off by more than the model of time is.
    return f"{rate:,.0f} tokens/s" if rate >= 10 else f"{rate:.2g} tokens/s"


def _phase(report: Report, manifest: Manifest) -> PhaseReport:
    time = report.modelled_time
    return PhaseReport(
        seconds=time.total_seconds,
        unmodelled_cpu_nodes=time.unmodelled_cpu_nodes,
        most=most_text(manifest, time),
        parts=time.parts,
        rdu_nodes=report.coverage.rdu_nodes,
        cpu_nodes=report.coverage.cpu_nodes,
        fallbacks={
            row.operator: row.cpu_nodes for row in report.coverage.operators if row.cpu_nodes
        },
        flops=report.coverage.rdu_flops + report.coverage.cpu_flops,
        transfer_bytes=sum(total.bytes for total in report.transfers_per_run),
        sections=len(manifest.sections),
        validation=time.validation,
    )


def _answers(reading: PhaseReport, writing: PhaseReport, rate: float) -> str:
    """Return ``16 ms to the first token, then 398 tokens/s (2.5 ms each, 45 % of it off-chip memory), modelled``."""
    # What is not modelled would make a run longer, and the rate lower.
    least = "at least " if reading.unmodelled_cpu_nodes else ""
    most = "at most " if writing.unmodelled_cpu_nodes else ""
    return (
        f"{least}{second_text(reading.seconds)} to the first token, then {most}{rate_text(rate)} "
        f"({second_text(writing.seconds)} each, {writing.most}), modelled"
    )


def _unlike(first: PhaseReport, each: PhaseReport) -> list[str]:
    """Say which nodes fall back: each costs two trips over the link per token."""
    notes = []
    # By program: a fallback in a token's costs its two trips for every token, one in a prompt's once.
    for name, phase in (("prompt", first), ("token", each)):
        if phase.cpu_nodes:
            operators = ", ".join(
                f"{count} {operator}" for operator, count in phase.fallbacks.items()
            )
            nodes = count_text(phase.cpu_nodes, "node")
            notes.append(
                f"of a {name}'s program {nodes} fall back to the CPU ({operators}): samba-port analyze says why"
            )
    return notes
