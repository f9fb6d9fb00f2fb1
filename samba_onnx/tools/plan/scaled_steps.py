"""Models training steps of several replicas of a PEF, and says what the model rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from samba_onnx.errors import UsageError
from samba_onnx.pef.manifest import Graph, Manifest
from samba_onnx.program.kinds import SectionType
from samba_onnx.report.units import figure_text, printable, second_text
from samba_onnx.runtime.reducing import ReductionMode
from samba_onnx.tools.plan.plan_report import ScalingAssumption, ScalingReport
from samba_onnx.tools.plan.step_model import ScaledStep, StepModel

_UNSTATED: Final = "the target states none: that of the link to the host"


def scaling_report(
    manifest: Manifest,
    pef: str,
    replicas: Sequence[int],
    *,
    on_rdu: bool = True,
    graph: str | None = None,
) -> ScalingReport:
    """Return the modelled step of every number of replicas in every mode.

    Args:
        manifest: The manifest of the PEF.
        pef: Its file name, for people.
        replicas: Numbers of replicas, each at least 1.
        on_rdu: Whether devices combine gradients among themselves; otherwise their hosts do.
        graph: The graph that trains; None for the only one that does.

    Raises:
        UsageError: There is no such graph, none trains, or several do and none is named.
    """
    chosen = _training_graph(manifest, graph)
    model = StepModel(manifest, chosen)
    steps = [model.step(n, mode, on_rdu=on_rdu) for n in replicas for mode in ReductionMode]
    stages = manifest.stages()
    backward = [call for call in chosen.calls if stages[call.stage].type is SectionType.BCKWD]
    return ScalingReport(
        headline=_headline(pef, manifest, steps),
        pef=pef,
        graph=chosen.name,
        target=manifest.target.name,
        reduce_on_rdu=on_rdu,
        gradient_bytes=model.gradient_bytes,
        buckets=len(model.buckets),
        backward_sections=len(backward),
        steps=tuple(steps),
        assumptions=tuple(_assumptions(manifest, on_rdu)),
    )


def _training_graph(manifest: Manifest, name: str | None) -> Graph:
    known = ", ".join(printable(graph.name) for graph in manifest.graphs)
    if name is not None:
        graph = next((graph for graph in manifest.graphs if graph.name == name), None)
        if graph is None:
            raise UsageError(f"graph {name!r} does not exist; the PEF has {known}")
        return graph
    stages = manifest.stages()
    trains = [
        graph
        for graph in manifest.graphs
        if any(stages[call.stage].type is SectionType.BCKWD for call in graph.calls)
    ]
    if len(trains) > 1:
        raise UsageError(f"several graphs of the PEF train; name one with --graph: {known}")
    # One that does not train is refused by its own name.
    return trains[0] if trains else manifest.graphs[0]


def _headline(pef: str, manifest: Manifest, steps: Sequence[ScaledStep]) -> str:
    most = max(step.replicas for step in steps)
    best = min((step for step in steps if step.replicas == most), key=lambda step: step.seconds)
    return (
        f"{printable(pef)} on {most:,} {printable(manifest.target.name)}: a modelled step of "
        f"{second_text(best.seconds)} in mode {best.mode}, {best.efficiency:.1%} of linear scaling"
    )


def _assumptions(manifest: Manifest, on_rdu: bool) -> Iterator[ScalingAssumption]:
    """Yield the figures of the reduction, with their origin."""
    target = manifest.target
    notes = {assumption.name: f"assumed: {assumption.note}" for assumption in target.assumptions}
    if on_rdu:
        stated = {
            "rdu_link.bytes_per_second": target.rdu_link_bytes_per_second,
            "rdu_link.latency": target.rdu_link_latency_seconds,
        }
        fallback = {
            "rdu_link.bytes_per_second": target.link_bytes_per_second,
            "rdu_link.latency": target.link_latency_seconds,
        }
        what = "from one RDU to the next one, be it in another machine"
    else:
        stated = {
            "link.bytes_per_second": target.link_bytes_per_second,
            "link.latency": target.link_latency_seconds,
        }
        fallback, what = stated, "between host and RDU"
    for name, value in stated.items():
        unit = "bytes/s" if name.endswith("per_second") else "s"
        origin = notes.get(name, "stated by the target, published or derived")
        note = f"{what}; {origin if value else _UNSTATED}"
        yield ScalingAssumption(name, figure_text(value or fallback[name], unit), note)
    ring = "2 (N - 1) messages of an N-th of a bucket each, one after the other"
    if on_rdu:
        yield ScalingAssumption("ring of N replicas", ring, "no hierarchy of machines is modelled")
    else:
        yield ScalingAssumption(
            "between hosts", "0 s", "no target states a network of hosts: a lower bound"
        )
    yield ScalingAssumption(
        "skew of replicas", "0 s", "all of them begin and end a section at the same time"
    )
