"""What a plan says of weak evidence and scarce memory, and what it refuses."""

from __future__ import annotations

import pytest

from samba_onnx.errors import InternalError, OutOfDeviceMemoryError
from tests.passes.planning.plan_samples import named, parse, target
from tests.passes.planning.planned import made, planned


def test_weak_evidence_is_counted() -> None:
    found = made("""g (float[4] x) => (float[4] y) {
        a = Exp (x)
        b = Abs (a)
        c = Abs (b)
        y = Neg (c)
    }""")
    assert found.experimental == {"Abs: observed": 2, "Exp: experimental": 1, "Neg: assumed": 1}


def test_evidence_does_not_matter_on_the_cpu() -> None:
    assert made("g (float[4] x) => (float[4] y) { y = Abs (x) }", cpu=("Abs",)).experimental == {}


def test_an_operator_larger_than_the_chip_is_noted() -> None:
    found = made("g (float[4] x) => (float[4] y) { y = Relu (x) }", device=target(sram=20))
    assert found.sections[0].sram_bytes == 32
    assert found.notes == (
        "section 0 (Relu) needs 32 bytes of on-chip memory, more than the 20 of toy: its operands "
        "are streamed from off-chip memory",
    )


def test_traffic_counts_at_the_bandwidth_of_its_tier() -> None:
    text = "g (float[4] x) => (float[4] y) { y = Relu (x) }"
    split = made(text, device=target(hbm=16))
    assert [region.tier for region in split.regions] == ["hbm", "ddr"]
    assert split.sections[0].seconds == 16 / 2**40 + 16 / 2**30


def test_a_model_larger_than_the_device_is_refused() -> None:
    text = "g (float[4] x) => (float[8] y) { y = Concat <axis = 0> (x, x) }"
    with pytest.raises(OutOfDeviceMemoryError, match=r"needs 48 bytes.*'y' 32"):
        made(text, device=target(hbm=20, ddr=30))


def test_names_that_do_not_tell_values_apart() -> None:
    model = named(parse("g (float[4] x) => (float[4] y) { y = Relu (x) }"))
    model.graph[0].outputs[0].name = "x"
    with pytest.raises(InternalError, match="the name 'x' does not tell"):
        planned(model)


def test_a_value_of_unknown_size_on_the_rdu() -> None:
    with pytest.raises(InternalError, match=r"'x' of type FLOAT and shape \[n\]"):
        made("g (float[n] x) => (float[n] y) { y = Relu (x) }")
