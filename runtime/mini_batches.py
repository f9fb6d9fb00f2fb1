"""A run of several mini-batches: what is told apart between them, and what is not.

In spatial mapping a run takes inputs that hold many mini-batches one after the other, and makes a
whole step for each (the FAQ of ALCF: "the number of weight updates is equal to the number of
minibatches"). Inputs, outputs and their gradients are cut where sections begin and put together
where they end, within the device; parameters and states of optimizers stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from samba_onnx.errors import InputError, ScheduleError
from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.runtime.elements import Array
from samba_onnx.runtime.memory import DeviceMemory
from samba_onnx.runtime.registers import Registers
from samba_onnx.runtime.schedule import GraphSchedule

if TYPE_CHECKING:
    from samba_onnx.runtime.plans import RunPlan

_COMPUTED = frozenset({SymbolKind.ACTIVATION, SymbolKind.OUTPUT})
"""Kinds of which the device has those of the last mini-batch only."""


def each_batch(
    plan: RunPlan, memory: DeviceMemory, series: Sequence[Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    """Let whoever iterates execute a plan once for every mini-batch, or once if it has none.

    Before each turn the mini-batch of what sections read is brought to where they read it, and
    after it what they wrote is put beside that of the others.

    Args:
        plan: What is executed.
        memory: The device's memory.
        series: From :func:`argin_series`.

    Yields:
        Values of the argins to set for this turn.
    """
    if not plan.batches:
        yield {}
        return
    written = dict.fromkeys(name for step, _ in plan.steps for name in step.outputs)
    loads, stores = (_pairs(plan, memory, names) for names in (plan.needs, written))
    for index, numbers in enumerate(series):
        for window, whole in loads:
            np.copyto(window, whole[index], casting="no")
        yield numbers
        for window, whole in stores:
            # With the ellipsis it is a view also where there is one number for each mini-batch.
            np.copyto(whole[index, ...], window, casting="no")


def _pairs(plan: RunPlan, memory: DeviceMemory, names: Iterable[str]) -> list[tuple[Array, Array]]:
    """Return what of these holds mini-batches: the one that sections see, and all along an axis."""
    pairs = []
    for name in names:
        symbol = plan.schedule.symbols[name]
        if symbol.batch_shape is not None and symbol.region:
            window = memory.tensor(name).items
            pairs.append((window, memory.whole(name).items.reshape((plan.batches, *window.shape))))
    return pairs


def refuse_partial_steps(
    schedule: GraphSchedule, needs: Mapping[str, int], types: frozenset[SectionType]
) -> None:
    """Refuse a selection of sections that makes no sense for every one of several mini-batches.

    Args:
        schedule: The schedule of a graph that is mapped spatially.
        needs: Values that the selection reads from before the run, each with the first call.
        types: Types of the sections that are selected.

    Raises:
        ScheduleError: It reads what another run computed, which is there of the last mini-batch
            only; or it would step optimizers several times with the same gradients.
    """
    batches = schedule.graph.spatial_batches
    for name, call in needs.items():
        if schedule.symbols[name].kind in _COMPUTED:
            raise ScheduleError(
                f"a run of graph {schedule.graph.name!r} makes {batches} mini-batches, each with all "
                f"selected sections: {schedule.title(call)} reads {name!r}, which is of the same "
                "mini-batch, but the section that computes it is not selected: select it, too, or "
                "leave section_types and section_ids out"
            )
    if SectionType.OPT in types and SectionType.BCKWD not in types:
        raise ScheduleError(
            f"a run of graph {schedule.graph.name!r} makes {batches} mini-batches, each with all "
            "selected sections: OPT without BCKWD would make as many steps with the same gradients. "
            "Select BCKWD, too, or compile with mapping 'section' to step on its own"
        )


def argin_series(
    argins: Mapping[str, Any] | None, batches: int, registers: Registers
) -> tuple[Mapping[str, Any] | None, list[dict[str, Any]]]:
    """Tell argins that are one number from those that are one for each mini-batch.

    Args:
        argins: Numbers, or sequences of as many numbers as there are mini-batches, by name.
        batches: How many there are; 0 for a run of one batch, whose argins are single numbers.
        registers: Check the numbers of sequences.

    Returns:
        The single ones, and for every mini-batch the checked values of the others.

    Raises:
        InputError: A sequence has another length, or a number does not fit.
    """
    if not batches:
        return argins, []
    single: dict[str, Any] = {}
    series: list[dict[str, Any]] = [{} for _ in range(batches)]
    for name, value in (argins or {}).items():
        if not isinstance(value, (list, tuple)):
            single[name] = value
            continue
        if len(value) != batches:
            raise InputError(
                f"argin {name!r} is {len(value)} numbers; a run makes {batches} mini-batches: give "
                "one number for all, or one for each"
            )
        for numbers, number in zip(series, value, strict=True):
            numbers[name] = number
    return single, [registers.split({}, numbers)[1] for numbers in series]
