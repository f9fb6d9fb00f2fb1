"""What the sections of a published program have to do, so that other constants can be tried without compiling it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from samba_onnx.compiling.planning import PlannedPrograms
from samba_onnx.passes.timing.section_terms import SectionTerms, section_terms
from samba_onnx.passes.timing.streaming import StreamedTerms, streamed_terms
from samba_onnx.passes.timing.traffic import by_tier, moved_bytes
from samba_onnx.pef.exchanges import Busy, hidden_seconds
from samba_onnx.pef.manifest import Cause, Manifest, Section
from samba_onnx.pef.target_summary import TargetSummary
from samba_onnx.program.dataflow import name_of, reads
from samba_onnx.program.kinds import SymbolKind

__all__ = ["ProgramTerms", "program_terms"]


@dataclass(frozen=True)
class CallTerms:
    """What calls of equal sections have to do."""

    section: SectionTerms
    launches: bool
    """Whether they take a launch of their own."""
    streamed: StreamedTerms | None
    """What of them goes on while the exchange before them still brings rows."""

    def busy(self, target: TargetSummary) -> Busy:
        """Return one such call as exchanges next to it see it."""
        part, whole = self.streamed, self.section
        streaming = None if part is None else part.streaming(whole, target)
        return Busy(whole.time(target).overlapped, streaming)


@dataclass(frozen=True)
class Sent:
    """An exchange between RDUs."""

    bytes: int
    """What an RDU sends."""
    steps: int
    """Messages that wait for each other."""


@dataclass(frozen=True)
class ProgramTerms:
    """One run of a program, as far as constants of the timing model change what it takes."""

    sections: tuple[tuple[CallTerms, int], ...]
    """What calls have to do, and how many such calls there are."""
    order: tuple[int | Sent, ...] = ()
    """The calls in their order, a section by its place in ``sections``; empty without exchanges."""
    gradients: int = 0
    """Bytes that each of several replicas sends behind the run; 0 for one alone."""

    @property
    def flops(self) -> int:
        """Operations of all calls."""
        return sum(call.section.flops * count for call, count in self.sections)

    def seconds(self, target: TargetSummary) -> float:
        """Return the modelled time of a run on the RDU.

        Args:
            target: The device's figures; memory, granules and units as the program was compiled for.
        """
        total = target.exchange_seconds(self.gradients) if self.gradients else 0.0
        for call, count in self.sections:
            time = call.section.time(target)
            total += count * (time.seconds - (0.0 if call.launches else time.launch))
        if not self.order:
            return total
        busy = [call.busy(target) for call, _ in self.sections]
        sent = [
            target.exchange_seconds(one.bytes, one.steps)
            for one in self.order
            if isinstance(one, Sent)
        ]
        order = [
            target.exchange_seconds(one.bytes) - target.exchange_seconds(0)
            if isinstance(one, Sent)
            else busy[one]
            for one in self.order
        ]
        return total + sum(sent) - sum(hidden_seconds(order))


def program_terms(plan: PlannedPrograms, replicas: int = 1) -> ProgramTerms:
    """Return what a run of a plan's first program has to do.

    Args:
        plan: The plan.
        replicas: How many of it train side by side, which sum their gradients up.
    """
    manifest = plan.manifest
    counted: Counter[str] = Counter()
    calls: dict[str, CallTerms] = {}
    own = [c for c in manifest.graphs[0].run_transfers if c.cause is Cause.COLLECTIVE]
    exchanges = {section.id: section.collective for section in manifest.sections}
    called = {call.id: exchanges.get(call.stage) for call in manifest.graphs[0].calls}
    steps = {call: 1 if exchange is None else exchange.steps for call, exchange in called.items()}
    sent = {copy.call: Sent(copy.bytes, steps[copy.call or 0]) for copy in own}
    stages = {call.stage: call.id for call in manifest.graphs[0].calls}
    order: list[str | Sent] = []
    for section, call in _calls(plan):
        if stages[section.id] in sent:
            order.append(sent[stages[section.id]])
            continue
        key = repr(call)
        calls[key] = call
        counted[key] += 1
        if call.section.executed:
            order.append(key)
    places = {key: place for place, key in enumerate(calls)}
    return ProgramTerms(
        sections=tuple((call, counted[key]) for key, call in calls.items()),
        order=tuple(places[o] if isinstance(o, str) else o for o in order) if sent else (),
        gradients=gradient_bytes(manifest, replicas) if replicas > 1 else 0,
    )


def gradient_bytes(manifest: Manifest, replicas: int) -> int:
    """Return what each replica sends to sum all gradients up, in a ring.

    Args:
        manifest: Of the program of one replica.
        replicas: How many there are.
    """
    gradients = [one.bytes or 0 for one in manifest.symbols if one.kind is SymbolKind.GRADIENT]
    return 2 * (replicas - 1) * sum(gradients) // replicas


def _calls(plan: PlannedPrograms) -> Iterator[tuple[Section, CallTerms]]:
    manifest = plan.manifest
    symbols = {symbol.name: symbol for symbol in manifest.symbols}
    sections = {section.id: section for section in manifest.sections}
    tiers = {region.name: region.tier for region in manifest.regions}
    brought: list[ir.Value] = []

    def place(value: ir.Value) -> str:
        symbol = symbols.get(name_of(value))
        return name_of(value) if symbol is None else symbol.region

    for stage, group in plan.graphs[0].plan.stages:
        if stage not in sections:
            brought = []
            continue
        section = sections[stage]
        partly = moved_bytes(group.nodes, place)
        touched = {value for node in group.nodes for value in (*reads(node), *node.outputs)}
        names = {*section.inputs, *section.weights, *section.outputs}
        traffic: dict[ir.Value, tuple[str, int]] = {}
        for value in touched:
            symbol = symbols.get(name_of(value))
            if symbol and symbol.name in names and symbol.region and not symbol.baked:
                traffic[value] = (tiers[symbol.region], partly.get(value, symbol.bytes or 0))
        terms = section_terms(group.nodes, by_tier(traffic), manifest.target)
        part: StreamedTerms | None = None
        if section.streaming is not None:
            part = streamed_terms(group.nodes, brought, traffic, terms, manifest.target)
        launches = section.time is not None and section.time.launch > 0
        yield section, CallTerms(terms, launches, part)
        brought = [] if section.collective is None else [*brought, group.nodes[0].outputs[0]]
