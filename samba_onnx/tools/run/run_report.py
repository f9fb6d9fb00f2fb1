"""What ``samba-port run`` says: outputs, transfers that were made, and measured time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from samba_onnx.report.report_records import SCHEMA_VERSION, TransferTotal, record
from samba_onnx.report.times import ModelledTime, modelled_time
from samba_onnx.report.transfer_totals import total_transfers
from samba_onnx.report.units import byte_text, count_text, printable, second_text

if TYPE_CHECKING:
    from samba_onnx.pef import Pef
    from samba_onnx.pef.manifest import Fallback, Graph, Section
    from samba_onnx.runtime.device import Device
    from samba_onnx.runtime.profile import CallTime


@record
class OutputReport:
    """One output, or one element of an output that is a sequence."""

    name: str
    """Its name; of an element ``name[0]``, ``name[1]``, ..."""
    dtype: str
    """Its numpy dtype, as ``float32``; ``none`` for an empty optional."""
    shape: tuple[int, ...]
    """Its shape."""
    minimum: float | None = None
    """Smallest finite value; null without any."""
    mean: float | None = None
    """Mean of the finite values; null without any."""
    maximum: float | None = None
    """Largest finite value; null without any."""
    not_finite: int = 0
    """Number of elements that are NaN or infinite."""


@record
class CallTimeReport:
    """Time of one call: measured on the CPU that emulates, and modelled for the RDU that is emulated.

    Two machines: neither time says anything about the other.
    """

    call: int
    """Id of the call."""
    stage: int
    """Id of the section or fallback."""
    name: str
    """Name of the section or fallback."""
    home: str
    """``rdu`` or ``cpu``."""
    executions: int
    """How often it was executed."""
    measured_on_this_cpu_minimum_seconds: float
    """Shortest wall time of an execution, of the emulator on the CPU of this machine."""
    measured_on_this_cpu_median_seconds: float
    """Median wall time of an execution, of the emulator on the CPU of this machine; of the latest 10,000."""
    modelled_on_rdu_seconds: float | None
    """Modelled time of one execution on the RDU; null for a fallback, which runs on the host. Of an exchange
    between RDUs it is what does not go on beside other sections; in spatial mapping the launch is left out."""
    modelled_on_rdu_launch_seconds: float | None
    """The part of it that is the launch, or in spatial mapping the one launch of a run; 0 where an earlier call has launched
    the program, as in a loop on the device, and null for a fallback."""


@record
class RunReport:
    """What happened when a PEF ran on the emulator."""

    headline: str
    """The answer in one line."""
    pef: str
    """File name without folder."""
    graph: str
    """Graph that ran."""
    iterations: int
    """Number of runs."""
    outputs: tuple[OutputReport, ...]
    """What the last run returned, in the order of the graph's outputs."""
    transfers_per_run: tuple[TransferTotal, ...]
    """Made by the last run, from the ledger."""
    transfers_at_load: tuple[TransferTotal, ...]
    """Made when the PEF was loaded, from the ledger."""
    load_seconds: float
    """Measured on this machine: opening the PEF and preparing the emulator, imports
    included."""
    mean_seconds: float
    """Measured on this machine: mean wall time of a run of the emulation."""
    fastest_seconds: float
    """Measured on this machine: shortest wall time of a run of the emulation."""
    calls: tuple[CallTimeReport, ...]
    """Time of each call; empty unless asked for."""
    stages: tuple[int, ...] = ()
    """Ids of the sections and fallbacks that each run executed, in the order of the schedule."""
    modelled_time: ModelledTime | None = None
    """What a run is modelled to take on the target, as a report has it; null where only some of the sections and
    fallbacks were executed."""
    schema_version: int = SCHEMA_VERSION
    """Version of this document's form."""


