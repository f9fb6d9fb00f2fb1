"""The shape of a target file, checked by pydantic: every key is known or refused.

A file may leave out whatever its base (``extends``) states; whether the whole is complete is
checked after merging (:mod:`samba_onnx.passes.targets.target_files`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

import onnx_ir as ir
from pydantic import BaseModel, ConfigDict, Field, model_validator

from samba_onnx.facts.dtypes import plain_name
from samba_onnx.facts.figures import LARGEST, LARGEST_WHOLE, SMALLEST
from samba_onnx.passes.targets.named_limits import LIMITS
from samba_onnx.passes.targets.reasons import ReasonCode

DTYPES: dict[str, ir.DataType] = {
    plain_name(dtype.name): dtype for dtype in ir.DataType if dtype is not ir.DataType.UNDEFINED
}
"""Data types by the names that target files and messages use: ``float32``, ``bfloat16``, ..."""


class _Strict(BaseModel):
    # Strict, or a quoted number in TOML would be taken for a number; frozen, since built-in files
    # are cached and shared.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


Text = Annotated[str, Field(max_length=1000)]
Positive = Annotated[int, Field(ge=1)]
Pair = Annotated[tuple[int, int], Field(strict=False)]  # TOML has arrays, not tuples


class TypeLists(_Strict):
    """Data types by how well their support is known; each occurs once."""

    full: list[str] = []
    """The vendor documents full support."""
    experimental: list[str] = []
    """The vendor documents experimental support."""
    observed: list[str] = []
    """A program or log for the RDU uses it."""
    assumed: list[str] = []
    """Inferred: the operator is composed of ones that are documented or observed."""

    def statuses(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the name and the data types of each list."""
        yield "full", self.full
        yield "experimental", self.experimental
        yield "observed", self.observed
        yield "assumed", self.assumed

    @model_validator(mode="after")
    def _check_types(self) -> Self:
        seen: set[str] = set()
        for _, names in self.statuses():
            for name in names:
                if name not in DTYPES:
                    raise ValueError(f"unknown data type {name!r}; known: {', '.join(DTYPES)}")
                # A type with two statuses would have whichever list comes last.
                if name in seen:
                    raise ValueError(f"data type {name!r} is listed twice")
                seen.add(name)
        return self


class NumberRange(_Strict):
    """An attribute's least and greatest value, both allowed."""

    min: float | None = None
    max: float | None = None

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError("min exceeds max")
        return self


AllowedValues = Annotated[list[int | float | str], Field(min_length=1)]


class RowFile(TypeLists):
    """One supported operator, as a file states it."""

    since: Positive = 1
    """First version of the operator that the row describes."""
    until: Positive | None = None
    """Last version; the newest that the table knows when left out."""
    operands: dict[str, TypeLists] = {}
    """Inputs and outputs, by formal name, whose data types differ from the row's own."""
    attributes: dict[str, AllowedValues | NumberRange] = {}
    """Values allowed, where not all are; of a list attribute, the values of its elements."""
    ranks: dict[str, Pair] = {}
    """Least and greatest number of dimensions of an operand."""
    static: list[str] = []
    """Inputs that must be compile-time constants; they become part of the configuration."""
    absent: list[str] = []
    """Optional operands that the device does not take."""
    limits: list[str] = []
    """Further limits, by their names in :mod:`samba_onnx.passes.targets.named_limits`."""
    source: Text = ""
    """Where the evidence comes from."""

    @model_validator(mode="after")
    def _check_row(self) -> Self:
        # A row without a data type supports nothing: that is what the table of unsupported
        # operators is for.
        if not any(names for _, names in self.statuses()):
            raise ValueError("a row needs a data type in full, experimental, observed or assumed")
        if self.until is not None and self.until < self.since:
            raise ValueError("until is before since")
        for limit in self.limits:
            if limit not in LIMITS:
                raise ValueError(f"unknown limit {limit!r}; known: {', '.join(sorted(LIMITS))}")
        for name, (least, greatest) in self.ranks.items():
            if not 0 <= least <= greatest:
                raise ValueError(f"ranks of {name!r} are no range")
        return self


class UnsupportedFile(_Strict):
    """An operator that the target is known not to run, and why."""

    note: Annotated[str, Field(min_length=1, max_length=1000)]
    code: str = ReasonCode.OPERATOR.value

    @model_validator(mode="after")
    def _check_code(self) -> Self:
        if self.code not in set(ReasonCode):
            raise ValueError(f"unknown code {self.code!r}; known: {', '.join(ReasonCode)}")
        return self


class Figure(_Strict):
    """A hardware figure and how it is known."""

    # Bounded, so that times and rates that follow from several figures stay finite
    # (facts/figures.py).
    value: Annotated[float, Field(ge=SMALLEST, le=LARGEST, allow_inf_nan=False)]
    evidence: Literal["published", "derived", "assumed"]
    """``derived``: calculated from published figures."""
    note: Text


