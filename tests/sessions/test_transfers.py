"""Accounting through the session, and limits for it."""

from __future__ import annotations

from threading import Thread

import pytest

from samba_onnx.errors import TransferLimitError, UsageError
from samba_onnx.pef.manifest import Cause, Direction, Transfer
from samba_onnx.runtime.ledger import Ledger
from samba_onnx.sessions import SambaSession
from samba_onnx.sessions.transfers import Transfers, expecting
from tests.sessions.conftest import Compiled


def test_a_run_moves_inputs_and_outputs_and_nothing_else(
    session: SambaSession, compiled: Compiled
) -> None:
    outputs = compiled.trace()
    transfers = session.transfers
    for _ in range(3):
        transfers.reset()
        session.run(compiled.inputs, outputs)
        moved = [(made.symbol, made.bytes, made.direction) for made in transfers]
        assert moved == [
            ("features", 2 * 4 * 4, Direction.HOST_TO_RDU),
            ("shift", 3 * 4, Direction.HOST_TO_RDU),
            (outputs[0].sn_name, 2 * 3 * 4, Direction.RDU_TO_HOST),
            (outputs[1].sn_name, 2 * 3 * 4, Direction.RDU_TO_HOST),
        ]
        assert (transfers.count, len(transfers), transfers.bytes) == (4, 4, 92)
        totals = {(t.cause, t.direction): (t.count, t.bytes) for t in transfers.totals()}
        assert totals == {
            (Cause.INPUT, Direction.HOST_TO_RDU): (2, 44),
            (Cause.OUTPUT, Direction.RDU_TO_HOST): (2, 48),
        }
        assert repr(transfers) == (
            "Transfers(input host_to_rdu: 2 of 44 bytes; output rdu_to_host: 2 of 48 bytes)"
        )


def test_nothing_was_moved_before_anything_was_traced(session: SambaSession) -> None:
    assert (session.transfers.count, session.transfers.bytes) == (0, 0)
    session.transfers.reset()
    with session.expect_transfers(max_bytes=0):
        pass


def test_a_block_that_moves_more_than_expected_fails_with_a_table(
    session: SambaSession, compiled: Compiled
) -> None:
    outputs = compiled.trace()
    session.run(compiled.inputs, outputs)
    with session.expect_transfers(max_bytes=92, max_count=4) as seen:
        session.run(compiled.inputs, outputs)
    assert seen is session.transfers

    def run_twice() -> None:
        with session.expect_transfers(max_bytes=100):
            session.run(compiled.inputs, outputs)
            session.run(compiled.inputs, outputs)

    with pytest.raises(TransferLimitError) as caught:
        run_twice()
    lines = str(caught.value).splitlines()
    assert "184 bytes, at most 100 were expected" in lines[0]
    assert [line.split() for line in lines[1:3]] == [
        ["symbol", "direction", "cause", "count", "bytes"],
        ["features", "host_to_rdu", "input", "2", "64"],
    ]
    assert len(lines) == 6
    count = pytest.raises(TransferLimitError, match="1 transfers, at most 0")
    with count, session.expect_transfers(max_count=0):
        compiled.model.inner.bias.rdu()


def test_reads_and_writes_on_request_count_too(session: SambaSession, compiled: Compiled) -> None:
    compiled.trace()
    session.transfers.reset()
    bias = compiled.model.inner.bias
    bias.sn_data = bias.sn_data
    assert [made.cause for made in session.transfers] == [Cause.EXPLICIT] * 2


@pytest.mark.parametrize(
    ("limits", "message"),
    [({}, "no limit"), ({"max_bytes": -1}, "max_bytes is -1"), ({"max_count": -2}, "max_count")],
)
def test_limits_are_checked(session: SambaSession, limits: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message), session.expect_transfers(**limits):
        pass


def test_an_error_inside_is_not_hidden(session: SambaSession, compiled: Compiled) -> None:
    compiled.trace()

    def fail() -> None:
        with session.expect_transfers(max_count=0):
            compiled.model.inner.bias.rdu()
            raise KeyError

    with pytest.raises(KeyError):
        fail()


