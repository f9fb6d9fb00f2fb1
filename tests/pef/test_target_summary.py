"""What a PEF says of its device, where it says less or is asked for more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samba_onnx.pef.target_summary import Assumption
from tests.passes.planning.plan_samples import LATENCY, LINK, figures

LINKED = replace(
    figures(),
    rdu_link_bytes_per_second=2.0**24,
    rdu_link_latency_seconds=2.0**-16,
    assumptions=(
        Assumption("ddr.bytes_per_second", 2.0**30, "B/s", "as another device has it"),
        Assumption("rdu_link.latency_seconds", 2.0**-16, "s", "as another link has it"),
    ),
)


def test_a_program_of_one_rdu_says_nothing_of_the_link_to_others() -> None:
    alone = LINKED.alone()
    assert alone == replace(figures(), assumptions=LINKED.assumptions[:1])
    # Who asks all the same is told of the link that there is.
    assert LINKED.exchange_seconds(2**20) == 2.0**-16 + 2.0**-4
    assert alone.exchange_seconds(2**20) == LATENCY + 2**20 / LINK


def test_a_tier_that_a_device_lacks_is_named() -> None:
    assert figures().tier("ddr").name == "ddr"
    with pytest.raises(KeyError, match="hbm"):
        figures(hbm=0).tier("hbm")
