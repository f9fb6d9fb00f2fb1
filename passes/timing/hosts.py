"""The CPU beside the device: what a node takes on it, and the profiles of its figures.

There is a default profile, and those that ``samba-port calibrate`` writes.
"""

from __future__ import annotations

import functools
import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final, Literal

import onnx_ir as ir
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from samba_onnx.errors import TargetError
from samba_onnx.facts.defaults import DEFAULT_HOST
from samba_onnx.facts.dtypes import ELEMENT_TYPES, plain_name
from samba_onnx.facts.figures import LARGEST, SMALLEST
from samba_onnx.facts.operator_facts import UNKNOWN_WORK, Kind
from samba_onnx.facts.operators import facts
from samba_onnx.passes.timing.matrix_products import node_dtype
from samba_onnx.passes.timing.node_work import node_flops, value_bytes
from samba_onnx.pef.host_summary import HostSummary
from samba_onnx.pef.target_summary import Assumption
from samba_onnx.program.dataflow import reads
from samba_onnx.program.repetition import Repetition, repetition
from samba_onnx.safety.files import open_regular

_COPIES: Final = frozenset({Kind.MOVE, Kind.OVERWRITE, Kind.CREATE})
_FILE: Final = Path(__file__).with_name("default_host.toml")
_MAX_BYTES: Final = 1 << 16
"""Size of a profile, at most: one of all data types takes a few thousand bytes."""
_SINGLE: Final = {
    "bytes_per_second": "bytes/s",
    "copy_bytes_per_second": "bytes/s",
    "node_seconds": "s",
    "call_seconds": "s",
}
"""Units of the figures that do not depend on a data type."""


def host_seconds(node: ir.Node, host: HostSummary) -> float | None:
    """Return the modelled time of one execution of a node on the CPU.

    Args:
        node: A node with inferred types and shapes.
        host: The CPU's figures.

    Returns:
        Seconds; None where a size is not known, or what the operator does with it. A body of a constant number
        of steps takes the time of all of them.
    """
    repeated = repetition(node)
    if repeated is not None:
        return _body_seconds(repeated, host)
    row = facts(node.op_type, node.domain)
    if row is None or row.kind in UNKNOWN_WORK:
        return None
    moved = 0
    for value in (*reads(node), *node.outputs):
        # A result without a name is one that nobody reads: onnxruntime does not write it.
        size = value_bytes(value) if value.name else 0
        if size is None:
            return None
        moved += size
    if row.kind is Kind.VIEW:
        moved = 0  # onnxruntime leaves the elements where they are
    copies = row.kind in _COPIES
    return work_seconds(host, node_flops(node), node_dtype(node), moved, copies=copies)


def _body_seconds(repeated: Repetition, host: HostSummary) -> float | None:
    times = [host_seconds(inner, host) for inner in repeated.body]
    # One unknown time makes the whole unknown: a sum of the others would look like a cheap body.
    known = [time for time in times if time is not None]
    return repeated.steps * sum(known) if len(known) == len(times) else None


def fallback_seconds(node_seconds: Iterable[float | None], host: HostSummary) -> tuple[float, int]:
    """Return the modelled time of a call of a fallback, and how many of its nodes have none.

    Args:
        node_seconds: The times of :func:`host_seconds` of the nodes that it executes in every run, which leaves
            out what is computed at load.
        host: The CPU's figures.
    """
    times = list(node_seconds)
    # What is all computed at load is not called in a run: not even its start counts.
    start = host.call_seconds if times else 0.0
    return start + sum(time for time in times if time is not None), times.count(None)


def work_seconds(host: HostSummary, flops: int, dtype: str, moved: int, *, copies: bool) -> float:
    """Return the modelled time of one execution of a node, by what it has to do.

    Args:
        host: The CPU's figures.
        flops: Arithmetic operations.
        dtype: Data type of the arithmetic; one without a figure counts as float32.
        moved: Bytes read and written.
        copies: Whether the operator only moves elements.

    Returns:
        Seconds: what any node takes, plus the longer of arithmetic and memory.
    """
    rate = host.copy_bytes_per_second if copies else host.bytes_per_second
    peak = host.peak_flops.get(dtype, host.peak_flops["float32"])
    return host.node_seconds + max(flops / peak, moved / rate)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class HostFigure(_Strict):
    """A figure of a host and how it is known."""

    value: Annotated[float, Field(ge=SMALLEST, le=LARGEST, allow_inf_nan=False)]
    evidence: Literal["measured", "assumed"]
    note: Annotated[str, Field(max_length=1000)] = ""


