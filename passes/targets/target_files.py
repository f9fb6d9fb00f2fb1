"""Reading target files: TOML, checked, merged along ``extends``, complete or refused."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import onnx
from pydantic import ValidationError

from samba_onnx.errors import TargetError
from samba_onnx.passes.targets.schema import (
    Figure,
    HardwareFile,
    RowFile,
    TargetFile,
    TierFile,
    TimingFile,
    UnsupportedFile,
)
from samba_onnx.safety.files import open_regular, printable

FOLDER = Path(__file__).parent
MAX_BYTES = 1 << 20
"""A target file is a page or two; anything larger is something else."""
MAX_DEPTH = 16
_BASES = frozenset({"operators", "unsupported"})
"""Built-in files that hold rows for others to extend, and no hardware."""


_Figures = TypeVar("_Figures", TierFile, TimingFile, HardwareFile)


@dataclass(frozen=True)
class TargetProfile:
    """A target file together with everything that it extends."""

    name: str
    description: str
    path: Path
    dtypes: tuple[str, ...] | None
    opsets: tuple[int, int]
    hardware: HardwareFile
    operators: Mapping[str, RowFile]
    unsupported: Mapping[str, UnsupportedFile]
    fusion_rules: Path | None
    """The file of the rules of level ``o1``."""


def available_targets() -> tuple[str, ...]:
    """Return the names of the built-in targets."""
    return tuple(sorted(_builtin_names() - _BASES))


def _builtin_names() -> set[str]:
    return {path.stem for path in FOLDER.glob("*.toml")}


def read_profile(name_or_path: str | os.PathLike[str]) -> TargetProfile:
    """Read a target by name or from a file of the user's own.

    Args:
        name_or_path: A built-in target's name, or a path to a TOML file.

    Returns:
        The merged and complete profile.

    Raises:
        TargetError: There is no such target, or a file is malformed, incomplete, or extends
            itself; the message names the file and the key.
    """
    path = _locate(os.fspath(name_or_path), Path())
    merged = _merge_chain(path)
    _check_complete(merged, path)
    return TargetProfile(
        name=merged.name or path.stem,
        description=merged.description or "",
        path=path,
        dtypes=None if merged.dtypes is None else tuple(merged.dtypes),
        opsets=merged.opsets or (1, 1),
        hardware=merged.hardware,
        operators=dict(sorted(merged.operators.items())),
        unsupported=dict(sorted(merged.unsupported.items())),
        fusion_rules=None if merged.fusion_rules is None else Path(merged.fusion_rules),
    )


def _locate(reference: str, folder: Path) -> Path:
    """Find the file of a built-in name or a path relative to ``folder``."""
    # Built-in names go first, so that a file of the same name in the working folder cannot change
    # what sn30 means.
    builtin = FOLDER / f"{reference}.toml"
    if reference in _builtin_names():
        return builtin
    path = folder / reference
    if not reference or "\0" in reference or not path.exists():
        known = ", ".join(available_targets())
        raise TargetError(f"target {reference!r}: neither built in ({known}) nor a file")
    return path


def _read(path: Path) -> TargetFile:
    """Parse and check one file."""
    label = _label(path)
    # Only regular files are opened: a pipe would block for ever, and a device such as /dev/zero
    # never ends. One byte more than allowed tells a file that is too large without reading it
    # whole.
    with open_regular(path, what="target file", error=TargetError) as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise TargetError(f"{label}: larger than {MAX_BYTES} bytes, so no target file", path=path)
    try:
        return TargetFile.model_validate(tomllib.loads(content.decode()))
    except ValidationError as error:
        raise TargetError(f"{label}: {_first_error(error)}", path=path) from error
    except (ValueError, RecursionError) as error:  # TOML syntax, UTF-8, or nesting without end
        detail = str(error).splitlines()[0] if str(error) else "nested too deeply"
        raise TargetError(f"{label}: not valid TOML: {detail}", path=path) from error


def _label(path: Path) -> str:
    return f"built-in target file {path.name}" if path.parent == FOLDER else f"target file {path}"


def _first_error(error: ValidationError) -> str:
    """Return pydantic's first complaint as one line that names the key."""
    # pydantic's own text has a link and the input, on several lines; an error of ours is one line.
    details = error.errors(include_url=False, include_input=False, include_context=False)
    # Where a value may be of two kinds, the complaint that it is none of the other says nothing.
    telling = [each for each in details if each["type"] not in ("list_type", "model_type")]
    first = (telling or details)[0]
    location = [str(part) for part in first["loc"] if not _is_branch(part)]
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = "unknown key"
    return f"{'.'.join(location) or 'file'}: {message}"


def _is_branch(part: int | str) -> bool:
    """Return whether a part of a location names a kind of value and not a key."""
    return isinstance(part, str) and part.startswith(
        ("[key]", "NumberRange", "function-after[", "list[")
    )


def _merge_chain(path: Path) -> TargetFile:
    """Read ``path`` and all that it extends and merge them, the base first."""
    chain: list[tuple[Path, TargetFile]] = []
    seen: list[Path] = []
    current: Path | None = path
    while current is not None:
        # Links and .. can lead back to a file under another name, so that circles are found by
        # resolved paths.
        resolved = current.resolve()
        # A circle repeats a path; a chain of ever new files only ends at a number.
        if resolved in seen or len(seen) >= MAX_DEPTH:
            names = " -> ".join(_display(item) for item in (*seen, resolved))
            raise TargetError(
                f"{_label(path)}: extends: goes round in a circle: {names}", path=path
            )
        seen.append(resolved)
        file = _read(current)
        chain.append((current, file))
        current = _base_of(file, current)
    merged = TargetFile()
    # From the base to the file that was asked for: remove and operators refer to what the base has
    # at that point.
    for origin, file in reversed(chain):
        _check_names(file, merged, origin)
        merged = _merge(merged, _with_whole_path(file, origin))
    return merged


