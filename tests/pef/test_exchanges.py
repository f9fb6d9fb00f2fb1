"""What of an exchange goes on beside the sections around it."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from samba_onnx.pef.exchanges import Busy, hidden_seconds
from samba_onnx.pef.stage_records import Streaming

EXACT = 1e-12
TIMES = st.floats(0, 1e3, allow_subnormal=False)


@st.composite
def sections(draw: st.DrawFn) -> Busy:
    seconds = draw(TIMES)
    part = draw(st.floats(0, 1)) * seconds
    streaming = Streaming(part, draw(st.integers(1, 600)))
    return Busy(seconds, draw(st.sampled_from([None, streaming])))


ORDERS = st.lists(st.one_of(sections(), TIMES, st.none()), max_size=9)


@pytest.mark.parametrize(
    ("behind", "sent", "hidden"),
    [
        (Busy(8.0), 6.0, 4.0),  # nothing of the section behind takes rows in their order
        (Busy(8.0, Streaming(8.0, 4)), 3.0, 3.0),  # the section before is long enough
        (Busy(8.0, Streaming(8.0, 4)), 8.0, 4.0 + 3.0),  # but for the first tile of what is left
        (Busy(8.0, Streaming(2.0, 4)), 8.0, 4.0 + 1.5),
        (
            Busy(8.0, Streaming(8.0, 1)),
            8.0,
            4.0,
        ),  # a single tile: nothing begins before all is there
    ],
)
def test_an_exchange_goes_on_beside_both_sections(behind: Busy, sent: float, hidden: float) -> None:
    assert hidden_seconds([Busy(4.0), sent, behind]) == [hidden]


def test_a_section_gives_its_time_once() -> None:
    behind = Busy(8.0, Streaming(8.0, 1_000_000))
    first, second = hidden_seconds([Busy(2.0), 7.0, behind, 9.0])
    assert (first, second) == (pytest.approx(7.0, rel=1e-5), pytest.approx(3.0, rel=1e-5))


def test_nothing_goes_on_beside_a_fallback() -> None:
    streams = Busy(8.0, Streaming(8.0, 4))
    assert hidden_seconds([Busy(4.0), None, 6.0, None, streams]) == [0.0]


@given(ORDERS)
def test_no_more_is_hidden_than_is_sent_and_than_sections_take(
    order: list[Busy | float | None],
) -> None:
    hidden = hidden_seconds(order)
    sent = [one for one in order if isinstance(one, float)]
    assert len(hidden) == len(sent)
    assert all(0 <= part <= whole * (1 + EXACT) for part, whole in zip(hidden, sent, strict=True))
    busy = sum(one.seconds for one in order if isinstance(one, Busy))
    assert sum(hidden) <= busy * (1 + EXACT)


@given(ORDERS)
@example([Busy(0.0), 5.0, Busy(4.0, Streaming(4.0, 1)), 5.0])
@example([Busy(0.0), 5.0, 5.0, Busy(4.0, Streaming(4.0, 2)), 5.0])
def test_what_streams_never_makes_a_run_longer(order: list[Busy | float | None]) -> None:
    plain = [Busy(one.seconds) if isinstance(one, Busy) else one for one in order]
    assert sum(hidden_seconds(order)) >= sum(hidden_seconds(plain)) * (1 - EXACT)
