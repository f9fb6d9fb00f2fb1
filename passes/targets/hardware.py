"""From the figures of a target file to the summary that a PEF carries."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Literal

from samba_onnx.passes.targets.schema import Ability, Figure, HardwareFile, TimingFile
from samba_onnx.passes.targets.target_files import TargetProfile
from samba_onnx.pef.target_summary import Assumption, TargetSummary, Tier, TimingFigures

TIERS: tuple[Literal["sram", "hbm", "ddr"], ...] = ("sram", "hbm", "ddr")
"""From nearest to the compute units to farthest."""
_ABILITIES: Final = {
    "overlaps.to_rdu": "overlaps_to_rdu",
    "overlaps.to_host": "overlaps_to_host",
    "overlaps.cpu": "overlaps_cpu",
    "repeats_bodies": "repeats_bodies",
}
"""Fields of a target file that say yes or no about a device, by the names that reports use."""


def summarise(profile: TargetProfile) -> TargetSummary:
    """Return the hardware figures, with those listed as assumptions that nobody published."""
    hardware = profile.hardware
    figures = _figures(hardware)
    values = {name: figure.value for name, (figure, _) in figures.items()}
    stated = {name: getattr(hardware, field) for name, field in _ABILITIES.items()}
    abilities = {name: ability for name, ability in stated.items() if ability is not None}
    return TargetSummary(
        name=profile.name,
        tiers=tuple(
            Tier(
                tier,
                int(values[f"{tier}.bytes"]),
                values[f"{tier}.bytes_per_second"],
                # Zero stands for a figure that the file leaves out: the reader of the summary takes
                # the bandwidth, or finds no link to another RDU.
                values.get(f"{tier}.wide_bytes_per_second", 0.0),
                values.get(f"{tier}.narrow_bytes_per_second", 0.0),
            )
            for tier in TIERS
            if tier in hardware.tiers
        ),
        peak_flops={dtype: figure.value for dtype, figure in hardware.peak_flops.items()},
        link_bytes_per_second=values["link.bytes_per_second"],
        link_latency_seconds=values["link.latency"],
        rdu_link_bytes_per_second=values.get("rdu_link.bytes_per_second", 0.0),
        rdu_link_latency_seconds=values.get("rdu_link.latency", 0.0),
        # Evidence of published figures stays in the target file; a PEF carries only what a user may
        # have to doubt.
        assumptions=(
            *(
                Assumption(name, figure.value, unit, figure.note)
                for name, (figure, unit) in figures.items()
                if figure.evidence == "assumed"
            ),
            *(
                Assumption(name, float(ability.value), "yes or no", ability.note)
                for name, ability in abilities.items()
                if ability.evidence == "assumed"
            ),
        ),
        overlaps_to_rdu=_is_stated(hardware.overlaps_to_rdu),
        overlaps_to_host=_is_stated(hardware.overlaps_to_host),
        overlaps_cpu=_is_stated(hardware.overlaps_cpu),
        repeats_bodies=_is_stated(hardware.repeats_bodies),
        timing=None if hardware.timing is None else _timing(values),
    )


def _is_stated(ability: Ability | None) -> bool:
    """Return whether a device can do something; what nobody states it cannot."""
    return ability is not None and ability.value


def _timing(values: Mapping[str, float]) -> TimingFigures:
    """Return the figures of a section's timing; those that count something, as units, are whole numbers."""
    own: dict[str, Any] = {
        # The record of the timing model decides which figures there are, so that a new one needs no
        # second list here.
        field.name: values[f"timing.{field.name}"]
        for field in dataclasses.fields(TimingFigures)
        if f"timing.{field.name}" in values
    }
    return TimingFigures(**own)


def timing_unit(name: str) -> str:
    """Return the unit of a figure of sections, by its name."""
    for ending, unit in (("_seconds", "s"), ("_bytes", "bytes"), ("_units", "units")):
        if name.endswith(ending):
            return unit
    return "elements" if name == "granule" else "share"


def _figures(hardware: HardwareFile) -> dict[str, tuple[Figure, str]]:
    """Return every figure and its unit by name."""
    figures: dict[str, tuple[Figure | None, str]] = {}
    for name in TIERS:
        if tier := hardware.tiers.get(name):
            figures[f"{name}.bytes"] = (tier.bytes, "bytes")
            figures[f"{name}.bytes_per_second"] = (tier.bytes_per_second, "bytes/s")
            figures[f"{name}.wide_bytes_per_second"] = (tier.wide_bytes_per_second, "bytes/s")
            figures[f"{name}.narrow_bytes_per_second"] = (tier.narrow_bytes_per_second, "bytes/s")
    for dtype, figure in hardware.peak_flops.items():
        figures[f"peak_flops.{dtype}"] = (figure, "operations/s")
    figures["link.bytes_per_second"] = (hardware.link_bytes_per_second, "bytes/s")
    figures["link.latency"] = (hardware.link_latency_seconds, "s")
    figures["rdu_link.bytes_per_second"] = (hardware.rdu_link_bytes_per_second, "bytes/s")
    figures["rdu_link.latency"] = (hardware.rdu_link_latency_seconds, "s")
    for key in TimingFile.model_fields if hardware.timing is not None else ():
        figures[f"timing.{key}"] = (getattr(hardware.timing, key), timing_unit(key))
    # A figure that is left out has no entry at all, so that nobody takes None for a number.
    return {name: (figure, unit) for name, (figure, unit) in figures.items() if figure is not None}
