"""What a device is asked to run, apart from values: runs of one request differ in nothing else."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Set
from typing import Any, NamedTuple, TypeAlias

from samba_onnx.facts.names import in_a_list
from samba_onnx.runtime.reducing import GradientReduction
from samba_onnx.runtime.selection import SectionIds, SectionTypes

HashableIds: TypeAlias = "int | tuple[HashableIds, ...] | frozenset[HashableIds] | None"
"""Ids of sections and fallbacks, as part of a key."""


class RunRequest(NamedTuple):
    """Names and selection of a run.

    Equal requests are prepared once. A tuple, as one is made for every run: it is hashed in C.
    """

    graph: str | None
    """Name of the graph; None for the only one."""
    inputs: tuple[str, ...]
    """Names of the inputs that are given, in the order in which they are."""
    outputs: tuple[str, ...] | str | None
    """Names of the outputs that are wanted; None for all. A text is refused later."""
    section_ids: HashableIds = None
    """What ``select_sweeps`` takes, made hashable; so are the types."""
    section_types: str | tuple[str, ...] | frozenset[str] | None = None
    from_call: int | None = None
    until_call: int | None = None
    single: bool = False
    """Whether every call is executed on its own, to look at what it wrote."""
    reduction: GradientReduction | None = None
    """How gradients are combined with those of other replicas; None for a run of one device."""


def run_request(
    graph: str | None,
    inputs: Collection[str] | None,
    outputs: str | Collection[str] | None,
    *,
    section_ids: SectionIds = None,
    section_types: SectionTypes = None,
    from_call: int | None = None,
    until_call: int | None = None,
    single: bool = False,
    reduction: GradientReduction | None = None,
) -> RunRequest:
    """Return the request of a run.

    Args:
        graph: Name of the graph; None for the only one.
        inputs: Names of the inputs that are given, or the inputs by name.
        outputs: Names of the outputs that are wanted; None for all.
        section_ids: Ids of the sections to execute, as for ``select_sweeps``; None for all.
        section_types: Types of the sections to execute, in the order of execution; None for all.
        from_call: Id of the first call to execute; None for the first of the schedule.
        until_call: Id of the call before which the run ends; None for the end of the schedule.
        single: Whether every call is executed on its own.
        reduction: How gradients are combined with those of other replicas; None for one device.
    """
    names = None if outputs is None else in_a_list(outputs)
    ids = None if section_ids is None else _hashable(section_ids)
    types = None if section_types is None else _hashable(section_types)
    input_names = tuple(inputs) if inputs else ()
    return RunRequest(
        graph, input_names, names, ids, types, from_call, until_call, single, reduction
    )


def whole_request(
    graph: str | None,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    section_types: tuple[str, ...] | None,
    reduction: GradientReduction | None = None,
) -> tuple[Hashable, ...]:
    """Return the plain tuple that equals the request of a run without further restrictions.

    Small models run in little more time than a RunRequest takes to make; a tuple is made at once.

    Args:
        graph: Name of the graph; None for the only one.
        inputs: Names of the inputs that are given.
        outputs: Names of the outputs that are wanted.
        section_types: Types of the sections to execute, in the order of execution; None for all.
        reduction: How gradients are combined with those of other replicas; None for one device.
    """
    return graph, inputs, outputs, None, section_types, None, None, False, reduction


def _hashable(items: Any) -> Any:
    """Return ids or types, which may be nested, as part of a key that keeps their order.

    Empty ones stand for all, as None does.
    """
    kind = type(items)
    # Most requests are of these kinds, and most are made many times: ABCs are slow to ask.
    if kind is tuple or kind is list:
        return tuple(map(_hashable, items)) or None
    if kind is str or kind is int:
        return items
    if isinstance(items, Set):
        return frozenset(items) or None
    if isinstance(items, Collection) and not isinstance(items, str):
        return tuple(map(_hashable, items)) or None
    return items