def _with_whole_path(file: TargetFile, origin: Path) -> TargetFile:
    """Return a file with what it names relative to itself in full."""
    # The path is relative to the file that states it, which may lie in another folder than the one
    # that inherits it.
    if file.fusion_rules is None:
        return file
    rules = origin.parent / file.fusion_rules
    if "\0" in file.fusion_rules or not rules.is_file():
        raise TargetError(
            f"{_label(origin)}: fusion_rules: there is no file {printable(rules)}", path=origin
        )
    return file.model_copy(update={"fusion_rules": str(rules)})


def _check_names(file: TargetFile, base: TargetFile, path: Path) -> None:
    """Refuse names that a slip of the pen would leave without any effect."""
    for name in file.remove:
        if name not in base.operators:
            raise TargetError(f"{_label(path)}: remove: the base has no row {name!r}", path=path)
    if path.parent == FOLDER:  # may name operators that are newer than the installed onnx
        both = sorted(file.operators.keys() & base.unsupported.keys())
        if both:  # a user's own target may overrule; between our own tables one row is forgotten
            raise TargetError(
                f"{_label(path)}: operators.{both[0]}: a table that it extends has it among the "
                "unsupported: take one of the two rows out",
                path=path,
                operator=both[0],
            )
        return
    for section, names in (("operators", file.operators), ("unsupported", file.unsupported)):
        for name in names:
            if "::" not in name and not onnx.defs.has(name):
                raise TargetError(
                    f"{_label(path)}: {section}.{name}: ONNX has no such operator; "
                    f"write domain::{name} for one of another domain",
                    path=path,
                    operator=name,
                )


def _base_of(file: TargetFile, path: Path) -> Path | None:
    if file.extends is None:
        return None
    try:
        return _locate(file.extends, path.parent)
    except TargetError as error:
        raise error.within(f"{_label(path)}: extends", path=path) from error


def _display(path: Path) -> str:
    return path.stem if path.parent == FOLDER.resolve() else path.name


def _merge(base: TargetFile, child: TargetFile) -> TargetFile:
    """Lay ``child`` over ``base``: a row replaces a row, a figure replaces a figure."""
    # A row of the child replaces the base's row whole, and takes an operator out of the opposite
    # table: half of a row from each file would be a row that nobody wrote.
    gone = {*child.remove, *child.operators, *child.unsupported}
    return TargetFile.model_construct(
        extends=None,
        # The name is never inherited: a file that extends sn30 without a name of its own is called
        # like its file, not sn30.
        name=child.name,
        description=base.description if child.description is None else child.description,
        dtypes=base.dtypes if child.dtypes is None else child.dtypes,
        opsets=base.opsets if child.opsets is None else child.opsets,
        hardware=_merge_hardware(base.hardware, child.hardware),
        operators={k: v for k, v in base.operators.items() if k not in gone} | child.operators,
        unsupported={k: v for k, v in base.unsupported.items() if k not in gone}
        | child.unsupported,
        remove=[],
        fusion_rules=child.fusion_rules or base.fusion_rules,
    )


def _merge_hardware(base: HardwareFile, child: HardwareFile) -> HardwareFile:
    tiers = dict(base.tiers)
    for name, tier in child.tiers.items():
        old = tiers.get(name, TierFile())
        tiers[name] = _laid_over(old, tier)
    timing = base.timing
    if child.timing is not None:
        timing = _laid_over(base.timing or TimingFile(), child.timing)
    merged = _laid_over(base, child)
    figures = {"tiers": tiers, "peak_flops": {**base.peak_flops, **child.peak_flops}}
    return merged.model_copy(update={**figures, "timing": timing})


def _laid_over(base: _Figures, child: _Figures) -> _Figures:
    """Return figures of which each is the child's, or where it states none the base's."""
    figures = {name: getattr(child, name) for name in type(base).model_fields}
    stated = {name: figure for name, figure in figures.items() if figure is not None}
    return base.model_copy(update=stated)


def _check_complete(file: TargetFile, path: Path) -> None:
    """Refuse a profile that lacks a figure that planning needs."""
    hardware = file.hardware
    needed: dict[str, Figure | bool | None] = {
        "opsets": file.opsets is not None,
        "operators": bool(file.operators),
        "hardware.tiers.sram": "sram" in hardware.tiers,
        "hardware.tiers.hbm or ddr": bool(hardware.tiers.keys() - {"sram"}),
        "hardware.peak_flops.float32": hardware.peak_flops.get("float32"),
        "hardware.link_bytes_per_second": hardware.link_bytes_per_second,
        "hardware.link_latency_seconds": hardware.link_latency_seconds,
    }
    for name, tier in hardware.tiers.items():
        needed[f"hardware.tiers.{name}.bytes"] = tier.bytes
        needed[f"hardware.tiers.{name}.bytes_per_second"] = tier.bytes_per_second
    # Timing is all or nothing: with some of its figures only, modelled times would mix peak rates
    # and measured ones.
    if hardware.timing is not None:
        for key in TimingFile.model_fields:
            needed[f"hardware.timing.{key}"] = getattr(hardware.timing, key)
    # One missing key at a time: a file without hardware lacks all of them, and one hint answers
    # them all.
    missing = [key for key, value in needed.items() if not value]
    if missing:
        raise TargetError(
            f"{_label(path)}: {missing[0]}: missing; state it or extend a target that does",
            path=path,
        )
