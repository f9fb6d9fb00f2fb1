from __future__ import annotations

from pathlib import Path

import pytest

from samba_onnx.errors import TargetError
from samba_onnx.passes.targets import listed, load_target, with_condition
from samba_onnx.passes.targets.hypotheses import hypothetical
from samba_onnx.pef.target_summary import LaunchOrigin


def test_a_part_has_its_share_of_the_chip_and_all_channels() -> None:
    whole, part = load_target("sn30").summary, load_target("sn30:4tiles").summary
    assert part.name == "sn30:4tiles"
    assert part.peak_flops["bfloat16"] == whole.peak_flops["bfloat16"] / 2
    assert part.tier("sram").bytes == whole.tier("sram").bytes // 2
    assert part.tier("ddr").bytes == whole.tier("ddr").bytes // 2
    assert part.tier("ddr").bytes_per_second == whole.tier("ddr").bytes_per_second
    assert part.timing is not None
    assert whole.timing is not None
    assert part.timing.compute_units == whole.timing.compute_units // 2
    halved = {one.name: one.value for one in part.assumptions}
    known = {one.name: one.value for one in whole.assumptions}
    assert halved["peak_flops.float32"] == known["peak_flops.float32"] / 2
    assert halved["ddr.bytes_per_second"] == known["ddr.bytes_per_second"]


def test_all_tiles_are_the_whole() -> None:
    whole, all_tiles = load_target("sn10").summary, load_target("sn10:4tiles").summary
    assert (all_tiles.tiers, all_tiles.timing) == (whole.tiers, whole.timing)


def test_conditions_of_a_run_change_what_they_say() -> None:
    timing = load_target("sn40l:host-launch,kernel-looping,tuned").summary.timing
    assert timing is not None
    assert (timing.launch, timing.looped, timing.tuned) == (LaunchOrigin.HOST, True, True)
    assert timing.launch_seconds == timing.host_launch_seconds


def test_a_target_has_one_name_in_whatever_order_conditions_are_stated() -> None:
    names = {load_target(name).name for name in ("sn30:tuned,1tiles", "sn30:1tile,tuned")}
    assert names == {"sn30:1tile,tuned"}


def test_a_condition_is_added_once(tmp_path: Path) -> None:
    assert with_condition("sn40l", "tuned") == "sn40l:tuned"
    assert with_condition("sn30:4tiles", "tuned") == "sn30:4tiles,tuned"
    assert with_condition("sn30:tuned", "tuned") == "sn30:tuned"
    path = tmp_path / "own:4tiles"
    path.write_text('extends = "sn30"')
    own = load_target(with_condition(str(path), "tuned"))
    assert own.summary.timing is not None
    assert (own.name, own.summary.timing.tuned) == ("own:4tiles:tuned", True)
    assert own.summary.tiers == load_target("sn30").summary.tiers


def test_a_list_of_targets_keeps_the_conditions_of_each_together() -> None:
    assert listed("sn10, sn30:4tiles,tuned,sn40l, sn10") == ("sn10", "sn30:4tiles,tuned", "sn40l")
    assert listed("sn10,tuned") == ("sn10", "tuned")


def test_the_smallest_part_has_a_compute_unit(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        'extends = "sn30"\n[hardware.timing]\ncompute_units = { value = 4, evidence = "assumed", note = "n" }'
    )
    timing = load_target(f"{path}:1tile").summary.timing
    assert timing is not None
    assert timing.compute_units == 1


def test_a_supposed_bandwidth_is_achieved_in_the_same_share() -> None:
    target = load_target("sn30")
    known = target.summary.tier("ddr")
    rate = f"{2 * known.bytes_per_second:.0f}B/s"
    supposed = hypothetical(target, [f"ddr.bytes_per_second={rate}"]).summary.tier("ddr")
    assert supposed.wide_bytes_per_second == 2 * known.wide_bytes_per_second
    assert supposed.narrow_bytes_per_second == 2 * known.narrow_bytes_per_second


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sn30:9tiles", "it has 8 tiles"),
        ("sn30:fast", "no condition 'fast'"),
        ("sn40l:2tiles", "does not state hardware.tiles"),
        ("sn31:4tiles", "neither built in"),
        ("sn30:4Tiles", "no condition '4Tiles'"),
        ("sn30:", "no condition ''"),
        ("sn30:4tiles,2tile", "'4tiles' and '2tile', which are about the same"),
        ("sn30:tuned,tuned", "'tuned' and 'tuned', which"),
        ("sn40l:host-launch,device-launch", "'host-launch' and 'device-launch', which"),
    ],
)
def test_what_there_is_not_is_refused(name: str, words: str) -> None:
    with pytest.raises(TargetError, match=words):
        load_target(name)