def test_copies_of_other_threads_count_too(session: SambaSession, compiled: Compiled) -> None:
    compiled.trace()
    other = Thread(target=compiled.model.inner.bias.rdu)
    count = pytest.raises(TransferLimitError, match="1 transfers, at most 0")
    with count, session.expect_transfers(max_count=0):
        other.start()
        other.join()


def transfer(symbol: str, size: int, direction: Direction = Direction.HOST_TO_RDU) -> Transfer:
    return Transfer(symbol, size, direction, Cause.EXPLICIT, 0.0)


class Copies:
    """A ledger of copies that a test makes."""

    def __init__(self) -> None:
        self.transfers: tuple[Transfer, ...] = (transfer("before", 1000),)

    def make(self, *made: Transfer) -> None:
        self.transfers += made


def watching(copies: Copies | None) -> Transfers:
    ledger: object = copies
    assert ledger is None or isinstance(ledger, (Ledger, Copies))
    return Transfers(lambda: ledger)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("limits", [(100, None), (None, 2), (100, 2), (101, 3)])
def test_as_many_copies_as_were_expected_are_allowed(limits: tuple[int | None, int | None]) -> None:
    """Those before the block do not count, nor do those between devices."""
    copies = Copies()
    with expecting(watching(copies), *limits) as seen:
        copies.make(transfer("a", 60), transfer("b", 40))
        copies.make(transfer("c", 5000, Direction.RDU_TO_RDU))
        assert (seen.count, seen.bytes) == (4, 6100)


@pytest.mark.parametrize(
    ("limits", "complaint"),
    [
        ((99, None), "the block made 100 bytes, at most 99 were expected; keep"),
        ((None, 1), "the block made 2 transfers, at most 1 were expected; keep"),
        ((0, 0), "100 bytes, at most 0 were expected and 2 transfers, at most 0 were expected; keep"),
    ],
)  # fmt: skip
def test_one_copy_more_is_refused(limits: tuple[int | None, int | None], complaint: str) -> None:
    copies = Copies()
    with pytest.raises(TransferLimitError, match=complaint), expecting(watching(copies), *limits):
        copies.make(transfer("a", 60), transfer("b", 40))


def test_copies_since_the_records_were_forgotten_count() -> None:
    """Also where there are more of them than before, or other ones of the same content."""
    for again in ((transfer("before", 1000),), (transfer("b", 1), transfer("c", 1))):
        copies = Copies()
        sizes = sum(record.bytes for record in again)
        message = f"{sizes} bytes, at most 1 were"
        with pytest.raises(TransferLimitError, match=message), expecting(watching(copies), 1, None):
            copies.transfers = again
    with expecting(watching(copies), 0, 0):
        copies.transfers = ()


def test_the_table_lists_the_largest_twenty() -> None:
    """Equal copies are a row, those that are most bytes together are first."""
    copies = Copies()
    different = [transfer(f"t{number}", number) for number in range(1, 24)]
    again = [transfer("t2", 2)] * 24
    with pytest.raises(TransferLimitError) as caught, expecting(watching(copies), None, 0):
        copies.make(*different, *again, transfer("t2", 2, Direction.RDU_TO_HOST))
    _, head, *rows, more = str(caught.value).splitlines()
    assert head == "symbol  direction    cause     count  bytes"
    assert rows[0] == "t2      host_to_rdu  explicit     25     50"
    assert rows[1] == "t23     host_to_rdu  explicit      1     23"
    assert (len(rows), more) == (20, "... and 4 more")
    with pytest.raises(TransferLimitError) as caught, expecting(watching(copies), None, 0):
        copies.make(*different[:20])
    assert len(str(caught.value).splitlines()) == 22


def test_who_has_no_ledger_has_copied_nothing() -> None:
    transfers = watching(None)
    transfers.reset()
    assert (transfers.count, transfers.bytes, transfers.totals()) == (0, 0, ())
    assert repr(transfers) == "Transfers(none)"
