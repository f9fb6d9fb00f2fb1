from __future__ import annotations

import pytest

from samba_onnx.errors import OutOfDeviceMemoryError
from samba_onnx.passes.planning.allocation import allocate, off_chip_tiers
from samba_onnx.pef.manifest import Region
from tests.passes.planning.plan_samples import figures


def tiers(regions: tuple[Region, ...]) -> dict[str, str]:
    return {region.name: region.tier for region in regions}


def test_the_fastest_tier_comes_first_and_sram_is_no_home() -> None:
    assert [tier.name for tier in off_chip_tiers(figures())] == ["hbm", "ddr"]
    assert [tier.name for tier in off_chip_tiers(figures(hbm=0))] == ["ddr"]


def test_what_does_not_fit_the_fastest_tier_goes_to_the_next() -> None:
    regions = allocate({"a": 60, "b": 50, "c": 40}, frozenset("a"), figures(hbm=100, ddr=1000))
    assert tiers(regions) == {"a": "hbm", "b": "ddr", "c": "hbm"}
    assert [region.mutable for region in regions] == [True, False, False]


def test_a_second_order_is_tried_before_giving_up() -> None:
    # In the given order "a" takes the only place that is large enough for "b".
    regions = allocate({"a": 40, "b": 100}, frozenset(), figures(hbm=100, ddr=40))
    assert tiers(regions) == {"a": "ddr", "b": "hbm"}


def test_regions_of_earlier_graphs_take_up_room() -> None:
    used = (Region("w", 80, "hbm"),)
    assert tiers(allocate({"a": 40}, frozenset(), figures(hbm=100, ddr=50), used)) == {"a": "ddr"}


def test_too_much_names_the_largest_values_and_what_to_do() -> None:
    sizes = {f"v{i}": 10 + i for i in range(10)}
    with pytest.raises(OutOfDeviceMemoryError) as caught:
        allocate(sizes, frozenset(), figures(hbm=20, ddr=30))
    message = str(caught.value)
    assert "145 bytes" in message
    assert "toy has room for (hbm 20, ddr 30)" in message
    assert "'v9' 19, 'v8' 18, 'v7' 17, 'v6' 16, 'v5' 15;" in message
    assert message.endswith("or choose a target with more memory")
    assert "--dim" in message
    assert caught.value.regions == sizes


def test_what_earlier_graphs_take_is_part_of_what_is_needed() -> None:
    used = (Region("w", 80, "hbm"),)
    with pytest.raises(OutOfDeviceMemoryError, match="needs 1,080 bytes") as caught:
        allocate({"a": 1000}, frozenset(), figures(hbm=100, ddr=50), used)
    assert caught.value.regions == {"w": 80, "a": 1000}


def test_exactly_full_fits() -> None:
    assert tiers(allocate({"a": 100}, frozenset(), figures(hbm=100, ddr=1))) == {"a": "hbm"}
    assert allocate({}, frozenset(), figures(hbm=1, ddr=1)) == ()
