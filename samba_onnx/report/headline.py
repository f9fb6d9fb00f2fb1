"""The one visible line: what fell back to the CPU, and what that costs."""

from __future__ import annotations

from samba_onnx.passes.timing.schedule_time import run_time
from samba_onnx.pef.manifest import Cause, Manifest
from samba_onnx.report.report_records import Coverage, TransferTotal
from samba_onnx.report.sizes import run_graphs
from samba_onnx.report.units import byte_text, count_text, percent_text, printable, second_text


def headline_text(
    manifest: Manifest, coverage: Coverage, per_run: tuple[TransferTotal, ...]
) -> str:
    """Return the line.

    Args:
        manifest: Names of model and target.
        coverage: Nodes on either side.
        per_run: Transfers of one run by cause and direction.

    Returns:
        As ``model.onnx → sn40l: 412 of 415 nodes on the RDU (99.2 %), 3 fall back to the CPU in
        2 places costing 4 transfers, 1.2 MB, 35 µs per run``.
    """
    several = f"{manifest.parallel.rdus} RDUs of " if manifest.parallel else ""
    start = f"{printable(manifest.source.name)} → {several}{printable(manifest.target.name)}: "
    # Of no nodes there is no share.
    if not coverage.nodes:
        return f"{start}no nodes are left after conversion: outputs are inputs or constants"
    if not coverage.cpu_nodes:
        sections = count_text(len(manifest.sections), "section")
        return (
            f"{start}{_all_nodes(coverage.rdu_nodes)} on the RDU in {sections}; "
            f"{_cost(per_run)} {_run(manifest)}"
        )
    if not coverage.rdu_nodes:
        return f"{start}nothing runs on the RDU: {_all_on_cpu(manifest, coverage.cpu_nodes)}"
    places = count_text(coverage.cpu_places, "place")
    # Inputs and outputs cross the link wherever nodes run: only the other transfers are what falling back
    # costs.
    fallback = tuple(total for total in per_run if total.cause is Cause.FALLBACK)
    share = percent_text(coverage.rdu_nodes, coverage.nodes)
    verb = "falls" if coverage.cpu_nodes == 1 else "fall"
    chosen = _chosen(manifest)
    return (
        f"{start}{coverage.rdu_nodes:,} of {count_text(coverage.nodes, 'node')} on the RDU "
        f"({share}), {coverage.cpu_nodes:,} {verb} back to the CPU{chosen} in {places} "
        f"costing {_cost(fallback)} {_run(manifest)}"
    )


def _chosen(manifest: Manifest) -> str:
    """Say how many of the nodes on the CPU are there to save time, or run at load only."""
    nodes = [node for fallback in manifest.fallbacks for node in fallback.reasons]
    at_load = sum(node.at_load for node in nodes)
    # Each node once: one that is computed at load costs no time in a run, supported or not.
    saving = sum(node.supported and not node.at_load for node in nodes)
    parts = [f"{saving:,} of them to save time"] if saving else []
    if at_load:
        of_them = "" if parts else " of them"
        parts.append(f"{at_load:,}{of_them} once, at load")
    return f" ({', '.join(parts)})" if parts else ""


def _run(manifest: Manifest) -> str:
    """Return what the cost is of: a run, or of graphs for several sizes one of the largest."""
    if any(graph.model_names for graph in manifest.graphs):
        return f"per run of the largest of {len(manifest.graphs)} graphs"
    return "per run"


def _all_on_cpu(manifest: Manifest, nodes: int) -> str:
    """Return ``all 5 nodes fall back to the CPU, 1.2 ms per run there``.

    Without transfers there is nothing else that a run costs; their absence is no merit.
    """
    falls = "the only node falls" if nodes == 1 else f"all {nodes:,} nodes fall"
    text = f"{falls} back to the CPU{_chosen(manifest)}"
    # Fallbacks of graphs that a run does not execute take no time in it.
    seconds = sum(run_time(manifest, graph).cpu for graph in run_graphs(manifest))
    if not seconds:
        return f"{text}, in a time that is not modelled"
    # The time of some nodes is in no sum, since nobody knows their sizes.
    least = "at least " if any(fallback.unmodelled for fallback in manifest.fallbacks) else ""
    return f"{text}, {least}{second_text(seconds)} {_run(manifest)} there"


def _all_nodes(nodes: int) -> str:
    """Return ``all 415 nodes run``."""
    return "the only node runs" if nodes == 1 else f"all {nodes:,} nodes run"


def _cost(totals: tuple[TransferTotal, ...]) -> str:
    """Return ``4 transfers, 1.2 MB, 35 µs``."""
    transfers = sum(total.transfers for total in totals)
    if not transfers:
        return "no transfers"
    size = byte_text(sum(total.bytes for total in totals))
    seconds = second_text(sum(total.modelled_seconds for total in totals))
    return f"{count_text(transfers, 'transfer')}, {size}, {seconds}"
