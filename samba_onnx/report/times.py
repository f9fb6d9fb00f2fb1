"""What a run is modelled to take, as reports and runs state it: for machines, and in lines for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from rich.text import Text

from samba_onnx.passes.timing.schedule_time import run_time
from samba_onnx.pef.manifest import Graph, Manifest
from samba_onnx.report.fidelity import validation
from samba_onnx.report.layout import ARROWS
from samba_onnx.report.report_records import TransferTotal, record
from samba_onnx.report.units import count_text, printable, second_text


@record
class ModelledTime:
    """Modelled time of one run."""

    sections_seconds: float
    """All calls of sections; in spatial mapping for all mini-batches, with what it takes to bring
    parameters onto the chip and back once."""
    transfers_seconds: float
    """All transfers of one run."""
    cpu_seconds: float
    """All calls of fallbacks, by the host's profile."""
    total_seconds: float
    """When a run ends: all of them, without what goes on beside others."""
    load_seconds: float
    """Transfers of weights and constants, once when the PEF is loaded."""
    unmodelled_cpu_nodes: int
    """Nodes on the CPU whose time is not modelled: a size is not known, or what they do with it."""
    host: str
    """Name of the host's profile; empty where nothing runs on the CPU."""
    parts: dict[str, float] = field(default_factory=dict)
    """Seconds of a run by what takes them: launches, sections by the longest of their parts, fill, exchanges
    between RDUs, copies to and from the host, the CPU."""
    hidden_transfers_seconds: float = 0.0
    """Seconds of transfers that pass while the RDU or the host computes, or while both directions are busy."""
    hidden_cpu_seconds: float = 0.0
    """Seconds of fallbacks that pass while the RDU is busy."""
    busy: dict[str, float] = field(default_factory=dict)
    """Seconds of a run in which each is busy: ``rdu``, ``cpu``, and the link in either direction, ``host_to_rdu``
    and ``rdu_to_host``."""
    validation: str = ""
    """How near modelled times of this kind of program are to published ones, in a sentence."""


def modelled_time(
    manifest: Manifest, graphs: Sequence[Graph], at_load: Sequence[TransferTotal] = ()
) -> ModelledTime:
    """Add up what runs are modelled to take.

    Args:
        manifest: A PEF's manifest.
        graphs: The graphs that are run; each is counted once.
        at_load: Transfers that are made once.
    """
    times = [run_time(manifest, graph) for graph in graphs]
    names = {graph.name for graph in graphs}
    parts: dict[str, float] = {}
    for time in times:
        for name, seconds in time.parts.items():
            # What takes no time would only make the list longer.
            if seconds:
                parts[name] = parts.get(name, 0.0) + seconds
    return ModelledTime(
        sections_seconds=sum(time.sections for time in times),
        transfers_seconds=sum(time.collectives + time.host_transfers for time in times),
        cpu_seconds=sum(time.cpu for time in times),
        total_seconds=sum(time.total for time in times),
        load_seconds=sum(total.modelled_seconds for total in at_load),
        # Only of the graphs whose times are added up.
        unmodelled_cpu_nodes=sum(
            fallback.unmodelled for fallback in manifest.fallbacks if fallback.graph in names
        ),
        host="" if manifest.host is None else manifest.host.name,
        parts=parts,
        hidden_transfers_seconds=sum(time.hidden_transfers for time in times),
        hidden_cpu_seconds=sum(time.hidden_cpu for time in times),
        busy={
            "rdu": sum(time.on_rdu for time in times),
            "cpu": sum(time.cpu for time in times),
            # The link carries both ways at once, so that each direction is busy for itself.
            "host_to_rdu": sum(time.host_transfers - time.to_host for time in times),
            "rdu_to_host": sum(time.to_host for time in times),
        },
        validation=validation(manifest, graphs),
    )


def modelled_time_lines(time: ModelledTime) -> list[Text]:
    """Return the modelled time for people: the sum, what takes it, and what it is worth.

    Args:
        time: The time.
    """
    text = (
        f"{second_text(time.total_seconds)} per run = sections "
        f"{second_text(time.sections_seconds)} + transfers {second_text(time.transfers_seconds)}"
    )
    if time.host:
        text += f" + the CPU {second_text(time.cpu_seconds)} ({printable(time.host)} host)"
    if time.unmodelled_cpu_nodes:
        nodes = count_text(time.unmodelled_cpu_nodes, "node")
        text += f" + {nodes} on it whose time is not modelled"
    if time.hidden_transfers_seconds or time.hidden_cpu_seconds:
        text += f" - {second_text(time.hidden_transfers_seconds + time.hidden_cpu_seconds)} at once"
    # Behind the sum, which loading is no part of.
    if time.load_seconds:
        text += f"; loading: {second_text(time.load_seconds)}"
    parts = sorted(time.parts.items(), key=lambda part: -part[1])
    lines = [Text(text), *_busy_lines(time)]
    # One part is the sum itself.
    if len(parts) > 1:
        shares = ", ".join(f"{name.replace('_', ' ')} {second_text(part)}" for name, part in parts)
        lines.append(Text(f"by what takes it: {shares}"))
    # Last and always: nobody should read modelled times without what they are worth.
    lines.append(Text(time.validation))
    return lines


def _busy_lines(time: ModelledTime) -> list[Text]:
    """Say what works at the same time, where anything does."""
    hidden = []
    copied = time.busy.get("host_to_rdu", 0.0) + time.busy.get("rdu_to_host", 0.0)
    for seconds, whole, what in (
        (time.hidden_transfers_seconds, copied, "the transfers"),
        (time.hidden_cpu_seconds, time.cpu_seconds, "the CPU's time"),
    ):
        if seconds:
            hidden.append(f"{second_text(seconds)} of {second_text(whole)} of {what}")
    # Where nothing is hidden, everything is busy for as long as the sum above says.
    if not hidden:
        return []
    # In the words of the tables of transfers.
    names = {"rdu": "RDU", "cpu": "CPU", **{way.value: text for way, text in ARROWS.items()}}
    busy = ", ".join(f"{names[name]} {second_text(own)}" for name, own in time.busy.items() if own)
    return [Text(f"at once with others: {' and '.join(hidden)}"), Text(f"busy: {busy}")]
