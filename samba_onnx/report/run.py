"""What ``samba-port run`` says: outputs, transfers that were made, and measured time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from samba_onnx.pef.manifest import Transfer
from samba_onnx.report.records import SCHEMA_VERSION, TransferTotal, record
from samba_onnx.report.times import ModelledTime
from samba_onnx.report.units import byte_text, count_text, printable, second_text


@record
class OutputReport:
    """One output, or one element of an output that is a sequence."""

    name: str
    """Its name; of an element ``name[0]``, ``name[1]``, ..."""
    dtype: str
    """Its numpy dtype, as ``float32``; ``none`` for an empty optional."""
    shape: tuple[int, ...]
    """Its shape."""
    minimum: float | None
    """Smallest finite value; null without any."""
    mean: float | None
    """Mean of the finite values; null without any."""
    maximum: float | None
    """Largest finite value; null without any."""
    not_finite: int
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


def total_transfers(transfers: Iterable[Transfer]) -> tuple[TransferTotal, ...]:
    """Add transfers up by cause and direction.

    Args:
        transfers: Planned or recorded ones.

    Returns:
        One total per cause and direction, in the order in which they occur first.
    """
    totals: dict[tuple[str, str], TransferTotal] = {}
    for copy in transfers:
        key = (copy.cause, copy.direction)
        old = totals.get(key) or TransferTotal(copy.cause, copy.direction, 0, 0, 0.0)
        totals[key] = TransferTotal(
            copy.cause,
            copy.direction,
            old.transfers + 1,
            old.bytes + copy.bytes,
            old.modelled_seconds + copy.seconds,
        )
    return tuple(totals.values())


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
        return (OutputReport(name, "none", (), None, None, None, 0),)
    array = np.asarray(value)
    # Texts and complex numbers have no order, and so neither a smallest nor a largest element.
    if array.dtype.kind in "OUSTc":
        # numpy's type of texts states the longest of them, which is no type that an output has.
        kind = str(array.dtype) if array.dtype.kind == "c" else "string"
        return (OutputReport(name, kind, array.shape, None, None, None, 0),)
    # Statistics of short types in float64: their own sums would overflow.
    wide = array.astype(np.float64)
    # One NaN would make all three figures NaN: those are counted apart.
    finite = wide[np.isfinite(wide)]
    minimum = mean = maximum = None
    if finite.size:
        minimum, mean, maximum = float(finite.min()), float(finite.mean()), float(finite.max())
    left_out = int(wide.size - finite.size)
    return (OutputReport(name, str(array.dtype), array.shape, minimum, mean, maximum, left_out),)


def run_headline(
    pef: str, target: str, iterations: int, seconds: float, per_run: tuple[TransferTotal, ...]
) -> str:
    """Return the answer in one line.

    Args:
        pef: File name.
        target: Name of the target.
        iterations: Number of runs.
        seconds: Mean wall time of one.
        per_run: Transfers of one.

    Returns:
        As ``m.pef on the emulated sn40l: 100 runs of 4.1 ms; 2 transfers, 1.2 MB, 35 µs modelled
        per run``.
    """
    transfers = sum(total.transfers for total in per_run)
    size = byte_text(sum(total.bytes for total in per_run))
    modelled = second_text(sum(total.modelled_seconds for total in per_run))
    return (
        f"{printable(pef)} on the emulated {printable(target)}: "
        f"{count_text(iterations, 'run')} of {second_text(seconds)}; "
        f"{count_text(transfers, 'transfer')}, {size}, {modelled} modelled per run"
    )
