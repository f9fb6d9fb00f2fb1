"""What a run is modelled to take, as reports and runs state it: for machines, and in lines for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from rich.text import Text

from samba_onnx.pef.manifest import Graph, Manifest
from samba_onnx.pef.schedule_time import run_time
from samba_onnx.report.fidelity import validation
from samba_onnx.report.records import TransferTotal, record
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
    """All of them, without any overlap."""
    load_seconds: float
    """Transfers of weights and constants, once when the PEF is loaded."""
    unmodelled_cpu_nodes: int
    """Nodes on the CPU whose time is not modelled: a size is not known, or what they do with it."""
    host: str
    """Name of the host's profile; empty where nothing runs on the CPU."""
    parts: dict[str, float] = field(default_factory=dict)
    """Seconds of a run by what takes them: launches, sections by the longest of their parts, fill, exchanges
    between RDUs, copies to and from the host, the CPU."""
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
        for name, seconds in vars(time).items():
            if seconds:
                parts[name] = parts.get(name, 0.0) + seconds
    return ModelledTime(
        sections_seconds=sum(time.sections for time in times),
        transfers_seconds=sum(time.collectives + time.host_transfers for time in times),
        cpu_seconds=sum(time.cpu for time in times),
        total_seconds=sum(time.total for time in times),
        load_seconds=sum(total.modelled_seconds for total in at_load),
        unmodelled_cpu_nodes=sum(
            fallback.unmodelled for fallback in manifest.fallbacks if fallback.graph in names
        ),
        host="" if manifest.host is None else manifest.host.name,
        parts=parts,
        validation=validation(manifest),
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
    if time.load_seconds:
        text += f"; loading: {second_text(time.load_seconds)}"
    parts = sorted(time.parts.items(), key=lambda part: -part[1])
    lines = [Text(text)]
    if len(parts) > 1:
        shares = ", ".join(f"{name.replace('_', ' ')} {second_text(part)}" for name, part in parts)
        lines.append(Text(f"by what takes it: {shares}"))
    lines.append(Text(time.validation))
    return lines
