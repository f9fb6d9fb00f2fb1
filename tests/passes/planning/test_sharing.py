from __future__ import annotations

import dataclasses

import pytest

from samba_onnx.errors import UsageError
from samba_onnx.passes.planning.sharing import refuse_split_regions
from samba_onnx.pef.manifest import Fallback, FallbackNode
from samba_onnx.program.program import Program
from tests.passes.planning.planned import made

PLAN = made("g (float[4] x) => (float[4] y, float[4] c) { y = Relu (x)  c = Cos (x) }")
BARE = dataclasses.replace(PLAN, symbols=())
WHERE = FallbackNode("n", "Cos", "", "operator", "Cos is not supported", "", "model.py:7")


def program(*names: str, region: str = "shared") -> Program:
    return Program("forward", (), names, (), regions=dict.fromkeys(names, region))


def with_reasons(*reasons: FallbackNode) -> list[Fallback]:
    return [dataclasses.replace(fallback, reasons=reasons) for fallback in PLAN.fallbacks]


def refusal(*reasons: FallbackNode) -> str:
    plan = dataclasses.replace(BARE, fallbacks=tuple(with_reasons(*reasons)))
    with pytest.raises(UsageError) as caught:
        refuse_split_regions([program("c", "other")], [plan])
    return str(caught.value)


def test_a_shared_value_that_only_the_host_has_is_refused_with_reason_and_line() -> None:
    message = refusal(WHERE)
    assert (
        "tensor 'c' is to be in region 'shared' of device memory together with 'other'" in message
    )
    assert (
        "only the host has it: Cos at model.py:7 runs there, for Cos is not supported." in message
    )


def test_the_first_reason_is_told() -> None:
    second = dataclasses.replace(WHERE, op_type="Sin")
    assert "it: Cos at" in refusal(WHERE, second)


def test_without_a_line_none_is_told() -> None:
    nowhere = dataclasses.replace(WHERE, location="")
    assert "only the host has it: Cos runs there, for" in refusal(nowhere)


def test_without_a_reason_the_stage_is_told() -> None:
    assert f"only the host has it: {PLAN.fallbacks[0].name} runs there. Give" in refusal()


def test_values_with_a_place_on_the_device_may_share_it() -> None:
    assert {symbol.name for symbol in PLAN.symbols if symbol.region} >= {"x", "y"}
    refuse_split_regions([program("x", "y")], [PLAN])


def test_regions_after_one_without_sharers_are_looked_at() -> None:
    whole = Program(
        "forward", (), ("x", "c", "other"), (), regions=dict.fromkeys(("c", "other"), "s")
    )
    with pytest.raises(UsageError, match="'c' is to be in region 's'"):
        refuse_split_regions([whole], [BARE])


def test_a_value_with_a_region_of_its_own_may_stay_on_the_host() -> None:
    refuse_split_regions([program("c", region="alone")], [BARE])
    refuse_split_regions([Program("forward", (), ("c", "x"), ())], [BARE])


def test_values_of_several_graphs_share_a_region_too() -> None:
    with pytest.raises(UsageError, match="together with 'other'"):
        refuse_split_regions([program("c"), program("other")], [BARE, BARE])
