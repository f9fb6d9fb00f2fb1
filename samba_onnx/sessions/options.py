"""Where a compiled program goes and for which device: from command lines and settings objects."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import onnx
from pydantic import BaseModel
from torch import nn

from samba_onnx.errors import UsageError
from samba_onnx.facts.defaults import DEFAULT_LEVEL, DEFAULT_TARGET
from samba_onnx.facts.precisions import Precision, precision_of, preset_precision
from samba_onnx.facts.roundings import Rounding, roundings_of, stated_roundings
from samba_onnx.pef.user_metadata import write_value
from samba_onnx.sessions.arguments import tell_idle
from samba_onnx.workflows.choices import FUSING, FusionOptions, ParallelOptions, looped_target

OUTPUT_FOLDER: Final = "out"
"""Where programs go when nobody says where."""

_TARGETS: Final = {
    "sn10": "sn10",
    "sn20": "sn10",
    "sn30": "sn30",
    "sn40": "sn40l",
    "sn40l": "sn40l",
}
"""Target by what SambaFlow calls an architecture; SN20 has the chips of SN10."""

Model = nn.Module | onnx.ModelProto | str | os.PathLike[str]
"""What can be compiled: a torch module, an ONNX model, or the path to one."""
Settings = BaseModel | Mapping[str, Any] | Namespace | None
"""Settings by name."""


def flat_options(settings: Settings) -> dict[str, Any]:
    """Return settings by name.

    Args:
        settings: A pydantic model, a mapping or a parsed command line; groups of settings inside
            are opened. None for no settings.

    Returns:
        Every setting that has a value.

    Raises:
        UsageError: It is something else.
    """
    if settings is None:
        return {}
    if isinstance(settings, BaseModel):
        settings = settings.model_dump()
    elif isinstance(settings, Namespace):
        settings = vars(settings)
    if not isinstance(settings, Mapping):
        raise UsageError(
            f"settings are {type(settings).__name__}; give a pydantic model, a dict or a Namespace"
        )
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, (BaseModel, Mapping)):
            flat |= flat_options(value)
        if value is not None:
            flat[str(key)] = value
    return flat


def output_path(
    options: Mapping[str, Any], model: Model | None, output: str | os.PathLike[str] | None
) -> Path:
    """Return where a program is written.

    Args:
        options: Settings; ``output_folder`` and ``pef_name`` count.
        model: What is compiled; its class or graph names the PEF unless ``pef_name`` does.
        output: A path that overrides both.

    Returns:
        ``<output_folder>/<pef_name>/<pef_name>.pef``, or ``output``. Its folder may be missing.

    Raises:
        UsageError: The name of the PEF is not a file name.
    """
    if output is not None:
        path = Path(output)
    else:
        name = str(options.get("pef_name") or "") or default_name(model)
        name = name.removesuffix(".pef")
        if not name or name in (".", "..") or "/" in name or "\0" in name:
            raise UsageError(f"pef_name is {name!r}; give a file name without folders")
        path = Path(str(options.get("output_folder") or OUTPUT_FOLDER), name, f"{name}.pef")
    return path


def default_name(model: Model | None) -> str:
    """Return the name of a PEF that was given none.

    Args:
        model: What is compiled; None for several graphs.
    """
    if isinstance(model, nn.Module):
        return type(model).__name__.lower()
    if isinstance(model, onnx.ModelProto):
        name = "".join(c if c.isalnum() or c in "-_." else "_" for c in model.graph.name)
        return name.strip(".") or "model"
    return "model" if model is None else Path(model).stem


def target_of(
    options: Mapping[str, Any],
    target: str | os.PathLike[str] | None,
    kernel_looping: bool | None = None,
) -> str:
    """Return the device to compile for, a name or path, with conditions.

    Args:
        options: Settings; ``arch`` and ``kernel_looping`` count.
        target: Overrides the first.
        kernel_looping: Overrides the second: whether the device is to loop over equal sections. A target
            that states this condition has it anyway.
    """
    name = _TARGETS.get(str(options.get("arch", "")).lower(), DEFAULT_TARGET)
    if target is not None:
        name = os.fspath(target)
    looping = options.get("kernel_looping") if kernel_looping is None else kernel_looping
    return looped_target(name) if looping else name


def level_of(options: Mapping[str, Any], level: str | None) -> str:
    """Return the optimization level to compile at.

    Args:
        options: Settings; ``o0``, ``o1`` and ``optim_level`` count.
        level: Overrides them.
    """
    if level is not None:
        return level
    setting = str(options.get("optim_level", "")).lower()
    for name, spellings in (("o0", ("o0", "0")), ("o1", ("o1", "1"))):
        if options.get(name) is True or setting in spellings:
            return name
    return DEFAULT_LEVEL


def fusion_of(options: Mapping[str, Any], level: str) -> FusionOptions:
    """Return which rules of fusion a compilation is to have.

    Args:
        options: Settings; ``optimization_rules`` and ``use_o1_default_rules`` count.
        level: The level. Rules that are stated for another one than ``o1`` have no effect, which a
            warning says, for programs state both in one file of settings.
    """
    file, default = options.get("optimization_rules"), options.get("use_o1_default_rules")
    if default is not None:
        default = str(default).lower() in ("true", "1", "yes")
    if level == FUSING:
        return FusionOptions(file or None, default)
    for name, stated in (("optimization_rules", file), ("use_o1_default_rules", default)):
        if stated:
            tell_idle(name)
    return FusionOptions()


def chosen_precision(options: Mapping[str, Any], precision: str | None) -> Precision:
    """Return the precision of a compilation.

    Args:
        options: Settings; ``precision`` and ``graphamp_preset`` count, the first before the second.
        precision: Overrides them.

    Raises:
        UsageError: There is no such precision or preset.
    """
    name = precision or options.get("precision")
    preset = options.get("graphamp_preset")
    if name is None and preset is not None:
        return preset_precision(str(preset))
    return precision_of(None if name is None else str(name))


def chosen_roundings(
    options: Mapping[str, Any], stochastic_rounding: str | Collection[str] | None
) -> frozenset[Rounding]:
    """Return what a compilation is to round at random.

    Args:
        options: Settings; ``stochastic_rounding`` counts, and those that ask for it in SambaFlow's words.
        stochastic_rounding: Overrides them.

    Raises:
        UsageError: A name is unknown.
    """
    if stochastic_rounding is not None:
        return roundings_of(stochastic_rounding)
    return roundings_of(options.get("stochastic_rounding")) | stated_roundings(options)


def parallel_of(options: Mapping[str, Any]) -> ParallelOptions | None:
    """Return for how many RDUs a compilation is to cut its programs; None for one.

    Args:
        options: Settings; ``tensor_parallel`` and ``n_chips`` count, where both are given.

    Raises:
        UsageError: The mode is unknown, or there are too many RDUs.
    """
    mode, chips = options.get("tensor_parallel"), options.get("n_chips") or 1
    return ParallelOptions(str(mode), int(chips)) if mode and int(chips) > 1 else None


@dataclass(frozen=True)
class Destination:
    """Where a program goes, for which device, and what its PEF says besides."""

    settings: Settings = None
    """Override those of the session."""
    metadata: tuple[Any, ...] = ()
    """Mappings or objects with attributes, later ones first; None is skipped."""
    output: str | os.PathLike[str] | None = None
    """Path of the PEF; overrides the settings, like the two that follow."""
    target: str | os.PathLike[str] | None = None
    level: str | None = None
    precision: str | None = None
    kernel_looping: bool | None = None
    stochastic_rounding: str | Collection[str] | None = None

    def where(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return target, level, rules of fusion and number of RDUs of a compilation.

        Args:
            options: Settings of the session and of this compilation.
        """
        level = level_of(options, self.level)
        return {
            "target": target_of(options, self.target, self.kernel_looping),
            "level": level,
            "fusion": fusion_of(options, level),
            "parallel": parallel_of(options),
        }

    def texts(self) -> dict[str, str]:
        """Return the user's metadata as a PEF keeps it."""
        return metadata_of(*self.metadata)


