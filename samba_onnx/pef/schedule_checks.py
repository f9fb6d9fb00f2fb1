"""Whether a graph's calls, transfers and boundaries agree with its stages."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NoReturn

from samba_onnx.errors import PefFormatError
from samba_onnx.pef.manifest import Cause, Direction, Fallback, Graph, Section, Symbol, Transfer
from samba_onnx.program.kinds import LOADED_KINDS, SymbolKind
from samba_onnx.safety.files import printable

__all__ = ["check_boundaries", "check_schedule", "check_transfers"]

Stages = Mapping[int, Section | Fallback]
Symbols = Mapping[str, Symbol]

_LOAD_CAUSES = (Cause.WEIGHT, Cause.CONSTANT)
_LOADED_KINDS = LOADED_KINDS | {SymbolKind.CONSTANT}


def check_schedule(
    graph: Graph, stages: Stages, symbols: Symbols, residents: Collection[str]
) -> None:
    """Check that calls count from 0, run stages of this graph, and read nothing unwritten.

    Args:
        graph: The graph.
        stages: All stages by id.
        symbols: All symbols by name.
        residents: Symbols that get values from outside a run.

    Raises:
        PefFormatError: They do not.
    """
    own = {i for i, stage in stages.items() if stage.graph == graph.name}
    for number, call in enumerate(graph.calls):
        if call.id != number or call.stage not in own:
            _refuse(graph, f"call {call.id} of stage {call.stage} is out of place")
    # What other graphs write may be there before the run, as activations of a forward pass are for
    # its backward.
    elsewhere = {n for i, s in stages.items() if i not in own for n in (*s.inputs, *s.outputs)}
    available = elsewhere.union(graph.inputs, *(stages[i].weights for i in own))
    available |= {symbol.name for symbol in symbols.values() if symbol.stored}
    available |= set(residents)
    written: set[str] = set()
    for call in graph.calls:
        stage = stages[call.stage]
        for name in stage.inputs:
            # In the order of calls: a stage reads what an earlier one wrote, never what a later one
            # will.
            if name not in available and name not in written:
                _refuse(graph, f"call {call.id} reads {name} before it is written")
        written.update(stage.outputs)
    for name in graph.outputs:
        if name not in available and name not in written:
            _refuse(graph, f"output {name} is never written")


def check_transfers(
    graph: Graph,
    stages: Stages,
    symbols: Symbols,
    residents: Collection[str],
    argins: Collection[str],
) -> None:
    """Check that every planned transfer has a reason in the schedule.

    Args:
        graph: The graph.
        stages: All stages by id.
        symbols: All symbols by name.
        residents: Symbols that stay in device memory between runs.
        argins: Names of argins, which are registers.

    Raises:
        PefFormatError: A transfer moves an unknown symbol or other bytes than the symbol has,
            happens twice, or has a cause, direction or call that the schedule contradicts.
    """
    for transfers in (graph.load_transfers, graph.run_transfers):
        # One copy of a symbol in each direction is enough for a run, and more would be counted
        # twice in reports.
        seen: set[tuple[str, Direction]] = set()
        for transfer in transfers:
            name = f"the transfer of {transfer.symbol}"
            symbol = symbols.get(transfer.symbol)
            # A collective moves less or more than the symbol, by its algorithm; the section says
            # how much.
            moved = _moved_bytes(graph, transfer, stages, symbol)
            if symbol is None or not symbol.region or moved != transfer.bytes:
                _refuse(graph, f"{name} moves {transfer.bytes} bytes of no such symbol on the RDU")
            if (transfer.symbol, transfer.direction) in seen or transfer.seconds < 0:
                _refuse(graph, f"{name} occurs twice or takes {transfer.seconds} s")
            seen.add((transfer.symbol, transfer.direction))
    for transfer in graph.load_transfers:
        _check_load_transfer(graph, transfer, symbols[transfer.symbol])
    places = _Places(graph, stages)
    for transfer in graph.run_transfers:
        is_resident = transfer.symbol in residents
        # Argins are registers, which are set without a transfer.
        if transfer.symbol in argins or not places.explain(transfer, is_resident=is_resident):
            _refuse(
                graph,
                f"the transfer of {transfer.symbol} with cause {transfer.cause.value}, "
                f"{transfer.direction.value}, call {transfer.call} has no place in the schedule",
            )


def _moved_bytes(
    graph: Graph, transfer: Transfer, stages: Stages, symbol: Symbol | None
) -> int | None:
    """Return the bytes that a transfer must have: a symbol's, or what its section sends."""
    if transfer.direction is not Direction.RDU_TO_RDU:
        return None if symbol is None else symbol.bytes
    if transfer.call is None or not 0 <= transfer.call < len(graph.calls):
        return None
    stage = stages[graph.calls[transfer.call].stage]
    exchange = stage.collective if isinstance(stage, Section) else None
    return None if exchange is None else exchange.bytes


