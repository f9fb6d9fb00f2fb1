"""Whether the device copied what the plan says: symbol by symbol, byte by byte."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

from samba_onnx.errors import PefFormatError
from samba_onnx.pef.manifest import Graph, Transfer
from samba_onnx.runtime.ledger import Ledger


def check_plan(ledger: Ledger, graph: Graph) -> None:
    """Compare the ledger with the plan, in order: cause, direction, call, bytes of every copy.

    Args:
        ledger: The copies of a device that made only whole runs of the graph, each with all inputs
            and outputs.
        graph: What the manifest says of the graph that was run, the only one of its PEF.

    Raises:
        PefFormatError: The device copied something else than was planned; names the first
            difference.
    """
    at_load = (transfer for transfer in ledger.transfers if transfer.call is None)
    _compare(at_load, graph.load_transfers, "loading the PEF")
    for run in range(ledger.runs):
        _compare(ledger.run(run), graph.run_transfers, f"run {run} of graph {graph.name!r}")


def _compare(copies: Iterable[Transfer], planned: Iterable[Transfer], when: str) -> None:
    for copy, plan in zip_longest(copies, planned):
        if _text(copy) != _text(plan):
            raise PefFormatError(
                f"the plan is not what the device does: in {when} the device copied {_text(copy)}, "
                f"planned was {_text(plan)}; convert the model again"
            )


def _text(transfer: Transfer | None) -> str:
    if transfer is None:
        return "nothing more"
    call = "" if transfer.call is None else f" for call {transfer.call}"
    return (
        f"{transfer.bytes} bytes of {transfer.symbol!r} ({transfer.cause.value}, "
        f"{transfer.direction.value}{call})"
    )
