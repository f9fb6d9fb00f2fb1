"""Decides which nodes that a target refuses are rewritten: those that make a run shorter.

Which side a rewritten node runs on is a choice per node, and what it costs is a sum over values: one that is
written on one side and read on the other crosses the link once in a run. The best choice of all nodes together is
therefore a minimum cut between the RDU and the CPU, in a network that has only these nodes and the values around
them. Its choice is then planned in full, beside those of all and of none, and the shortest plan is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import onnx_ir as ir

from samba_onnx.facts.domains import qualified
from samba_onnx.passes.planning.allocation import off_chip_tiers
from samba_onnx.passes.planning.measuring import Measure, measure
from samba_onnx.passes.planning.optimum import Machine
from samba_onnx.passes.planning.placement import Placement, Supporting, place
from samba_onnx.passes.planning.roles import Roles
from samba_onnx.passes.rewrites.legalisation.forms import FormFinder, LegalForm
from samba_onnx.passes.rewrites.legalisation.legalise import LegalisePass
from samba_onnx.passes.rewrites.legalisation.proofs import NARROW
from samba_onnx.passes.rewrites.refusals import Refusal
from samba_onnx.passes.targets import Support
from samba_onnx.passes.timing.hosts import host_seconds
from samba_onnx.passes.timing.node_work import value_bytes
from samba_onnx.passes.timing.section_terms import section_terms
from samba_onnx.pef.rewrite_records import LegalisedRule
from samba_onnx.program.dataflow import Dataflow, is_weight, name_of, reads
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.program.minimum_cut import SINK, SOURCE, Network

# To leave one out, the whole model is legalised and planned once more: for many webs that takes long.
_FEW = 8
"""Webs of values of which each is looked at alone."""
_PICOSECONDS = 1e12
"""Capacities are whole numbers, so that cuts of equal cost are found equal."""


@dataclass(frozen=True)
class LegalisationOptions:
    """What the user decides about rules."""

    excluded: frozenset[str] = frozenset()
    """Names of rules that are not applied."""
    everything: bool = False
    """Whether a rule is applied wherever it can be, even where it makes no run shorter."""
    rounds_float64: bool = False
    """Whether float64 may be computed in float32 where no proof says that it makes no difference."""


class PlannedChooser:
    """Chooses the nodes of one part of a program that are rewritten, and records what that brings."""

    def __init__(
        self,
        machine: Machine,
        options: LegalisationOptions,
        *,
        graph: str,
        resident: Mapping[str, SymbolKind],
        regions: Mapping[str, str] = MappingProxyType({}),
        changed: frozenset[str] = frozenset(),
    ) -> None:
        """Keep what a plan depends on.

        Args:
            machine: The device, the CPU and the level.
            options: What the user decides.
            graph: Name of the graph that the part belongs to, for the records.
            resident: Inputs and outputs that stay on the device, by name.
            regions: Region by the name of a value, where it is not the value's own name.
            changed: Regions that a run may change.
        """
        self.machine, self.options = machine, options
        self.graph = graph
        self._resident, self._regions, self._changed = resident, regions, changed
        self.finder = FormFinder(
            Supporting(machine.target), options.excluded, options.rounds_float64
        )
        self._brought: tuple[LegalisedRule, ...] = ()
        self._narrow: tuple[LegalisedRule, ...] = ()
        self.before: Measure | None = None
        """What a run would cost without rules; None where there was nothing to choose."""
        self.after: Measure | None = None
        self._placement: Placement | None = None
        self._refused: dict[str, dict[str, str]] = {}

    def fallbacks(self, model: ir.Model) -> Collection[ir.Node]:
        """Return the nodes of the main graph that the target refuses."""
        self._placement = place(model, self.machine.target)
        return self._placement.reasons.keys()

    def choose(self, model: ir.Model, forms: Mapping[ir.Node, LegalForm]) -> Collection[ir.Node]:
        """Return the nodes whose legal forms take their place.

        Args:
            model: The model that was asked about last.
            forms: What may take the place of nodes that the target refuses. Those of nodes with a value
                whose size nobody knows are no choice: it could not be copied to the device.
        """
        assert self._placement is not None
        forms = {
            node: forms[node]
            for node in model.graph
            if node in forms and _has_sizes(node, forms[node])
        }
        if not forms:
            return ()
        view = _View(self, model, self._placement, forms, self._roles(model.graph))
        # What the start of a fallback costs depends on how nodes are grouped, which no cut knows:
        # the cut is a proposal beside the two that need none.
        proposals = [frozenset[ir.Node](), view.cut(), frozenset(forms)]
        measured = {proposal: view.measure(proposal) for proposal in dict.fromkeys(proposals)}
        before = measured[proposals[0]]
        # Of equal ones the first, which rewrites nothing: a rule that saves no time leaves the user's node
        # as it is.
        chosen = min(measured, key=lambda proposal: measured[proposal].seconds)
        if self.options.everything:
            chosen = proposals[-1]
        after = measured[chosen]
        # Where webs were narrowed before, a run without rules is one before that, too.
        self.before, self.after = self.before or before, after
        self._brought = tuple(self._records(view, chosen, after))
        return chosen

    def choose_webs(
        self,
        model: ir.Model,
        fallbacks: Sequence[Collection[ir.Node]],
        apply: Callable[[ir.Model, Collection[int]], None],
    ) -> Collection[int]:
        """Return the webs of values that are narrowed.

        What that brings depends on the rules that come after it: copies of the model are legalised with and
        without them. Of few webs each is left out that makes no run longer by being so.

        Args:
            model: The model that was asked about last.
            fallbacks: By web, its nodes that the target refuses.
            apply: Narrows the webs of some numbers in a copy of the model.
        """
        # All webs or none first: one alone may save nothing, where its neighbours stay wide and the copies
        # between them.
        every = frozenset(range(len(fallbacks)))
        measured = {each: self._narrowed(model, each, apply) for each in (frozenset(), every)}
        before = self.before = measured[frozenset()]
        webs: frozenset[int] = min(measured, key=lambda each: measured[each].seconds)
        if self.options.everything:
            webs = every
        # One after the other, from what is chosen so far: each choice is measured beside those that stay.
        elif webs and len(every) <= _FEW:
            for number in every:
                less = webs - {number}
                measured[less] = self._narrowed(model, less, apply)
                if measured[less].seconds <= measured[webs].seconds:
                    webs = less
        bought = before.minus(measured[webs])
        taken = [node for number in sorted(webs) for node in fallbacks[number]]
        remaining = [node for number in sorted(every - webs) for node in fallbacks[number]]
        self._narrow = (_record(NARROW, self.graph, taken, remaining, bought),)
        return webs

    def _narrowed(
        self,
        model: ir.Model,
        webs: Collection[int],
        apply: Callable[[ir.Model, Collection[int]], None],
    ) -> Measure:
        """Return what a run costs where some webs are narrow and other rules did what they can."""
        copy = model.clone()
        apply(copy, webs)
        other = PlannedChooser(
            self.machine,
            self.options,
            graph=self.graph,
            resident=self._resident,
            regions=self._regions,
            changed=self._changed,
        )
        other.finder = self.finder  # it knows forms already
        LegalisePass(other)(copy)
        if other.after is not None:
            return other.after
        placement = place(copy, self.machine.target)
        return measure(copy, placement, self.machine, other._roles(copy.graph))

    def _roles(self, graph: ir.Graph) -> Roles:
        """Return the roles of a part's inputs and outputs, as far as they matter to transfers."""
        ends = dict.fromkeys([*graph.inputs, *graph.outputs])
        resident = self._resident
        residents = {v: resident[name_of(v)] for v in ends if name_of(v) in resident}
        return Roles(
            tuple(value for value in graph.inputs if value not in residents),
            tuple(value for value in graph.outputs if value not in residents),
            residents,
            regions=self._regions,
            changed=self._changed,
        )

    def refuse(self, node: ir.Node, rule: str, refusal: Refusal) -> None:
        """Keep the reason for which a rule does not rewrite a node."""
        self._refused.setdefault(rule, {})[name_of(node)] = refusal.reason

    @property
    def records(self) -> tuple[LegalisedRule, ...]:
        """What each rule brought, and what it left, in the order of their names."""
        brought = {record.rule: record for record in (*self._brought, *self._narrow)}
        empty = LegalisedRule(
            rule="",
            graph=self.graph,
            nodes=(),
            operators={},
            left=(),
            transfers=0,
            bytes=0,
            seconds=0.0,
        )
        return tuple(
            replace(brought.get(name, empty), rule=name, refused=self._refused.get(name, {}))
            for name in sorted(brought.keys() | self._refused.keys())
        )

    def _records(
        self, view: _View, chosen: frozenset[ir.Node], after: Measure
    ) -> Iterable[LegalisedRule]:
        for rule in sorted({form.rule for form in view.forms.values()}):
            nodes = [node for node, form in view.forms.items() if form.rule == rule]
            taken = [node for node in nodes if node in chosen]
            bought = Measure(0, 0, 0.0)
            if taken:
                # All else stays chosen: what two rules bring together is more or less than the sum of both
                # alone.
                bought = view.measure(chosen.difference(taken)).minus(after)
            remaining = [node for node in nodes if node not in chosen]
            yield _record(rule, self.graph, taken, remaining, bought)


