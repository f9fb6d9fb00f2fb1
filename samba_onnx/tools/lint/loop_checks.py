"""Checks of what a program does in every step: around each run of the device."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator
from typing import Final

from samba_onnx.tools.lint.context import Check, LintContext
from samba_onnx.tools.lint.findings import Remark, Remarks
from samba_onnx.tools.lint.host_operators import READS
from samba_onnx.tools.lint.names import words
from samba_onnx.tools.lint.session_calls import COMPILE, RUN, TRACE, calls_of
from samba_onnx.tools.lint.source import Function, Loop, SourceFile, argument, literal, quoted

_TRANSFERS: Final = frozenset(
    f"samba.session.{name}"
    for name in words(
        "to_cpu to_cpu_ to_rdu to_device sync_buffers_to_cpu sync_buffers_to_rdu get_tensors "
        "get_tensors_by_name"
    )
)
_DEVICE_READS: Final = frozenset({"sn_data", "sn_grad"})
_DEEPEST: Final = 4
"""How many assignments are followed from a value to what it comes of."""


class Steps:
    """The loops of one file whose every iteration runs the device, and the functions they call."""

    def __init__(self, source: SourceFile) -> None:
        """Look for runs, and for functions that make one."""
        self._source = source
        self._functions: set[Function] = set()
        self._loops: set[Loop] = set()
        pending: list[ast.Call] = list(calls_of(source, RUN))
        while pending:
            # A call in a loop makes that loop a step. Otherwise its function is called somewhere,
            # which may be in a loop: callers are followed until no new ones appear.
            call = pending.pop()
            loop = source.loop_of(call)
            function = source.function_of(call)
            if loop is not None:
                self._loops.add(loop)
            elif function is not None and function not in self._functions:
                self._functions.add(function)
                pending += calls_to(source, function)
        # A function that is called in a loop is executed once per iteration, with all that it does.
        self._called = {
            function
            for function in self._functions
            if any(source.loop_of(call) is not None for call in calls_to(source, function))
        }

    def has(self, loop: Loop) -> bool:
        """Whether an iteration of a loop runs the device, itself or by a function that it calls."""
        return loop in self._loops

    def repeats(self, node: ast.AST) -> bool:
        """Whether a node is executed in every step, and no condition leaves it out in some."""
        # Programs print every so many steps, and copy once per epoch: that is what the rules
        # advise.
        if self._source.is_conditional(node):
            return False
        loop = self._source.loop_of(node)
        if loop is not None:
            return loop in self._loops
        return self._source.function_of(node) in self._called

    def calls(self) -> Iterator[ast.Call]:
        """Yield the calls that are made in every step."""
        # Without any step there is nothing to look for, and most files have none.
        if self._loops or self._called:
            for call, _ in self._source.calls:
                if self.repeats(call):
                    yield call


def calls_to(source: SourceFile, function: Function) -> list[ast.Call]:
    """Return the calls of a function by its own name, as a function or a method of ``self``.

    Args:
        source: The file of both.
        function: A function or method that the file defines.
    """
    # A method and a function may have one name; what stands before the dot tells which is called.
    own = source.class_of(function) is not None
    return [
        call
        for call, _ in source.calls
        if (isinstance(call.func, ast.Name) and not own and call.func.id == function.name)
        or (
            isinstance(call.func, ast.Attribute)
            and own
            and call.func.attr == function.name
            and isinstance(call.func.value, ast.Name)
        )
    ]


def transfers(source: SourceFile, context: LintContext) -> Remarks:
    """Find copies between host and device in every step."""
    steps = Steps(source)
    for call in steps.calls():
        if source.names.dotted(call.func) in _TRANSFERS:
            message = f"{quoted(call)} is executed in every step"
            yield Remark("transfer-per-step", call, message)
    for node in ast.walk(source.tree):
        match node:
            # Only reads: a step may write the gradient of an output, as the vendor's documents
            # show.
            case ast.Attribute(attr=name, ctx=ast.Load()) if name in _DEVICE_READS:
                if steps.repeats(node):
                    message = f"{quoted(node)} copies from the device in every step"
                    yield Remark("transfer-per-step", node, message)


def reads(source: SourceFile, context: LintContext) -> Remarks:
    """Find numbers that are taken to Python in every step."""
    for call in Steps(source).calls():
        match call.func:
            case ast.Attribute(attr=name) if name in READS:
                message = f"{quoted(call)} takes values to Python in every step"
                yield Remark("item-per-step", call, message)


def prints(source: SourceFile, context: LintContext) -> Remarks:
    """Find output in every step."""
    for call in Steps(source).calls():
        match call.func:
            case ast.Name(id="print"):
                yield Remark("print-per-step", call, f"{quoted(call)} prints in every step")


def unused_outputs(source: SourceFile, context: LintContext) -> Remarks:
    """Find outputs that are fetched in every step, and thrown away."""
    steps = Steps(source)
    for call in calls_of(source, RUN):
        # A call with its result used elsewhere is no statement of its own.
        statement = next(source.enclosing(call))
        if not steps.repeats(call):
            continue
        match statement:
            case ast.Expr():
                outputs = argument(call, "output_tensors", 1)
                # None asks for no outputs, and so does an argument that is left out.
                if outputs is not None and literal(outputs) is None:
                    message = f"{quoted(call.func)} fetches outputs, and nothing keeps them"
                    yield Remark("unused-output", call, message)
            case ast.Assign(targets=[ast.Tuple(elts=[*items])]):
                if any(isinstance(item, ast.Name) and item.id == "_" for item in items):
                    message = f"{quoted(statement.targets[0])} throws an output away"
                    yield Remark("unused-output", call, message)


def host_steps(source: SourceFile, context: LintContext) -> Remarks:
    """Find steps of torch's training beside those of the device.

    A loss on the host is none: outputs are fetched, torch computes the loss and its gradient, and the
    step writes that to ``sn_grad`` of the output (model conversion overview). Neither is an optimizer
    of another model, as the client of split learning has one on the host.
    """
    optimizers = _device_optimizers(source)
    for call in Steps(source).calls():
        match call.func:
            case ast.Attribute(value=owner, attr="step" | "zero_grad" as method) if (
                # An optimizer of another model has every right to step on the host.
                ast.unparse(owner) in optimizers
            ):
                name = ast.unparse(owner)
                message = f"`{name}.{method}()` is a step on the host, beside that of the device"
                yield Remark("host-step", call, message)
            # A loss on the host whose gradient is written to the device is how SambaFlow computes
            # it.
            case ast.Attribute(value=owner, attr="backward") if _comes_of_device(
                source, owner
            ) and not _writes_gradient(source, call):
                message = f"{quoted(call)} is a backward on the host, beside that of the device"
                yield Remark("host-step", call, message)


def _device_optimizers(source: SourceFile) -> set[str]:
    """Return the names of optimizers whose model is compiled or traced, or is the only one that trains."""
    bound = _bound(source, lambda name: ".optim." in name and "lr_scheduler" not in name)
    traced = _traced_models(source)
    # Without a traced model in the file, any optimizer must be the one of the device.
    return {name for name, call in bound if not traced or _trains(call, traced)}


def _traced_models(source: SourceFile) -> set[str]:
    """Return the names of the models that a file compiles or traces."""
    return {
        ast.unparse(model)
        for call in (*calls_of(source, TRACE), *calls_of(source, COMPILE))
        for model in [argument(call, "model", 0)]
        if model is not None
    }


def _comes_of_device(source: SourceFile, value: ast.expr, depth: int = 0) -> bool:
    """Whether a value is of a run, or of the model that is traced; another model may have its own."""
    names = [node for node in ast.walk(value) if isinstance(node, ast.Name)]
    calls = [node for node in ast.walk(value) if isinstance(node, ast.Call)]
    models = _traced_models(source)
    if any(source.names.dotted(c.func) in RUN or ast.unparse(c.func) in models for c in calls):
        return True
    # A few steps back only: a value may depend on itself around a loop.
    return depth < _DEEPEST and any(
        _comes_of_device(source, assigned, depth + 1)
        for name in names
        for assigned in _assigned(source, name)
    )


def _assigned(source: SourceFile, name: ast.Name) -> Iterator[ast.expr]:
    """Yield what is assigned to a name in the function around it."""
    for node in ast.walk(source.function_of(name) or source.tree):
        if isinstance(node, ast.Assign) and any(
            isinstance(part, ast.Name) and part.id == name.id
            for target in node.targets
            for part in ast.walk(target)
        ):
            yield node.value


def _trains(made: ast.Call, models: Collection[str]) -> bool:
    """Whether an optimizer is made of parameters of one of some models, by their names."""
    parameters = argument(made, "params", 0)
    return parameters is not None and any(
        # `model.parameters()`, also inside of a list of groups.
        isinstance(node, ast.Attribute) and ast.unparse(node.value) in models
        for node in ast.walk(parameters)
    )


def _writes_gradient(source: SourceFile, backward: ast.Call) -> bool:
    """Whether the loop or function of a backward writes the gradient of an output to the device."""
    around = source.loop_of(backward) or source.function_of(backward) or source.tree
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == "sn_grad"
        and isinstance(node.ctx, ast.Store)
        for node in ast.walk(around)
    ) or any(
        # The gradient may be given to the next run instead of being written.
        argument(call, name) is not None
        for call in calls_of(source, RUN)
        for name in ("grad_of_outputs", "output_grads")
        if call in ast.walk(around)
    )


def schedules(source: SourceFile, context: LintContext) -> Remarks:
    """Find schedules of torch whose rate no run is given."""
    runs = [call for file in context.files for call in calls_of(file, RUN)]
    # One run with a rate is enough: the program knows that it has to give one.
    if not runs or any(_gives_rate(call) for call in runs):
        return
    # transformers has a function for each schedule, all named alike.
    made = _bound(
        source, lambda name: ".lr_scheduler." in name or name.startswith("transformers.get_")
    )
    schedulers = {name for name, _ in made}
    for call, _ in source.calls:
        match call.func:
            case ast.Attribute(value=owner, attr="step") if ast.unparse(owner) in schedulers:
                message = f"`{ast.unparse(owner)}.step()` sets a rate that no run is given"
                yield Remark("schedule-without-rate", call, message)


def _gives_rate(call: ast.Call) -> bool:
    """Whether a run is given hyperparameters that may hold a learning rate."""
    given = argument(call, "hyperparam_dict", 2)
    if isinstance(given, ast.Dict):
        keys = [literal(key) for key in given.keys]
        return (
            # A key that is computed may be the rate.
            None in keys
            or "lr" in keys
            or any(isinstance(key, str) and "lr" in key for key in keys)
        )
    # Whatever is no dictionary written out may have a rate in it.
    return given is not None or any(keyword.arg is None for keyword in call.keywords)


def _bound(source: SourceFile, accepts: Callable[[str], bool]) -> Iterator[tuple[str, ast.Call]]:
    """Yield the names, also as ``self.name``, that results of some functions are assigned to, with the calls."""
    for node in ast.walk(source.tree):
        match node:
            case ast.Assign(targets=targets, value=ast.Call(func=called) as call):
                if accepts(source.names.dotted(called)):
                    named = (ast.Name, ast.Attribute)
                    yield from (
                        (ast.unparse(item), call) for item in targets if isinstance(item, named)
                    )


LOOP_CHECKS: tuple[Check, ...] = (
    transfers,
    reads,
    prints,
    unused_outputs,
    host_steps,
    schedules,
)
