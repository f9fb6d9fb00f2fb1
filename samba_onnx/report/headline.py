"""The first line: what a run takes, what most of that is, and what fell back to the CPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from samba_onnx.pef.manifest import Cause, Graph, Manifest
from samba_onnx.report.coverage import counted_stages
from samba_onnx.report.report_records import Coverage, TransferTotal
from samba_onnx.report.sizes import run_graphs, sizes_text
from samba_onnx.report.times import ModelledTime
from samba_onnx.report.units import byte_text, count_text, percent_text, printable, second_text

PART_WORDS: Final = {
    "launch": "launching sections",
    "compute": "computing",
    "on_chip": "on-chip memory",
    "off_chip": "off-chip memory",
    "fill": "filling pipelines",
    "residents": "parameters onto the chip and back",
    "collectives": "exchanges between RDUs",
    "host_transfers": "transfers between host and RDU",
    "cpu": "the CPU",
}
"""What the parts of a run's time are called here."""


def headline_text(
    manifest: Manifest,
    coverage: Coverage,
    per_run: tuple[TransferTotal, ...],
    time: ModelledTime,
) -> str:
    """Return the line.

    Args:
        manifest: Names of model and target, sizes, fallbacks, bounds.
        coverage: Nodes and operations on either side.
        per_run: Transfers of one run by cause and direction.
        time: What a run takes.

    Returns:
        As ``lstm.onnx [batch 1, tokens 256] → sn40l: 8.8 ms per run (modelled), 99 % of it LSTM on the
        CPU; 412 of 414 nodes (99.5 %) and 0.1 % of the work on the RDU, 2 fall back to the CPU in 1 place
        (2 transfers, 1.2 MB); all on the RDU it would be 57 µs``.
    """
    several = f"{manifest.parallel.rdus} RDUs of " if manifest.parallel else ""
    start = (
        f"{printable(manifest.source.name)}{sizes_text(manifest)} → "
        f"{several}{printable(manifest.target.name)}"
    )
    # Of no nodes there is neither a time nor a share.
    if not coverage.nodes:
        return f"{start}: no nodes are left after conversion: outputs are inputs or constants"
    graphs = run_graphs(manifest)
    parts = [
        _time(manifest, time, graphs),
        _placement(manifest, coverage, per_run),
        _bound(manifest, time, graphs),
    ]
    return f"{start}: {'; '.join(part for part in parts if part)}"


def _time(manifest: Manifest, time: ModelledTime, graphs: Sequence[Graph]) -> str:
    """Return ``8.8 ms per run (modelled), 99 % of it LSTM on the CPU``."""
    largest = any(graph.model_names for graph in manifest.graphs)
    # A run executes one of several graphs: its time is that of the one that moves the most.
    run = f"per run of the largest of {len(manifest.graphs)} graphs" if largest else "per run"
    nodes = time.unmodelled_cpu_nodes
    if not time.total_seconds:
        return f"the time {run} is not modelled"
    seconds = f"{second_text(time.total_seconds)} {run}"
    if nodes:
        without = count_text(nodes, "node")
        return f"at least {seconds} (modelled without {without} on the CPU), {_most(manifest, time, graphs)}"
    return f"{seconds} (modelled), {_most(manifest, time, graphs)}"


def most_text(manifest: Manifest, time: ModelledTime) -> str:
    """Return what takes most of a run, as ``57 % of it computing``; empty where no time is modelled.

    Args:
        manifest: Names of the operators on the CPU.
        time: What a run takes.
    """
    return _most(manifest, time, run_graphs(manifest)) if time.total_seconds else ""


def _most(manifest: Manifest, time: ModelledTime, graphs: Sequence[Graph]) -> str:
    seen = dict(time.parts)
    # Only what makes a run longer: what goes on beside something else is no share of it.
    for name, hidden in (
        ("cpu", time.hidden_cpu_seconds),
        ("host_transfers", time.hidden_transfers_seconds),
    ):
        if name in seen:
            seen[name] -= hidden
    name = max(seen, key=lambda part: seen[part])
    words, share = PART_WORDS[name], seen[name] / time.total_seconds
    if name == "cpu":
        operator, of_cpu = _slowest_operator(manifest, graphs)
        # One operator is named where it takes most of the CPU's time; else none is to blame.
        if of_cpu > 0.5:
            words, share = f"{printable(operator)} on the CPU", share * of_cpu
    # Whole percents: the figure is about what to look at first.
    return f"{share * 100:.0f} % of it {words}" if share < 0.995 else f"all of it {words}"


