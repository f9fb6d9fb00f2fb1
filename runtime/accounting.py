"""Whether the device copied what the plan says: symbol by symbol, byte by byte."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from samba_onnx.errors import PefFormatError
from samba_onnx.pef.manifest import Graph, Transfer
from samba_onnx.runtime.ledger import Ledger


def check_plan(ledger: Ledger, graph: Graph, graphs: Sequence[Graph] | None = None) -> None:
    """Compare the ledger with the plan, in order: cause, direction, call, bytes of every copy.

    Args:
        ledger: The copies of a device that made only whole runs of the graph, each with all inputs
            and outputs.
        graph: What the manifest says of the graph that was run.
        graphs: All graphs of the PEF, which are loaded together; None where it is the only one.

    Raises:
        PefFormatError: The device copied something else than was planned; names the first
            difference.
    """
    # Copies at load have no call, and belong to no run: all graphs of a PEF are loaded
    # together, so that their plans are compared one behind the other.
    at_load = (transfer for transfer in ledger.transfers if transfer.call is None)
    planned = [move for one in graphs or (graph,) for move in one.load_transfers]
    _compare(at_load, planned, "loading the PEF")
    for run in range(ledger.runs):
        _compare(ledger.run(run), graph.run_transfers, f"run {run} of graph {graph.name!r}")


def _compare(copies: Iterable[Transfer], planned: Iterable[Transfer], when: str) -> None:
    # The longest of both, so that a copy too many or too few is a difference, too.
    for copy, plan in zip_longest(copies, planned):
        # Texts have all that is compared. Modelled seconds are not among it: they follow from
        # bytes and direction.
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
