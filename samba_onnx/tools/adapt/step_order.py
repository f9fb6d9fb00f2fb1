"""Steps that a program leaves early, makes twice or makes in changing modes: a run makes one, and all of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import libcst as cst

from samba_onnx.tools.adapt.modes import asks_for_mode, mode_of
from samba_onnx.tools.adapt.name_units import root_unit, unit_of, walk
from samba_onnx.tools.adapt.port import ProgramPort
from samba_onnx.tools.adapt.roles import Role, StepPart
from samba_onnx.tools.adapt.slicing import Slice
from samba_onnx.tools.adapt.trained_step import TrainedStep

_LEAVING: Final = (cst.Continue, cst.Break, cst.Return)
_RANDOM: Final = frozenset(
    {"randn", "rand", "randint", "randn_like", "rand_like", "randint_like", "normal", "bernoulli", "multinomial", "randperm"}
)  # fmt: skip


def refuse_order(port: ProgramPort, training: TrainedStep, cut: Slice) -> None:
    """Refuse steps that are no one run.

    Args:
        port: The program.
        training: Its step.
        cut: What of it the RDU computes.
    """
    _refuse_leaving(port, training, cut)
    _refuse_second_step(port, training)
    _refuse_state(port, training)
    _refuse_modes(port, training)


def _refuse_leaving(port: ProgramPort, training: TrainedStep, cut: Slice) -> None:
    """Refuse what leaves an iteration between the forward pass and the step."""
    # An exception ends the program. From the block of the backward pass outwards, up to the loop.
    steps = [part.statement for part in training.parts if part.role is Role.STEP]
    current: cst.BaseStatement | None = training.backward.statement
    while current is not None and not isinstance(current, cst.For | cst.While):
        block = list(port.source.block(current))
        place = block.index(current)
        before = [index for index, one in enumerate(block[:place]) if _holds(port, one, cut.moved)]
        after = [
            index for index, one in enumerate(block) if index > place and _holds(port, one, steps)
        ]
        for one in block[min(before, default=place) : max(after, default=place)]:
            if one is not current:
                _refuse_each(port, one)
        current = port.source.around(current)


def _holds(port: ProgramPort, outer: cst.BaseStatement, inner: Sequence[cst.BaseStatement]) -> bool:
    return any(port.source.contains(outer, one) for one in inner)


def _refuse_each(port: ProgramPort, statement: cst.BaseStatement) -> None:
    for node in _leaving(statement):
        port.points.add(
            node,
            "left-step",
            "the step may end here, between its forward pass and the optimizer's step; the RDU makes both in one run",
            instead="decide before the forward pass, or let the loss be 0 by torch.where",
        )


def _leaving(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    if isinstance(node, cst.FunctionDef | cst.ClassDef | cst.Lambda):
        return
    if isinstance(node, _LEAVING):
        yield node
    if isinstance(node, cst.For | cst.While):
        return  # they leave this loop
    for child in node.children:
        yield from _leaving(child)


def _refuse_second_step(port: ProgramPort, training: TrainedStep) -> None:
    seen: dict[tuple[object, str], StepPart] = {}
    for part in training.parts:
        if part.role is not Role.STEP or part.subject is None:
            continue
        key = (port.source.parent(part.statement), root_unit(part.subject))
        if key in seen:
            port.points.add(
                part.statement,
                "second-step",
                "the optimizer steps a second time by the same gradients",
                instead="step once, by a larger rate if that is what is meant",
            )
        seen[key] = part


def _refuse_state(port: ProgramPort, training: TrainedStep) -> None:
    """Refuse programs that change what an optimizer remembers, which the RDU has."""
    things = {optimizer.thing for optimizer in training.optimizers}
    for node in port.source.nodes:
        if not isinstance(node, cst.Attribute) or node.attr.value != "state":
            continue
        unit = unit_of(node.value)
        frame = port.source.frame(node)
        if (
            unit
            and port.bindings.resolve(frame, unit) in things
            and port.source.contains(training.entry, node)
        ):
            port.points.add(
                node,
                "optimizer-state",
                "what the optimizer remembers is on the RDU while it trains",
                instead="call samba.session.to_cpu(model, [optimizer]) before, and samba.session.to_rdu(model, "
                "[optimizer]) behind it",
            )


def _refuse_modes(port: ProgramPort, training: TrainedStep) -> None:
    """Refuse a mode that is chosen anew in each step: the graph is compiled in that of training."""
    conditional = any(
        isinstance(one, cst.If) for one in port.source.enclosing(training.backward.statement)
    )
    frames = [level.frame for level in training.levels]
    asks = asks_for_mode(port, training.models)
    for call in port.source.calls:
        is_mode = mode_of(call) == "eval"
        inside = (
            port.source.contains(training.entry, call)
            or port.source.frame(call) in frames[: training.home]
        )
        if not is_mode or not inside or not asks or port.source.frame(call) not in frames:
            continue
        statement = port.source.statement(call)
        chosen = any(isinstance(one, cst.IfExp) for one in port.source.enclosing(call))
        if chosen or (not conditional and _is_left(port, statement)):
            port.points.add(
                call,
                "lasting-evaluation",
                "some steps train in the mode of evaluation, and the RDU in that of training",
                instead="call model.train() before each step",
            )


def _is_left(port: ProgramPort, statement: cst.BaseStatement) -> bool:
    """Whether a mode is set in a branch that does not set it back."""
    above = port.source.around(statement)
    if not isinstance(above, cst.If):
        return False
    block = list(port.source.block(statement))
    rest = block[block.index(statement) + 1 :]
    return not any(
        isinstance(call, cst.Call) and mode_of(call) == "train"
        for one in rest
        for call in walk(one)
    )


def refuse_random(port: ProgramPort) -> None:
    """Refuse modules that draw random numbers in their forward pass, other than by dropout.

    Args:
        port: The program.
    """
    # Methods that `forward` leads to, of the classes of which the program makes objects.
    waiting = [
        function
        for function in port.source.functions
        if function.name.value == "forward"
        and port.source.is_module(port.source.class_of(function))
        and _is_made(port, port.source.class_of(function))
    ]
    seen: set[cst.FunctionDef] = set()
    while waiting:
        function = waiting.pop()
        if function in seen:
            continue
        seen.add(function)
        for call in port.source.calls:
            if port.source.frame(call) is not function:
                continue
            called = port.bindings.callee(call)
            if called is not None and called.name.value != "__init__":
                waiting.append(called)
            name = port.source.imported(call.func)
            if name.startswith("torch.") and name.rpartition(".")[2] in _RANDOM:
                port.points.add(
                    call,
                    "random-numbers",
                    "the forward pass draws random numbers, which a compiled graph cannot do outside of dropout",
                    instead="draw them in the loop, and give them to the model as an input",
                )


def _is_made(port: ProgramPort, owner: cst.ClassDef | None) -> bool:
    return owner is not None and any(
        port.source.definition(call.func) is owner for call in port.source.calls
    )
