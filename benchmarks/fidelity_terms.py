"""What the sections of a published program have to do, so that other constants can be tried without compiling it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from samba_onnx.passes.planning.section_terms import SectionTerms, section_terms
from samba_onnx.passes.planning.traffic import moved_bytes
from samba_onnx.pef.manifest import Cause, Manifest, Section, Symbol
from samba_onnx.pef.target_summary import TargetSummary
from samba_onnx.program.dataflow import name_of
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.workflows.planning import PlannedPrograms

__all__ = ["ProgramTerms", "program_terms"]


@dataclass(frozen=True)
class ProgramTerms:
    """One run of a program, as far as constants of the timing model change what it takes."""

    sections: tuple[tuple[SectionTerms, bool, int], ...]
    """What a call has to do, whether it takes a launch of its own, and how many such calls there are."""
    exchanges: tuple[tuple[int, SectionTerms | None, int], ...] = ()
    """Bytes that an RDU sends in an exchange, the section beside which it does, and how many such exchanges
    there are."""

    @property
    def flops(self) -> int:
        """Operations of all calls."""
        return sum(terms.flops * count for terms, _, count in self.sections)

    def seconds(self, target: TargetSummary) -> float:
        """Return the modelled time of a run on the RDU.

        Args:
            target: The device's figures; memory, granules and units as the program was compiled for.
        """
        total, latency = 0.0, target.exchange_seconds(0)
        for size, beside, count in self.exchanges:
            sent = target.exchange_seconds(size)
            busy = 0.0 if beside is None else beside.time(target).overlapped
            total += count * max(sent - busy, latency)
        for terms, launches, count in self.sections:
            time = terms.time(target)
            total += count * (time.seconds - (0.0 if launches else time.launch))
        return total


def program_terms(plan: PlannedPrograms, replicas: int = 1) -> ProgramTerms:
    """Return what a run of a plan's first program has to do.

    Args:
        plan: The plan.
        replicas: How many of it train side by side, which sum their gradients up.
    """
    manifest = plan.manifest
    counted: Counter[str] = Counter()
    sections: dict[str, tuple[SectionTerms, bool]] = {}
    exchanges: dict[str, tuple[int, SectionTerms | None]] = {}
    own = [c for c in manifest.graphs[0].run_transfers if c.cause is Cause.COLLECTIVE]
    sent = {copy.call: copy.bytes for copy in own}
    stages = {call.stage: call.id for call in manifest.graphs[0].calls}
    before: SectionTerms | None = None
    for section, terms in _sections(plan):
        call = stages[section.id]
        if call in sent:
            exchange = (sent[call], before)
            key = f"exchange {exchange!r}"
            exchanges[key] = exchange
            before = None  # a second exchange behind the same section has nothing beside it
        else:
            record = (terms, section.time is not None and section.time.launch > 0)
            key = f"section {record!r}"
            sections[key] = record
            before = terms if terms.executed else before
        counted[key] += 1
    if replicas > 1:
        exchanges["gradients"] = (gradient_bytes(manifest, replicas), None)
        counted["gradients"] = 1
    return ProgramTerms(
        sections=tuple((*record, counted[key]) for key, record in sections.items()),
        exchanges=tuple((*exchange, counted[key]) for key, exchange in exchanges.items()),
    )


def gradient_bytes(manifest: Manifest, replicas: int) -> int:
    """Return what each replica sends to sum all gradients up, in a ring.

    Args:
        manifest: Of the program of one replica.
        replicas: How many there are.
    """
    gradients = [one.bytes or 0 for one in manifest.symbols if one.kind is SymbolKind.GRADIENT]
    return 2 * (replicas - 1) * sum(gradients) // replicas


def _sections(plan: PlannedPrograms) -> Iterator[tuple[Section, SectionTerms]]:
    manifest = plan.manifest
    symbols = {symbol.name: symbol for symbol in manifest.symbols}
    sections = {section.id: section for section in manifest.sections}
    tiers = {region.name: region.tier for region in manifest.regions}

    def place(value: ir.Value) -> str:
        symbol = symbols.get(name_of(value))
        return name_of(value) if symbol is None else symbol.region

    for stage, group in plan.graphs[0].plan.stages:
        if stage not in sections:
            continue
        section = sections[stage]
        partly = moved_bytes(group.nodes, place)
        moved = {name_of(value): size for value, size in partly.items()}
        traffic: dict[str, list[int]] = {}
        for name in (*section.inputs, *section.weights, *section.outputs):
            symbol: Symbol = symbols[name]
            if symbol.region and not symbol.baked:
                size = moved.get(name, symbol.bytes or 0)
                traffic.setdefault(tiers[symbol.region], []).append(size)
        yield section, section_terms(group.nodes, traffic, manifest.target)