class HostFile(_Strict):
    """A whole profile."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}$")]
    peak_flops: dict[str, HostFigure]
    """Operations per second of products of matrices, by data type."""
    bytes_per_second: HostFigure
    """Read and written by operators that compute."""
    copy_bytes_per_second: HostFigure
    """Read and written by operators that move elements."""
    node_seconds: HostFigure
    """Taken by a node of a few elements."""
    call_seconds: HostFigure
    """Taken by the start of a fallback."""

    @model_validator(mode="after")
    def _check_types(self) -> HostFile:
        known = {plain_name(name) for name in ELEMENT_TYPES}
        for name in self.peak_flops:
            if name not in known:
                raise ValueError(f"unknown data type {name!r} in peak_flops")
        # The rate of every data type without one of its own.
        if "float32" not in self.peak_flops:
            raise ValueError("peak_flops has no float32, which other data types are counted as")
        return self

    def figures(self) -> dict[str, tuple[HostFigure, str]]:
        """Return every figure with its unit, by name."""
        rates = {f"peak_flops.{k}": (v, "operations/s") for k, v in self.peak_flops.items()}
        return {**rates, **{name: (getattr(self, name), unit) for name, unit in _SINGLE.items()}}


def load_host(profile: str | os.PathLike[str] | HostSummary = DEFAULT_HOST) -> HostSummary:
    """Load the profile of a host.

    Args:
        profile: ``default``, the path of a TOML file, or a loaded profile, which is returned as it is.

    Returns:
        Its figures; those that nobody measured are listed as assumptions.

    Raises:
        TargetError: There is no such file, or it is malformed; names the file and the key.
    """
    if isinstance(profile, HostSummary):
        return profile
    path = os.fspath(profile)
    return _default() if path == DEFAULT_HOST else _summary(_read(Path(path), f"host file {path}"))


@functools.cache
def _default() -> HostSummary:
    return _summary(_read(_FILE, "the built-in host file"))


def _read(path: Path, label: str) -> HostFile:
    """Parse and check a file."""
    if "\0" in str(path) or not path.exists():
        raise TargetError(
            f"{label}: there is no such file; write one with samba-port calibrate --output FILE, or "
            f"take {DEFAULT_HOST}"
        )
    with open_regular(path, what="host file", error=TargetError) as file:
        # One byte more tells a file that is too large without reading all of it.
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise TargetError(f"{label}: larger than {_MAX_BYTES} bytes, so no host file", path=path)
    try:
        return HostFile.model_validate(tomllib.loads(content.decode()))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(step) for step in first["loc"]) or "file"
        problem = "unknown key" if first["type"] == "extra_forbidden" else first["msg"]
        message = f"{label}: {place}: {problem.removeprefix('Value error, ')}"
        raise TargetError(message, path=path) from error
    except (ValueError, RecursionError) as error:  # TOML syntax, UTF-8, or nesting without end
        detail = str(error).splitlines()[0] if str(error) else "nested too deeply"
        raise TargetError(f"{label}: not valid TOML: {detail}", path=path) from error


def _summary(file: HostFile) -> HostSummary:
    return HostSummary(
        name=file.name,
        peak_flops={dtype: figure.value for dtype, figure in file.peak_flops.items()},
        bytes_per_second=file.bytes_per_second.value,
        copy_bytes_per_second=file.copy_bytes_per_second.value,
        node_seconds=file.node_seconds.value,
        call_seconds=file.call_seconds.value,
        assumptions=tuple(
            Assumption(f"host.{name}", figure.value, unit, figure.note)
            for name, (figure, unit) in file.figures().items()
            if figure.evidence == "assumed"
        ),
    )


def figures(host: HostSummary) -> dict[str, tuple[float, str]]:
    """Return the figures of a profile with their units, by name.

    Args:
        host: Any profile.
    """
    rates = {f"peak_flops.{k}": (v, "operations/s") for k, v in host.peak_flops.items()}
    return {**rates, **{name: (getattr(host, name), unit) for name, unit in _SINGLE.items()}}


def host_text(host: HostSummary, note: str) -> str:
    """Return a profile as a file that :func:`load_host` reads.

    Args:
        host: The profile, of which all figures were measured.
        note: How, for every figure.
    """

    def figure(value: float) -> str:
        return f'{{ value = {float(value)!r}, evidence = "measured", note = "{note}" }}'

    lines = [
        f'name = "{host.name}"',
        *(f"{key} = {figure(getattr(host, key))}" for key in _SINGLE),
        "",
        "[peak_flops]",
        *(f"{dtype} = {figure(value)}" for dtype, value in host.peak_flops.items()),
    ]
    return "\n".join(lines) + "\n"