def output_reports(name: str, value: Any) -> tuple[OutputReport, ...]:
    """Describe an output.

    Args:
        name: Name of the output.
        value: An array, a list or dictionary of such values, or None.

    Returns:
        One report per array.
    """
    # Here, not above: only a run has arrays, and reports on plans would wait for the import.
    import numpy as np

    if isinstance(value, list | tuple):
        parts = [output_reports(f"{name}[{index}]", item) for index, item in enumerate(value)]
        return tuple(report for part in parts for report in part)
    if isinstance(value, dict):
        parts = [output_reports(f"{name}[{key!r}]", item) for key, item in value.items()]
        return tuple(report for part in parts for report in part)
    if value is None:
        return (OutputReport(name, "none", ()),)
    array = np.asarray(value)
    # Texts and complex numbers have no order, and so neither a smallest nor a largest element.
    if array.dtype.kind in "OUSTc":
        # numpy's type of texts states the longest of them, which is no type that an output has.
        kind = str(array.dtype) if array.dtype.kind == "c" else "string"
        return (OutputReport(name, kind, array.shape),)
    # Statistics of short types in float64: their own sums would overflow.
    wide = array.astype(np.float64)
    # One NaN would make all three figures NaN: those are counted apart.
    finite = wide[np.isfinite(wide)]
    report = OutputReport(
        name, str(array.dtype), array.shape, not_finite=int(wide.size - finite.size)
    )
    if finite.size:
        least, mean, most = (float(value) for value in (finite.min(), finite.mean(), finite.max()))
        report = replace(report, minimum=least, mean=mean, maximum=most)
    return (report,)


def run_report(
    pef: Pef,
    graph: Graph,
    stages: Sequence[Section | Fallback],
    device: Device,
    outputs: Mapping[str, Any],
    *,
    seconds: Sequence[float],
    load_seconds: float,
) -> RunReport:
    """Return what the runs of a graph came to.

    Args:
        pef: What the device has loaded.
        graph: The graph that ran.
        stages: What of it each run executed.
        device: The device, after the last run.
        outputs: What that run returned.
        seconds: What each run took.
        load_seconds: What it took to prepare the emulator.
    """
    per_run = total_transfers(device.ledger.run(-1))
    at_load = total_transfers(copy for copy in device.ledger.transfers if copy.call is None)
    mean, name = sum(seconds) / len(seconds), Path(pef.path).name
    # A part of the schedule overlaps in other ways than the whole, which the model is of.
    whole = len(stages) == len(graph.calls)
    modelled = modelled_time(pef.manifest, [graph]) if whole else None
    return RunReport(
        headline=_headline(name, pef.manifest.target.name, seconds, per_run, modelled),
        pef=name,
        graph=graph.name,
        iterations=len(seconds),
        outputs=tuple(
            output_report
            for key, value in outputs.items()
            for output_report in output_reports(key, value)
        ),
        transfers_per_run=per_run,
        transfers_at_load=at_load,
        load_seconds=load_seconds,
        mean_seconds=mean,
        fastest_seconds=min(seconds),
        calls=tuple(_call_time(timed) for timed in device.profile.calls(graph.name)),
        stages=tuple(stage.id for stage in stages),
        modelled_time=modelled,
    )


def _call_time(timed: CallTime) -> CallTimeReport:
    return CallTimeReport(
        call=timed.call,
        stage=timed.stage,
        name=timed.name,
        home="rdu" if timed.on_rdu else "cpu",
        executions=timed.executions,
        measured_on_this_cpu_minimum_seconds=timed.fastest_seconds,
        measured_on_this_cpu_median_seconds=timed.median_seconds,
        modelled_on_rdu_seconds=timed.modelled_seconds,
        modelled_on_rdu_launch_seconds=timed.modelled_launch_seconds,
    )


def _headline(
    pef: str,
    target: str,
    seconds: Sequence[float],
    per_run: tuple[TransferTotal, ...],
    modelled: ModelledTime | None,
) -> str:
    """Return ``m.pef on the emulated sn40l: 100 runs of 4.1 ms here; 291 µs per run modelled there; 2 transfers, 1.2 MB``."""
    transfers = sum(total.transfers for total in per_run)
    size = byte_text(sum(total.bytes for total in per_run))
    mean = second_text(sum(seconds) / len(seconds))
    parts = [
        f"{printable(pef)} on the emulated {printable(target)}: "
        f"{count_text(len(seconds), 'run')} of {mean} on this machine"
    ]
    if modelled is not None and modelled.total_seconds:
        # A time that leaves nodes out is a bound, and says so wherever it stands first.
        least = "at least " if modelled.unmodelled_cpu_nodes else ""
        parts.append(f"{least}{second_text(modelled.total_seconds)} per run modelled")
    parts.append(f"{count_text(transfers, 'transfer')}, {size}")
    return "; ".join(parts)