def _slowest_operator(manifest: Manifest, graphs: Sequence[Graph]) -> tuple[str, float]:
    """Return the operator that takes most of the CPU's time, and its share of that."""
    called = {call.stage for graph in graphs for call in graph.calls}
    fallbacks = [fallback for fallback in manifest.fallbacks if fallback.id in called]
    seconds: defaultdict[str, float] = defaultdict(float)
    for fallback in fallbacks:
        for node in fallback.reasons:
            seconds[node.op_type] += node.seconds
    total = sum(fallback.seconds for fallback in fallbacks)
    operator, most = max(seconds.items(), key=lambda item: item[1], default=("", 0))
    return operator, most / total if total else 0.0


def _placement(manifest: Manifest, coverage: Coverage, per_run: tuple[TransferTotal, ...]) -> str:
    """Return how many nodes and how much of the work run where."""
    if not coverage.cpu_nodes:
        counted, _ = counted_stages(manifest)
        sections = count_text(len(counted), "section")
        nodes = coverage.rdu_nodes
        subject = "the only node" if nodes == 1 else f"all {nodes:,} nodes"
        return f"{subject} on the RDU in {sections}"
    chosen = _chosen(manifest)
    if not coverage.rdu_nodes:
        nodes = coverage.cpu_nodes
        falls = "the only node falls" if nodes == 1 else f"all {nodes:,} nodes fall"
        return f"nothing runs on the RDU: {falls} back to the CPU{chosen}"
    # Inputs and outputs cross the link wherever nodes run: only the other transfers are what falling back
    # costs.
    fallback = tuple(total for total in per_run if total.cause is Cause.FALLBACK)
    verb = "falls" if coverage.cpu_nodes == 1 else "fall"
    flops = coverage.rdu_flops + coverage.cpu_flops
    work = f" and {percent_text(coverage.rdu_flops, flops)} of the work" if flops else ""
    return (
        f"{coverage.rdu_nodes:,} of {count_text(coverage.nodes, 'node')} "
        f"({percent_text(coverage.rdu_nodes, coverage.nodes)}){work} on the RDU, "
        f"{coverage.cpu_nodes:,} {verb} back to the CPU{chosen} in "
        f"{count_text(coverage.cpu_places, 'place')} ({_cost(fallback)})"
    )


def _bound(manifest: Manifest, time: ModelledTime, graphs: Sequence[Graph]) -> str:
    """Return what a run would take if the target ran every node; empty where that is not known or no less."""
    seconds = {bound.graph: bound.seconds for bound in manifest.bounds}
    if not manifest.fallbacks or any(graph.name not in seconds for graph in graphs):
        return ""
    least = sum(seconds[graph.name] for graph in graphs)
    return f"all on the RDU it would be {second_text(least)}" if least < time.total_seconds else ""


def _chosen(manifest: Manifest) -> str:
    """Say how many of the nodes on the CPU are there to save time, or run at load only."""
    _, fallbacks = counted_stages(manifest)
    nodes = [node for fallback in fallbacks for node in fallback.reasons]
    at_load = sum(node.at_load for node in nodes)
    # Each node once: one that is computed at load costs no time in a run, supported or not.
    saving = sum(node.supported and not node.at_load for node in nodes)
    parts = [f"{saving:,} of them to save time"] if saving else []
    if at_load:
        of_them = "" if parts else " of them"
        parts.append(f"{at_load:,}{of_them} once, at load")
    return f" ({', '.join(parts)})" if parts else ""


def _cost(totals: tuple[TransferTotal, ...]) -> str:
    """Return ``4 transfers, 1.2 MB``."""
    transfers = sum(total.transfers for total in totals)
    if not transfers:
        return "no transfers"
    size = byte_text(sum(total.bytes for total in totals))
    return f"{count_text(transfers, 'transfer')}, {size}"
