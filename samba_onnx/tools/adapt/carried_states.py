"""States of several tensors that one step hands to the next, as the pair of an LSTM."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import libcst as cst

from samba_onnx.tools.adapt.bindings import Assignment, Bindings
from samba_onnx.tools.adapt.name_units import reads, root_unit, unit_of, walk, writes
from samba_onnx.tools.adapt.open_points import OpenPoints
from samba_onnx.tools.adapt.slice_values import Input, Output
from samba_onnx.tools.adapt.source import ProgramFile
from samba_onnx.tools.adapt.trained_step import TrainedStep


class _Slicing(Protocol):
    """What is known where a step is cut out."""

    @property
    def source(self) -> ProgramFile: ...
    @property
    def bindings(self) -> Bindings: ...
    @property
    def training(self) -> TrainedStep: ...
    @property
    def points(self) -> OpenPoints: ...


def carried_states(
    cut: _Slicing, inputs: tuple[Input, ...], moved: tuple[cst.BaseStatement, ...]
) -> tuple[Input, ...]:
    """Return inputs, of which states of several tensors are known as such; refuse those of unknown form.

    Args:
        cut: What is known of the step.
        inputs: What goes into it.
        moved: The statements that the RDU computes.
    """
    found = []
    for one in inputs:
        unit = root_unit(one.node)
        # What no step writes is the same in all of them, and no state.
        kinds = _kinds(cut, unit) if unit in writes(*moved) else set()
        if kinds & {"tuple", "none"}:
            _refuse_unknown(cut, one, kinds, moved)
            one = replace(one, is_sequence=True)
        found.append(one)
    several = [one for one in found if one.is_sequence]
    # Tensors of one are told from those of another by nothing but their order.
    if len(several) > 1 or (several and any(one.is_mapping for one in found)):
        _refuse(cut, moved[0], several[-1].name, "the step has another input of several tensors")
    return tuple(found)


def with_states_last(outputs: tuple[Output, ...], inputs: tuple[Input, ...]) -> tuple[Output, ...]:
    """Return outputs with a state of several tensors behind all others.

    Args:
        outputs: What comes out of a step.
        inputs: What goes into it.
    """
    names = {one.name for one in inputs if one.is_sequence}
    marked = [replace(output, is_sequence=output.name in names) for output in outputs]
    return tuple(sorted(marked, key=lambda one: one.is_sequence))


def _refuse_unknown(
    cut: _Slicing, one: Input, kinds: set[str], moved: tuple[cst.BaseStatement, ...]
) -> None:
    if "none" in kinds:
        _refuse(cut, moved[0], one.name, "is None in the first step, and tensors later")
    elif "other" in kinds:
        _refuse(cut, moved[0], one.name, "is not made as a tuple of tensors everywhere")
    elif not unit_of(one.node):
        _refuse(cut, moved[0], one.name, "is given to the model in parts")


def _refuse(cut: _Slicing, node: cst.CSTNode, name: str, why: str) -> None:
    cut.points.add(
        node,
        "carried-state",
        f"`{name}` goes from one step to the next, and {why}",
        instead="make it before the training begins, as a tuple of tensors, and give all of it to the model",
    )


def _kinds(cut: _Slicing, unit: str) -> set[str]:
    """Return what a state is made as: ``tuple``, ``none``, ``other``; nothing for what only changes it."""
    thing = cut.bindings.thing(cut.training.frame, unit)
    kinds: set[str] = set()
    for assignment in cut.bindings.assignments(thing):
        # `h = tuple(x.detach() for x in h)` is of the form that h has.
        if assignment.index is None and unit not in reads(assignment.value):
            kinds |= {_kind(cut, value) for value in _values(cut, assignment)}
    return kinds


def _values(cut: _Slicing, one: Assignment) -> list[cst.BaseExpression]:
    """Return an assigned value, or those of the function of the program that returns it."""
    function = cut.bindings.callee(one.value) if isinstance(one.value, cst.Call) else None
    if function is None:
        return [one.value]
    # `init_hidden()` is how most programs make one.
    returns = [node for node in walk(function.body) if isinstance(node, cst.Return)]
    return [node.value for node in returns if node.value is not None]


def _kind(cut: _Slicing, value: cst.BaseExpression) -> str:
    if isinstance(value, cst.Tuple | cst.List):
        nested = any(
            isinstance(part, cst.StarredElement) or isinstance(part.value, cst.Tuple | cst.List)
            for part in value.elements
        )
        return "other" if nested else "tuple"
    return "none" if cut.source.code(value) == "None" else "other"
