"""Which calls a run executes: decided here for the device, the session and the command line."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence, Set
from numbers import Integral
from typing import TypeAlias, TypeVar

from samba_onnx.errors import ScheduleError, UsageError
from samba_onnx.pef.manifest import Call, Fallback, Graph, Section
from samba_onnx.program.kinds import SectionType

SectionIds: TypeAlias = int | Collection["int | SectionIds"] | None
"""Ids of sections and fallbacks, in lists that may be nested."""
SectionTypes: TypeAlias = str | Collection[str] | None
"""Names of section types, in any case of letters."""
Sweep: TypeAlias = tuple[Call, ...]
"""Calls that are executed one after the other, in the order of the schedule."""

_Key = TypeVar("_Key", bound=Hashable)
_MOST_LISTED = 12


def select_sweeps(
    stages: Mapping[int, Section | Fallback],
    graph: Graph,
    section_ids: SectionIds = None,
    section_types: SectionTypes = None,
    from_call: int | None = None,
    until_call: int | None = None,
) -> tuple[Sweep, ...]:
    """Return what a run executes, as sweeps over the schedule of a graph.

    Sections are executed in the order in which they are asked for: a new sweep begins wherever that
    order goes back in the schedule. A set has no order of its own, and is one sweep.

    Args:
        stages: Sections and fallbacks of the PEF, by id.
        graph: What is run.
        section_ids: Execute these sections and fallbacks only; nested lists are flattened. All if
            empty.
        section_types: Execute sections and fallbacks of these types only, REDUCE if there is one. All
            if empty.
        from_call: Execute only this call and later ones; from the beginning when None.
        until_call: Execute only calls before this one; to the end when None.

    Returns:
        The sweeps, each of at least one call; one empty sweep where there is nothing to do.

    Raises:
        UsageError: Both ids and types are given, or an id is no integer.
        ScheduleError: An id, type or call does not exist in the graph, or no call is left.
    """
    ids, types = _flat_ids(section_ids), type_names(section_types)
    if ids and types:
        raise UsageError(
            f"section_ids {ids} and section_types {types} were both given: give one of them, not both"
        )
    begin, end = _bounds(graph, from_call, until_call)
    bounded = [call for call in graph.calls if begin <= call.id < end]
    if ids:
        keys = {call.id: call.stage for call in graph.calls}
        sweeps = _sweeps(bounded, keys, ids, isinstance(section_ids, Set), "section", graph)
    elif types:
        sweeps = _sweeps_of_types(stages, bounded, types, isinstance(section_types, Set), graph)
    else:
        sweeps = [tuple(bounded)]
    # What the bounds leave nothing of is no sweep; that nothing at all is left is a mistake.
    left = tuple(calls for calls in sweeps if calls)
    if sweeps and not left and graph.calls:
        raise ScheduleError("no call of the schedule is selected; ask for fewer restrictions")
    return left or ((),)


def section_types_of(
    stages: Mapping[int, Section | Fallback], sweeps: Sequence[Sweep]
) -> frozenset[SectionType]:
    """Return the types of all sections and fallbacks that sweeps execute.

    Args:
        stages: Sections and fallbacks of the PEF, by id.
        sweeps: What is executed.
    """
    return frozenset(stages[call.stage].type for calls in sweeps for call in calls)


def forward_reads(
    stages: Mapping[int, Section | Fallback], sweeps: Sequence[Sweep]
) -> frozenset[str]:
    """Return what the forward sections and fallbacks of sweeps read, argins among it.

    Args:
        stages: Sections and fallbacks of the PEF, by id.
        sweeps: What is executed.
    """
    executed = (stages[call.stage] for calls in sweeps for call in calls)
    return frozenset(
        name for stage in executed if stage.type is SectionType.FWD for name in stage.inputs
    )


def type_names(section_types: SectionTypes) -> list[str]:
    """Return names of section types in capital letters, in their order; none for None.

    Args:
        section_types: One name, or several.
    """
    if section_types is None:
        return []
    names = [section_types] if isinstance(section_types, str) else section_types
    return [str(name).upper() for name in names]


def _sweeps(
    calls: Sequence[Call],
    keys: Mapping[int, _Key],
    request: Sequence[_Key],
    unordered: bool,
    what: str,
    graph: Graph,
) -> list[Sweep]:
    """The calls whose keys are wanted, in sweeps that follow the order of what is wanted."""
    places: dict[_Key, int] = {}
    for call, key in keys.items():
        places.setdefault(key, call)
    for key in request:
        if key not in places:
            raise ScheduleError(
                f"{what} {key} does not exist in graph {graph.name!r}, which has "
                f"{_listing(tuple(places))}"
            )
    if unordered:
        request = sorted(request, key=places.__getitem__)
    groups: list[list[_Key]] = []
    for key in request:
        if not groups or places[key] <= places[groups[-1][-1]]:
            groups.append([])
        groups[-1].append(key)
    return [tuple(call for call in calls if keys[call.id] in group) for group in groups]


def _sweeps_of_types(
    stages: Mapping[int, Section | Fallback],
    calls: Sequence[Call],
    types: Sequence[str],
    unordered: bool,
    graph: Graph,
) -> list[Sweep]:
    """The calls whose sections are of some types; none for REDUCE alone where there is none."""
    kinds = {call.id: stages[call.stage].type.value for call in graph.calls}
    # It is no section of a PEF: between its neighbours replicas reduce as many gradients as there are.
    present = [name for name in types if name != SectionType.REDUCE or name in kinds.values()]
    return _sweeps(calls, kinds, present, unordered, "section type", graph)


def _flat_ids(section_ids: SectionIds) -> list[int]:
    if section_ids is None:
        return []
    # True and False are integers to Python, and certainly a mistake here.
    if isinstance(section_ids, Integral) and not isinstance(section_ids, bool):
        return [int(section_ids)]
    if isinstance(section_ids, Collection) and not isinstance(section_ids, (str, bytes)):
        return [number for item in section_ids for number in _flat_ids(item)]
    raise UsageError(f"section_ids has {section_ids!r}; give integers, or lists of integers")


def _bounds(graph: Graph, from_call: int | None, until_call: int | None) -> tuple[int, int]:
    end = max((call.id for call in graph.calls), default=-1) + 1
    bounds = (0 if from_call is None else from_call, end if until_call is None else until_call)
    for bound in bounds:
        if not isinstance(bound, Integral) or not 0 <= bound <= end:
            raise ScheduleError(
                f"call {bound!r} does not exist in graph {graph.name!r}, whose calls are 0 to "
                f"{end - 1}"
            )
    return bounds


def _listing(items: Sequence[object]) -> str:
    shown = ", ".join(map(str, items[:_MOST_LISTED]))
    return f"{shown}, ..." if len(items) > _MOST_LISTED else shown or "none"