def _record(
    rule: str,
    graph: str,
    taken: Sequence[ir.Node],
    remaining: Sequence[ir.Node],
    bought: Measure,
) -> LegalisedRule:
    operators = [qualified(node.domain, node.op_type) for node in taken]
    return LegalisedRule(
        rule=rule,
        graph=graph,
        nodes=tuple(map(name_of, taken)),
        operators={name: operators.count(name) for name in sorted(set(operators))},
        left=tuple(map(name_of, remaining)),
        transfers=bought.transfers,
        bytes=bought.bytes,
        seconds=bought.seconds,
    )


def _has_sizes(node: ir.Node, form: LegalForm) -> bool:
    """Return whether all values of a node have sizes; its results may get theirs from its legal form."""
    read = [value for value in node.outputs if value.uses() or value.is_graph_output()]
    for value, result in zip(read, form.graph.outputs, strict=True):
        if value_bytes(value) is None and value_bytes(result) is not None:
            # A rule states the shapes of its results, also where inference could not tell those of the
            # node.
            value.type, value.shape = result.type, result.shape
    return all(value_bytes(value) is not None for value in (*reads(node), *read))


@dataclass(frozen=True)
class _View:
    """A model as choices are tried on it, which does not change."""

    chooser: PlannedChooser
    model: ir.Model
    placement: Placement
    forms: Mapping[ir.Node, LegalForm]
    roles: Roles

    def measure(self, chosen: Collection[ir.Node]) -> Measure:
        """Return what a run costs with some nodes in their legal form."""
        reasons = {n: r for n, r in self.placement.reasons.items() if n not in chosen}
        supports = dict(self.placement.supports) | dict.fromkeys(chosen, Support(None))
        placement = replace(self.placement, reasons=reasons, supports=supports)
        return measure(
            self.model,
            placement,
            self.chooser.machine,
            self.roles,
            lambda node: tuple(self.forms[node].graph) if node in chosen else (node,),
        )

    def cut(self) -> frozenset[ir.Node]:
        """Return the nodes that belong on the RDU by the cheapest cut; of several, the one with the most of them.

        Which of several cuts of the same cost is better depends on launches, which no cut knows: a fallback that
        goes as a whole saves its own. ``choose`` measures this proposal beside that of rewriting nothing, and takes
        the latter where the former saves no time.
        """
        flow = Dataflow.of(self.model.graph)
        network = Network()
        # The nodes that may be rewritten are vertices; all others are at one of the two ends.
        places = [p for p, node in enumerate(flow.nodes) if node in self.forms]
        values: dict[ir.Value, None] = {}
        for place_of in places:
            values.update(dict.fromkeys(v for v in flow.reads[place_of] if not is_weight(v)))
            values.update(dict.fromkeys(flow.nodes[place_of].outputs))
            on_rdu = self._seconds(flow.nodes[place_of])
            network.edge(place_of, SINK, max(1, round(on_rdu * _PICOSECONDS)))
            on_host = host_seconds(flow.nodes[place_of], self.chooser.machine.host) or 0.0
            network.edge(SOURCE, place_of, round(on_host * _PICOSECONDS))
        for value in values:
            self._connect(network, flow, value)
        # The smallest side of the CPU, which is the largest of the RDU.
        host = network.behind_cut()
        return frozenset(flow.nodes[place_of] for place_of in places if place_of not in host)

    def _connect(self, network: Network, flow: Dataflow, value: ir.Value) -> None:
        """Let a value cost a copy in either direction that it is needed in."""
        outside = SOURCE if value in self.roles.residents else SINK
        producer = flow.producer.get(value)
        start = outside if producer is None else self._vertex(flow, producer)
        ends = {self._vertex(flow, reader) for reader in flow.readers.get(value, ())}
        if value.is_graph_output():
            ends.add(outside)
        size = value_bytes(value)
        if size is None or self.roles.known_to_host(value):
            return
        copy = round(self.chooser.machine.target.summary.transfer_seconds(size) * _PICOSECONDS)
        # One point for each direction, which all readers pull along: a copy is paid once, whoever reads it
        # there.
        down, up = (value, "down"), (value, "up")
        network.edge(start, down, copy)
        network.edge(up, start, copy)
        for end in ends:
            network.edge(down, end)
            network.edge(end, up)

    def _vertex(self, flow: Dataflow, position: int) -> object:
        node = flow.nodes[position]
        if node in self.forms:
            return position
        return SINK if node in self.placement.reasons else SOURCE

    def _seconds(self, node: ir.Node) -> float:
        """Return what a legal form takes on the RDU, where its operands and results stay on the chip."""
        graph, summary = self.forms[node].graph, self.chooser.machine.target.summary
        outside = off_chip_tiers(summary)[0].name
        new = [value_bytes(value) or 0 for value in graph.initializers.values()]
        # Without a launch: the form is to join a section, and which one is known when all is planned.
        return section_terms(tuple(graph), {outside: new}, summary).time(summary).overlapped
