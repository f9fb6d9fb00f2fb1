"""Where a compiled program goes and for which device: from command lines and settings objects."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Final

import onnx
from pydantic import BaseModel
from torch import nn

from samba_onnx.compiling.choices import Level
from samba_onnx.compiling.option import option_of
from samba_onnx.compiling.options import CompileOptions, option_fields
from samba_onnx.errors import UsageError
from samba_onnx.facts.roundings import Rounding, roundings_of, stated_roundings
from samba_onnx.pef.user_metadata import write_value
from samba_onnx.sessions.arguments import tell_idle
from samba_onnx.sessions.spatial import spatial_batches

OUTPUT_FOLDER: Final = "out"
"""Where programs go when nobody says where."""

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
            # Opened and kept whole as well: some settings are mappings themselves.
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
        # The name becomes a folder and a file: it must not lead out of the output folder.
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


def settings_keywords(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a compilation that settings of SambaFlow's state.

    Args:
        settings: By name; those of the program's own are not looked at. Of several that state one option, the first
            counts, in the order of the option's field.

    Returns:
        Values by the names of options.

    Raises:
        UsageError: A value is not legal.
    """
    keywords: dict[str, Any] = {}
    for name, stated in option_fields().items():
        for row in option_of(stated).settings:
            given = settings.get(row.name)
            value = row.states(given) if row.states and given is not None else None
            if value is not None:
                # The first that states the option counts; the rows stand in that order.
                keywords.setdefault(name, value)
    return keywords


def _of_level(options: CompileOptions) -> CompileOptions:
    """Return options without rules of fusion for another level, of which a warning says that they have no effect.

    Programs state both in one file of settings.
    """
    sections = options.sections
    if sections.level == Level.O1:
        return options
    for name, stated in (
        ("optimization_rules", sections.optimization_rules),
        ("use_o1_default_rules", sections.default_rules),
    ):
        # Said where it happens: a file of rules at another level looks as if it had an effect.
        if stated:
            tell_idle(name)
    return options.replace(optimization_rules=None, default_rules=None)


@dataclass(frozen=True)
class Destination:
    """Where a program goes, for which device, and what its PEF says besides."""

    settings: Settings = None
    """Override those of the session."""
    metadata: tuple[Any, ...] = ()
    """Mappings or objects with attributes, later ones first; None is skipped."""
    output: str | os.PathLike[str] | None = None
    """Path of the PEF; overrides the settings."""
    overrides: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Options by name, which override the settings; None for one that is not stated."""

    def options(self, settings: Mapping[str, Any]) -> CompileOptions:
        """Return the options of a compilation.

        Args:
            settings: What the session and this compilation state, by name.

        Raises:
            UsageError: A value is not legal.
        """
        stated = {name: value for name, value in self.overrides.items() if value is not None}
        keywords = {**settings_keywords(settings), **stated}
        # Both are hints of SambaFlow's compiler, which take effect together only.
        if not (keywords.get("tensor_parallel") and int(keywords.get("n_chips") or 1) > 1):
            keywords |= {"tensor_parallel": None, "n_chips": None}
        if "stochastic_rounding" not in stated:
            names = roundings_of(settings.get("stochastic_rounding"))
            keywords["stochastic_rounding"] = names | stated_roundings(settings)
        keywords["spatial_batches"] = spatial_batches(settings)
        return _of_level(CompileOptions.of(**keywords))

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
        self._pinned_memory = False

    def setup(self, args: BaseModel) -> None:
        """Set the session up for ``compile``.

        Args:
            args: Settings, such as ``output_folder``, ``pef_name``, ``arch`` and ``o0``; what the
                session does not know is kept.

        Raises:
            UsageError: It is no pydantic model.
        """
        if not isinstance(args, BaseModel):
            raise UsageError(f"setup was given {type(args).__name__}; give a pydantic model")
        self._settings = flat_options(args)

    def set_command_line(self, settings: Mapping[str, Any] | Namespace) -> None:
        """Take what the program was started with; SambaFlow's ``parse_app_args`` calls it.

        Programs parse a PEF's name and folder, and do not always hand them on: ``compile`` takes
        them from here when neither ``config_dict`` nor ``setup`` has them. So does ``trace_graph``
        with the path of the PEF, and with ``inference``, which leaves optimizers out where the PEF
        was compiled for inference.

        Args:
            settings: In the place of those before; empty to forget them.

        Raises:
            UsageError: They are no settings.
        """
        SessionOptions.command_line = flat_options(settings)

    def use_pinned_memory(self) -> bool:
        """Whether pinned memory is on."""
        return self._pinned_memory

    def enable_pinned_memory(self) -> None:
        """Turn pinned memory on; a hint for SambaLoaders."""
        self._pinned_memory = True

    def disable_pinned_memory(self) -> None:
        """Turn pinned memory off."""
        self._pinned_memory = False

    @staticmethod
    def use_legacy_names(use: bool) -> None:
        """Ask for other names: they are always those of the module tree, which is said if need be.

        Args:
            use: Whether operators are to be named as in old releases.
        """
        if use:
            tell_idle("use_legacy_names")

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

    def record_hint(self, name: str, value: Any = True) -> None:
        """Let the PEF that is compiled next list a hint to SambaFlow's compiler.

        Hints have no effect on what is computed; ``samba-port inspect`` shows them.

        Args:
            name: What the hint is about.
            value: What it says; what JSON does not have is kept as its text.
        """
        # A hint that is given again with another value is listed with both. A list, searched: values of
        # hints need not be hashable.
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

    def switch_rounding(self, rounding: str, on: bool = True) -> None:
        """Let the program that is compiled next round values to bfloat16 at random, or to nearest.

        Args:
            rounding: ``steps``, ``gradients``, ``convolution-gradients`` or ``bias-gradients``, as
                ``stochastic_rounding`` of ``compile`` takes them.
            on: Whether at random; False counts more than what settings and ``compile`` ask for.

        Raises:
            UsageError: The name is unknown.
        """
        (values,) = roundings_of((rounding,))
        self._roundings[values] = on

    def take_roundings(self, stated: frozenset[Rounding]) -> frozenset[Rounding]:
        """Return what one compilation rounds at random, and forget what was switched for it.

        Args:
            stated: What settings and arguments ask for.
        """
        # Forgotten at once, so that a switch for one program does not reach the next.
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
