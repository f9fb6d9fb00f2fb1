"""Targets as suppositions have them: what they say of nodes, their figures, and what is refused."""

from __future__ import annotations

from fractions import Fraction

import pytest
from pydantic import ValidationError

from samba_onnx.errors import TargetError, UsageError
from samba_onnx.passes.targets import load_target
from samba_onnx.passes.targets.hypotheses import hypothetical
from samba_onnx.passes.targets.schema import Figure, WholeFigure
from tests.passes.rewrites.applying import parse

TARGET = load_target("sn40l")
POWERS = {"n": -9, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15}


def test_an_operator_that_is_granted_runs_where_shapes_are_static() -> None:
    other = hypothetical(TARGET, ["support=Acos, com.example::Own"])
    static = parse("g (float[4] x) => (float[4] y) { y = Acos(x) }").graph[0]
    dynamic = parse("g (float[n] x) => (float[n] y) { y = Acos(x) }").graph[0]
    empty = parse("g (float[0] x) => (float[0] y) { y = Acos(x) }").graph[0]
    assert not TARGET.runs(static)
    assert other.support(static).evidence == "assumed"
    assert not other.runs(dynamic)
    assert not other.runs(empty)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("link.latency=2us", 2e-6),
        ("link.latency=1.5 ms", 1.5e-3),
        ("link.bytes_per_second=64GB/s", 64e9),
        ("hbm.bytes_per_second=2T", 2e12),
        ("hbm.bytes=128GB", 128e9),
        ("peak_flops.float32=5e14", 5e14),
    ],
)
def test_a_figure_has_the_value_and_counts_as_assumed(text: str, value: float) -> None:
    summary = hypothetical(TARGET, [text]).summary
    name = text.partition("=")[0]
    (figure,) = (each for each in summary.assumptions if each.name == name)
    assert figure.value == pytest.approx(value)
    known = {
        "link.latency": summary.link_latency_seconds,
        "link.bytes_per_second": summary.link_bytes_per_second,
        "hbm.bytes_per_second": summary.tier("hbm").bytes_per_second,
        "hbm.bytes": summary.tier("hbm").bytes,
        "peak_flops.float32": summary.peak_flops["float32"],
    }
    assert known[name] == pytest.approx(value)
    rest = {key: each for key, each in known.items() if key != name}
    original = TARGET.summary
    assert rest == {
        key: each
        for key, each in {
            "link.latency": original.link_latency_seconds,
            "link.bytes_per_second": original.link_bytes_per_second,
            "hbm.bytes_per_second": original.tier("hbm").bytes_per_second,
            "hbm.bytes": original.tier("hbm").bytes,
            "peak_flops.float32": original.peak_flops["float32"],
        }.items()
        if key != name
    }


def test_another_target_is_taken_before_what_changes_it() -> None:
    other = hypothetical(TARGET, ["link.latency=2us", "target=sn10"])
    assert other.name == "sn10"
    assert other.summary.link_latency_seconds == 2e-6


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("latency", "expected support="),
        ("support=", "expected support="),
        ("support=Grid", "ONNX has no operator 'Grid'"),
        (
            "link.speed=3",
            "there is no such figure; expected support, target, or one of link.latency",
        ),
        ("link.latency=2m", "expected a number in s, as 2us"),
        ("link.latency=2GB", "expected a number in s"),
        ("hbm.bytes=2s", "expected a number in bytes, as 64GB"),
        ("hbm.bytes=0", "expected a whole number from 1 to 999999999999999999"),
        ("link.latency=0s", "expected a number from 1e-15 to 1e+21"),
        ("hbm.bytes=-1", "expected a number in bytes"),
    ],
)
def test_what_cannot_be_supposed(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        hypothetical(TARGET, [text])
    assert words in str(caught.value)


NUMBERS = (
    "0", "0.1", "0.999999999", "1", "1.5", "2", "1.1G", "0.0000015M", "0.000002M", "3e-9", "1e-15", "9e-16", "1n",
    "1e18", "999999999999999999e0", "999999999999999e3", "1e21", "1.1e21", "999999999999999e15", "1e29", "1e99", "1e-99",
    "0e0", "1P", "999P", "1000P", "1000000P", "1000001P",
)  # fmt: skip
FIGURES = sorted(
    {
        *("link.latency", "link.bytes_per_second", "rdu_link.latency", "rdu_link.bytes_per_second"),
        *(f"{tier.name}.{what}" for tier in TARGET.summary.tiers for what in ("bytes", "bytes_per_second")),
        *(f"peak_flops.{dtype}" for dtype in TARGET.summary.peak_flops),
    }
)  # fmt: skip


@pytest.mark.parametrize("name", FIGURES)
def test_what_may_be_supposed_is_what_a_target_file_may_state(name: str) -> None:
    kind: type[Figure] = WholeFigure if name.endswith(".bytes") else Figure
    unit = "s" if name.endswith("latency") else ""
    taken = 0
    for text in NUMBERS:
        exact = Fraction(text.rstrip("nkMGTP")) * Fraction(10) ** POWERS.get(text[-1], 0)
        number = int(exact) if kind is WholeFigure and exact.denominator == 1 else float(exact)
        try:
            kind(value=number, evidence="assumed", note="")
        except ValidationError:
            with pytest.raises(UsageError, match=r"expected a (whole )?number"):
                hypothetical(TARGET, [f"{name}={text}{unit}"])
            continue
        taken += 1
        summary = hypothetical(TARGET, [f"{name}={text}{unit}"]).summary
        (figure,) = (each for each in summary.assumptions if each.name == name)
        assert figure.value == number
        assert all(tier.bytes > 0 for tier in summary.tiers)
    assert 3 < taken < len(NUMBERS) - 3


def test_a_target_that_there_is_not() -> None:
    with pytest.raises(TargetError):
        hypothetical(TARGET, ["target=sn99"])