class WholeFigure(Figure):
    """A figure that is a whole number, such as bytes or units."""

    value: Annotated[int, Field(ge=1, le=LARGEST_WHOLE)]


class TierFile(_Strict):
    """One level of device memory."""

    bytes: WholeFigure | None = None
    bytes_per_second: Figure | None = None
    wide_bytes_per_second: Figure | None = None
    """Rate that a section achieves for values that lie in all channels; the bandwidth when left out."""
    narrow_bytes_per_second: Figure | None = None
    """Rate that a section achieves for smaller values; the bandwidth when left out."""


class Ability(_Strict):
    """Whether a device does something, and how that is known."""

    value: bool
    evidence: Literal["published", "derived", "assumed"]
    note: Text


class Share(Figure):
    """A figure that is a share of a whole, above 0 and up to 1."""

    value: Annotated[float, Field(ge=1e-9, le=1)]


class TimingFile(_Strict):
    """How far sections stay behind peak figures, and what a launch takes (``docs/timing.md``).

    The names are those of :class:`samba_onnx.pef.target_summary.TimingFigures`, which says what they are.
    """

    host_launch_seconds: Figure | None = None
    device_launch_seconds: Figure | None = None
    product_efficiency: Share | None = None
    fused_efficiency: Share | None = None
    tuned_efficiency: Share | None = None
    tuned_traffic: Share | None = None
    streamed_share: Share | None = None
    vector_efficiency: Share | None = None
    fill_seconds: Figure | None = None
    granule: WholeFigure | None = None
    compute_units: WholeFigure | None = None
    product_units: WholeFigure | None = None
    operator_units: WholeFigure | None = None
    tile_bytes: WholeFigure | None = None
    wide_bytes: WholeFigure | None = None
    map_seconds: Figure | None = None
    position_seconds: Figure | None = None


class HardwareFile(_Strict):
    """The figures that memory planning and modelled times rest on."""

    tiers: dict[Literal["sram", "hbm", "ddr"], TierFile] = {}
    peak_flops: dict[str, Figure] = {}
    """Operations per second by data type."""
    link_bytes_per_second: Figure | None = None
    """Between host and RDU, each way."""
    link_latency_seconds: Figure | None = None
    rdu_link_bytes_per_second: Figure | None = None
    """From one RDU to the next one; a target that stands alone may have none."""
    rdu_link_latency_seconds: Figure | None = None
    """Latency of an exchange between all RDUs of a program."""
    tiles: WholeFigure | None = None
    """Tiles of an RDU, of which a program may have a part; none where it cannot be divided."""
    overlaps_to_rdu: Ability | None = None
    """Whether copies from the host go on beside sections; none where they do not."""
    overlaps_to_host: Ability | None = None
    """Whether copies to the host go on beside sections."""
    overlaps_cpu: Ability | None = None
    """Whether sections go on beside fallbacks."""
    repeats_bodies: Ability | None = None
    """Whether a section executes the body of a Scan step by step by itself; none where steps must be unrolled."""
    timing: TimingFile | None = None
    """None where only the figures above are known: sections run at peak rate, without a launch."""

    @model_validator(mode="after")
    def _check_types(self) -> Self:
        for name in self.peak_flops:
            if name not in DTYPES:
                raise ValueError(f"unknown data type {name!r} in peak_flops")
        return self


class TargetFile(_Strict):
    """A target file, as it is before it is merged with what it extends."""

    # Optional everywhere: None tells the merge that the base's value holds, which a default value
    # could not.
    extends: Text | None = None
    """A built-in table or target, or a path relative to this file, that this one builds on."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] | None = None
    description: Text | None = None
    dtypes: list[str] | None = None
    """Data types that the target computes with; rows are narrowed to them."""
    opsets: Pair | None = None
    """Oldest and newest version of the default operator set that the rows describe."""
    fusion_rules: Text | None = None
    """A file of fusion rules, relative to this one: those of level ``o1`` where the user has none."""
    hardware: HardwareFile = Field(default_factory=HardwareFile)
    operators: dict[str, RowFile] = {}
    """Rows by operator, ``domain::Operator`` outside the default domain; replaces the base's."""
    unsupported: dict[str, UnsupportedFile] = {}
    remove: list[str] = []
    """Rows of the base that this target does not have."""

    @model_validator(mode="after")
    def _check_file(self) -> Self:
        for dtype in self.dtypes or ():
            if dtype not in DTYPES:
                raise ValueError(f"unknown data type {dtype!r} in dtypes")
        if self.opsets is not None and not 1 <= self.opsets[0] <= self.opsets[1]:
            raise ValueError("opsets are no range")
        both = sorted(self.operators.keys() & (self.unsupported.keys() | set(self.remove)))
        if both:
            raise ValueError(f"{both[0]!r} is both among the operators and unsupported or removed")
        return self
