"""What each call adds to a run on the RDU: its recorded seconds, without what of an exchange is hidden.

An exchange streams what the section before it computes, so that a part of it goes on beside that section. What is
left goes on beside the section behind it, as far as that one reads the values in the order in which they arrive. A
section gives its time once: what an exchange before it has taken is no longer there for the one behind it.

All else of the model of time is the compiler's (:mod:`samba_onnx.passes.timing`). This rule stands below it, for
the runtime states these seconds beside what it measures, and knows a program by its manifest alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from samba_onnx.pef.manifest import Cause, Graph
from samba_onnx.pef.stage_records import Fallback, Section, Streaming
from samba_onnx.pef.target_summary import TargetSummary

__all__ = ["Busy", "RduCall", "hidden_exchanges", "hidden_seconds", "rdu_calls"]


@dataclass(frozen=True)
class RduCall:
    """What one call of a section is modelled to add to a run, in seconds."""

    seconds: float
    """All of it. Of an exchange between RDUs, what does not go on beside other sections; in spatial mapping of
    one mini-batch, without the launch."""
    launch: float
    """Its launch, a part of ``seconds`` but in spatial mapping, where a section is launched once a run; 0 where
    a call before it has launched the program."""


@dataclass(frozen=True)
class Busy:
    """What the rule for exchanges asks of a section next to one."""

    seconds: float
    """Seconds of the section without launch and fill."""
    streaming: Streaming | None = None
    """How much of that time can pass during the exchange before it; None for nothing."""


def rdu_calls(
    graph: Graph, stages: Mapping[int, Section | Fallback], target: TargetSummary
) -> Mapping[int, RduCall]:
    """Return what each call of a section, and of an exchange between RDUs, adds to a run, by its id.

    Args:
        graph: A graph.
        stages: Its sections and fallbacks by id.
        target: The device's figures.

    Returns:
        In section mapping the seconds add up to ``ScheduleTime.on_rdu``.
    """
    beside = hidden_exchanges(graph, stages, target)
    sent = {c.call: c.seconds for c in graph.run_transfers if c.cause is Cause.COLLECTIVE}
    calls: dict[int, RduCall] = {}
    for call in graph.calls:
        stage = stages[call.stage]
        if isinstance(stage, Section):
            launch = 0.0 if stage.time is None else stage.time.launch
            # In spatial mapping the launch is counted once a run, and not with each call.
            seconds = stage.seconds - (launch if graph.spatial_batches else 0.0)
            seconds += sent.get(call.id, 0.0) - beside.get(call.id, 0.0)
            calls[call.id] = RduCall(seconds, launch)
    return calls


def hidden_exchanges(
    graph: Graph, stages: Mapping[int, Section | Fallback], target: TargetSummary
) -> Mapping[int, float]:
    """Return how much of each exchange goes on beside the sections around it, by call."""
    sent = {c.call: c.seconds for c in graph.run_transfers if c.cause is Cause.COLLECTIVE}
    # Without figures of timing it is not known how much of a section could hide anything.
    if target.timing is None or not sent:
        return {}
    order: list[Busy | float | None] = []
    exchanges: list[int] = []
    for call in graph.calls:
        stage = stages[call.stage]
        if call.id in sent:
            exchanges.append(call.id)
            # The latency of each step hides behind nothing, since nothing was sent yet.
            order.append(sent[call.id] - target.exchange_seconds(0, _steps(stage)))
        elif isinstance(stage, Fallback):
            order.append(None)
        elif stage.seconds:  # what only renames elements is no section of its own
            seconds = 0.0 if stage.time is None else stage.time.overlapped
            order.append(Busy(seconds, stage.streaming))
    return dict(zip(exchanges, hidden_seconds(order), strict=True))


def _steps(stage: Section | Fallback) -> int:
    exchange = stage.collective if isinstance(stage, Section) else None
    return 1 if exchange is None else exchange.steps


def hidden_seconds(order: Sequence[Busy | float | None]) -> list[float]:
    """Return how much of each exchange goes on beside sections.

    Args:
        order: The calls of a schedule in their order: a section, the seconds that an exchange takes besides its
            latency, or None for a fallback, beside which no exchange goes on.

    Returns:
        Seconds, by exchange.
    """
    hidden: list[float] = []
    sent: list[float] = []
    waiting: list[int] = []
    # Seconds of the section just before that can still hide an exchange; each of them hides one
    # only.
    free = 0.0
    for one in order:
        if one is None:
            # A fallback waits for the values: nothing streams past it.
            free, waiting = 0.0, []
        elif isinstance(one, Busy):
            free = one.seconds
            streams = 0.0 if one.streaming is None else min(one.streaming.seconds, free)
            for exchange in waiting:
                both = min(sent[exchange] - hidden[exchange], streams)
                # The first tile must have arrived before anything begins, and takes its share of
                # the time.
                behind = 0.0 if one.streaming is None else both * (1 - 1 / one.streaming.tiles)
                hidden[exchange] += behind
                free, streams = free - behind, streams - both
            waiting = []
        else:
            beside = min(max(one, 0.0), free)
            # What the section before it took is no longer there for the exchanges behind.
            free -= beside
            waiting.append(len(hidden))
            hidden.append(beside)
            sent.append(max(one, 0.0))
    return hidden