class SessionOptions:
    """What a session was set up with."""

    command_line: ClassVar[Mapping[str, Any]] = {}
    """What the process was started with; everything else overrides it."""

    def __init__(self) -> None:
        """Begin without any settings."""
        self._settings: dict[str, Any] = {}
        self.current_directives: dict[str, Any] = {}
        """Hints for the compiler on what is traced now."""
        self._hints: dict[str, list[Any]] = {}
        self._roundings: dict[Rounding, bool] = {}
        """What the program that is compiled next is to round at random, or not."""
        self.pinned_memory = False
        """Whether SambaLoaders are to use pinned memory; a hint."""

    def set_up(self, args: BaseModel) -> None:
        """Take settings in the place of those before.

        Args:
            args: Settings; what nobody knows is kept.

        Raises:
            UsageError: It is no pydantic model.
        """
        if not isinstance(args, BaseModel):
            raise UsageError(f"setup was given {type(args).__name__}; give a pydantic model")
        self._settings = flat_options(args)

    def with_settings(self, settings: Settings) -> dict[str, Any]:
        """Return the settings that count for one compilation, by name.

        Args:
            settings: Override those of the session, which override the command line.

        Raises:
            UsageError: They are no settings.
        """
        return {**self.command_line, **self._settings, **flat_options(settings)}

    @contextmanager
    def directives(self, directives: Mapping[str, Any] | None) -> Iterator[None]:
        """Keep hints for the compiler on what is traced inside; they have no effect.

        Args:
            directives: Hints by name.
        """
        before = dict(self.current_directives)
        self.current_directives.update(directives or {})
        for name, value in (directives or {}).items():
            self.record_hint(name, value)
        try:
            yield
        finally:
            self.current_directives = before

    def record_hint(self, name: str, value: Any) -> None:
        """Let the PEF that is compiled next list a hint.

        Args:
            name: What the hint is about; one that is given again with another value is listed with
                both.
            value: True for a hint that says no more than its name.
        """
        values = self._hints.setdefault(name, [])
        if value not in values:
            values.append(value)

    def record_hints(self, **hints: Any) -> None:
        """Let the PEF that is compiled next list what a caller asked for.

        Args:
            **hints: By name; what is None, False or empty was not asked for.
        """
        for name, value in hints.items():
            if value is not None and value is not False and value != ():
                self.record_hint(name, value)

    def switch_rounding(self, rounding: Rounding, on: bool) -> None:
        """Let the program that is compiled next round values at random, or to nearest.

        Args:
            rounding: Which values.
            on: Whether at random; settings and arguments of ``compile`` count before it where it is
                true, and behind it where it is false.
        """
        self._roundings[rounding] = on

    def take_roundings(self, stated: frozenset[Rounding]) -> frozenset[Rounding]:
        """Return what one compilation rounds at random, and forget what was switched for it.

        Args:
            stated: What settings and arguments ask for.
        """
        switched, self._roundings = self._roundings, {}
        on = {rounding for rounding, is_on in switched.items() if is_on}
        return (stated | on) - (switched.keys() - on)

    def take_hints(self) -> dict[str, Any]:
        """Return the hints that were recorded, and forget them: they were for one compilation.

        Returns:
            A value by name, or a list of several.
        """
        hints, self._hints = self._hints, {}
        return {name: one[0] if len(one) == 1 else one for name, one in hints.items()}


def metadata_of(*sources: Any) -> dict[str, str]:
    """Return the user's metadata as a PEF keeps it.

    Args:
        *sources: Mappings or objects with attributes, later ones first; None is skipped.

    Returns:
        Texts by key, which ``user_metadata.read_value`` turns back into values.
    """
    texts: dict[str, str] = {}
    for source in sources:
        if source is None:
            continue
        items = source if isinstance(source, Mapping) else vars(source)
        for key, value in items.items():
            texts[str(key)] = write_value(value)
    return texts
