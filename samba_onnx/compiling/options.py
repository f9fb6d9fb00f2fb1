"""All that a user can decide about a compilation: one field for each option, in records by what they are about.

A field is the only place that states an option's default, type, legal values, help, flag, spelling in SambaFlow,
and for which models it counts. Made from it are the parameters of commands, the rows of SambaFlow's argument
parser, the keywords of Python's functions with their documentation, what files of settings and variables may
state, the table in ``docs/options.md``, and what a PEF says of how it was compiled.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from samba_onnx.compiling.model_options import (
    CheckOptions,
    NumberOptions,
    SampleOptions,
    SizeOptions,
    TrainingOptions,
)
from samba_onnx.compiling.option import Front, checked, default_of, option_of, text_of
from samba_onnx.compiling.planning_options import (
    ChipOptions,
    PlacementOptions,
    SectionOptions,
    TargetOptions,
)
from samba_onnx.errors import UsageError

__all__ = ["CompileOptions", "option_fields"]

_Record: TypeAlias = (
    TargetOptions
    | SectionOptions
    | PlacementOptions
    | SampleOptions
    | SizeOptions
    | NumberOptions
    | CheckOptions
    | TrainingOptions
    | ChipOptions
)


@dataclass(frozen=True)
class CompileOptions:
    """All options of a compilation."""

    device: TargetOptions = field(default_factory=TargetOptions)
    sections: SectionOptions = field(default_factory=SectionOptions)
    placement: PlacementOptions = field(default_factory=PlacementOptions)
    sampling: SampleOptions = field(default_factory=SampleOptions)
    sizes: SizeOptions = field(default_factory=SizeOptions)
    numbers: NumberOptions = field(default_factory=NumberOptions)
    checks: CheckOptions = field(default_factory=CheckOptions)
    training: TrainingOptions = field(default_factory=TrainingOptions)
    chips: ChipOptions = field(default_factory=ChipOptions)

    @classmethod
    def of(cls, **keywords: Any) -> CompileOptions:
        """Return the options that keywords state.

        Args:
            **keywords: Values by the names of fields; what is left out, or None, is the default.

        Raises:
            UsageError: A value is not legal.
            TypeError: There is no such option, as Python says it of keywords.
        """
        return cls().replace(**keywords)

    def replace(self, **keywords: Any) -> CompileOptions:
        """Return these options with others in the place of some.

        Args:
            **keywords: As :meth:`of` takes them; None is the default, not what was before.

        Raises:
            UsageError: A value is not legal.
            TypeError: There is no such option.
        """
        # First: below, each record takes the names that it knows, and a wrong one would be dropped.
        _refuse_unknown(keywords)
        records: dict[str, Any] = {}
        for part in dataclasses.fields(self):
            record: Any = getattr(self, part.name)
            stated = {
                each.name: checked(each, keywords[each.name])
                for each in dataclasses.fields(record)
                if each.name in keywords
            }
            records[part.name] = dataclasses.replace(record, **stated)
        return CompileOptions(**records)

    def values(self) -> Iterator[tuple[dataclasses.Field[Any], Any]]:
        """Return every option's field with its value."""
        for part in dataclasses.fields(self):
            record: _Record = getattr(self, part.name)
            for each in dataclasses.fields(record):
                yield each, getattr(record, each.name)

    def stated(self) -> dict[str, Any]:
        """Return the options that are not at their defaults, by name."""
        return {each.name: value for each, value in self.values() if value != default_of(each)}

    def texts(self) -> dict[str, str]:
        """Return what a PEF says of them: the options that are not at their defaults, as texts.

        How a command line finds its model is no part of it: the same program is the same PEF.
        """
        known = option_fields()
        return {
            name: text_of(value)
            for name, value in self.stated().items()
            if option_of(known[name]).python is not None
        }

    def refuse_other(self, front: Front, *, writes: bool = True, trains: bool = False) -> None:
        """Refuse options that do not count for a model.

        Args:
            front: What the model is made of.
            writes: Whether a PEF is written.
            trains: Whether its program trains, which ``train`` among the options says, too.

        Raises:
            UsageError: One is stated.
        """
        known = option_fields()
        # A default is never refused: commands state all their options, asked for or not.
        for name in self.stated():
            stated = option_of(known[name])
            # Whether a program trains is also said by its optimizers, which are no option.
            idle = stated.trains and not (trains or self.training.train)
            if front not in stated.fronts or idle:
                raise UsageError(stated.elsewhere or f"{name} is for {_FRONTS[_other(front)]}")
            if stated.writes and not writes:
                raise UsageError(
                    f"{name} is about what is written: it is for convert, not for analyze"
                )


_FRONTS: Final = {Front.ONNX: "ONNX models", Front.TORCH: "PyTorch models"}


def _other(front: Front) -> Front:
    return Front.TORCH if front is Front.ONNX else Front.ONNX


def option_fields() -> dict[str, dataclasses.Field[Any]]:
    """Return the field of every option by its name, in the order of the records."""
    parts = dataclasses.fields(CompileOptions)
    records: list[Any] = [part.default_factory for part in parts]
    return {each.name: each for record in records for each in dataclasses.fields(record)}


def _refuse_unknown(keywords: Mapping[str, Any]) -> None:
    known = option_fields()
    for name in keywords.keys() - known.keys():
        # Keywords are mostly misspelt: the nearest option is more use than a list of all.
        near = difflib.get_close_matches(name, known, 1)
        hint = f": did you mean {near[0]!r}?" if near else ""
        # TypeError, as Python raises for any function: the mistake is in code, not in a model.
        raise TypeError(f"there is no option {name!r} of a compilation{hint}")
