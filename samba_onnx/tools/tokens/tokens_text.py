"""What ``samba-port tokens`` shows."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from samba_onnx.report.layout import table, titled
from samba_onnx.report.units import byte_text, printable, second_text
from samba_onnx.tools.tokens.tokens_report import PhaseReport, TokensReport, rate_text


def tokens_text(report: TokensReport, rows: int | None = 12) -> RenderableType:
    """Return the answer for people.

    Args:
        report: What was found.
        rows: Rows of a table; None for all.
    """
    blocks: list[RenderableType] = [Text(report.headline, style="bold")]
    if report.notes:
        notes = [Text(printable(f"  - {note}")) for note in report.notes]
        blocks += [Text(""), titled("Notes", *notes)]
    # A program of several RDUs is that of each.
    each = " of each RDU" if report.rdus > 1 else ""
    columns = (
        "program",
        ">time",
        ">tokens/s",
        f">GFLOP{each}",
        f">copied{each}",
        ">sections",
        ">on the CPU",
    )
    cells = [
        _row("a prompt of each text", report.first, report.prompt_tokens_per_second),
        _row("a token of each text", report.each, report.tokens_per_second),
    ]
    blocks += [Text(""), table(columns, cells), Text("")]
    for name, phase in (("prompt", report.first), ("token", report.each)):
        parts = sorted(phase.parts.items(), key=lambda part: -part[1])[: rows and rows // 3]
        shares = ", ".join(f"{part.replace('_', ' ')} {second_text(took)}" for part, took in parts)
        blocks.append(Text(f"{name:7} {shares}"))
        blocks.append(Text(f"{'':7} {printable(phase.validation)}", style="dim"))
    # The cache is part of what the tiers hold; by itself it says how far batch and context can go.
    tiers = ", ".join(f"{name} {share:.1%}" for name, share in report.memory.items())
    blocks.append(
        Text(
            f"cache   {byte_text(report.cache_bytes)} for {report.batch} x {report.context:,} tokens; device memory with a "
            f"token's program: {tiers}"
        )
    )
    # An answer is what people wait for: a prompt, and as many tokens as there is room for behind it.
    answer = report.context - report.prompt
    if answer:
        total = report.first_token_seconds + answer * report.token_seconds
        blocks.append(
            Text(
                f"answer  of {answer:,} tokens: at most {second_text(total)}, for every token is planned with a full cache"
            )
        )
    return Group(*blocks)


def _row(name: str, phase: PhaseReport, rate: float) -> tuple[str, ...]:
    return (
        name,
        second_text(phase.seconds),
        rate_text(rate).removesuffix(" tokens/s"),
        f"{phase.flops / 1e9:,.1f}",
        byte_text(phase.transfer_bytes),
        f"{phase.sections:,}",
        f"{phase.cpu_nodes:,}",
    )