def _check_load_transfer(graph: Graph, transfer: Transfer, symbol: Symbol) -> None:
    wrong = (
        transfer.call is not None
        or transfer.direction is not Direction.HOST_TO_RDU
        or transfer.cause not in _LOAD_CAUSES
        or symbol.kind not in _LOADED_KINDS
        or symbol.baked
    )
    if wrong:
        _refuse(graph, f"the transfer of {transfer.symbol} is none made by loading")


class _Places:
    """Where a graph and its stages read and write, as sets: of a Split there may be ten thousand outputs."""

    def __init__(self, graph: Graph, stages: Stages) -> None:
        self._calls = [stages[call.stage] for call in graph.calls]
        ids = {call.stage for call in graph.calls}
        self._reads = {each: frozenset(stages[each].inputs) for each in ids}
        # Sets are made once per graph: asking a tuple for each transfer would take quadratic time.
        self._writes = {each: frozenset(stages[each].outputs) for each in ids}
        self._inputs, self._outputs = frozenset(graph.inputs), frozenset(graph.outputs)

    def explain(self, transfer: Transfer, *, is_resident: bool) -> bool:
        """Return whether the call that a transfer names explains it."""
        if transfer.call is None or not 0 <= transfer.call < len(self._calls):
            return False
        stage, symbol = self._calls[transfer.call], transfer.symbol
        on_rdu = isinstance(stage, Section)
        reads, writes = symbol in self._reads[stage.id], symbol in self._writes[stage.id]
        match transfer.cause, transfer.direction:
            case Cause.INPUT, Direction.HOST_TO_RDU:
                return on_rdu and reads and symbol in self._inputs
            case Cause.COLLECTIVE, Direction.RDU_TO_RDU:
                return on_rdu and writes
            case Cause.OUTPUT, Direction.RDU_TO_HOST:
                return on_rdu and writes and symbol in self._outputs
            case Cause.FALLBACK, Direction.HOST_TO_RDU:
                copied_back = not on_rdu and writes and is_resident
                # A resident that a fallback wrote must be copied back, since later runs read it on
                # the device.
                return (on_rdu and reads and symbol not in self._inputs) or copied_back
            case Cause.FALLBACK, Direction.RDU_TO_HOST:
                return not on_rdu and reads
        return False


def check_boundaries(graph: Graph, stages: Stages, symbols: Symbols) -> None:
    """Check that every boundary lies between the RDU and the CPU and carries what it says.

    Args:
        graph: The graph.
        stages: All stages by id.
        symbols: All symbols by name.

    Raises:
        PefFormatError: A boundary lies elsewhere, or its symbols do not make its bytes.
    """
    for boundary in graph.boundaries:
        before, after = stages.get(boundary.before), stages.get(boundary.after)
        name = f"the boundary between stages {boundary.before} and {boundary.after}"
        if before is None or after is None or {before.graph, after.graph} != {graph.name}:
            _refuse(graph, f"{name} is not in this graph")
        # Both on one side: nothing passes between RDU and CPU.
        if isinstance(before, Section) is isinstance(after, Section):
            _refuse(graph, f"{name} is none between RDU and CPU")
        for symbol in boundary.symbols:
            if symbol not in before.outputs or symbol not in after.inputs:
                _refuse(graph, f"{name} is not crossed by {symbol}")
        # A symbol may be copied already for a boundary before it, so that fewer bytes are no fault.
        most = sum(symbols[symbol].bytes or 0 for symbol in boundary.symbols)
        if not 0 <= boundary.bytes <= most or boundary.seconds < 0:
            _refuse(graph, f"{name} carries {boundary.bytes} of {most} bytes")


def _refuse(graph: Graph, problem: str) -> NoReturn:
    text = printable(f"graph {graph.name}: {problem}", 400)
    raise PefFormatError(f"the manifest contradicts itself: {text}")
