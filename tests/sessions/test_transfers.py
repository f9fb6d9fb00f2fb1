"""Accounting through the session, and limits for it."""

from __future__ import annotations

from threading import Thread

import pytest

from samba_onnx.errors import TransferLimitError, UsageError
from samba_onnx.pef.manifest import Cause, Direction
from samba_onnx.sessions import SambaSession
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
        assert "2 of 44 bytes" in repr(transfers)


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
