"""Checks of what is traced: ``forward`` and what it calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from samba_onnx.tools.lint.context import Check, LintContext
from samba_onnx.tools.lint.findings import Remark, Remarks
from samba_onnx.tools.lint.host_operators import (
    DATA_SIZED,
    FOURIER,
    FUNCTIONS,
    LAYERS,
    RANDOM,
    RANDOM_METHODS,
    READS,
)
from samba_onnx.tools.lint.source import Function, SourceFile, argument, literal, quoted
from samba_onnx.tools.lint.tensor_values import Holding, TensorValues

_PRINTS = frozenset({"print", "pprint"})
_LOGS = frozenset({"debug", "info", "warning", "error", "log"})
# The methods are named like the types, but `float()` and `bfloat16()` make types that the RDU has.
_NARROW = {"double": "float64", "half": "float16"}
_TYPES = frozenset({"float64", "double", "float16", "half", "complex64", "complex128", "cfloat"})
_REFUSED = {
    "torch.cond": "`torch.cond` is control flow",
    "torch.jit.script": "a module of `torch.jit` has no Python to trace",
    "torch.jit.trace": "a module of `torch.jit` has no Python to trace",
    "torch.nn.utils.rnn.pack_padded_sequence": "a packed sequence is as long as its values say",
    "torch.func.grad": "`torch.func.grad` is a transformation of functions",
    "torch.func.jacrev": "`torch.func.jacrev` is a transformation of functions",
    "torch.func.jvp": "`torch.func.jvp` is a transformation of functions",
}


def branches(source: SourceFile, context: LintContext) -> Remarks:
    """Find decisions by values of tensors."""
    for function, values in context.traced(source).values.items():
        # Every place at which Python itself decides: a `torch.where` decides on the device, and is
        # no finding.
        for node in ast.walk(function):
            match node:
                case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                    conditions = [test]
                case ast.Assert(test=test):
                    conditions = [test]
                case ast.Match(subject=subject):
                    conditions = [subject]
                case ast.comprehension(ifs=conditions):
                    pass
                case _:
                    continue
            for condition in conditions:
                if _decides_by_values(condition, values):
                    yield Remark(
                        "branch-on-values",
                        condition,
                        f"{quoted(condition)} decides by values of a tensor what is compiled of "
                        f"`{_title(source, function)}`",
                    )


def _decides_by_values(condition: ast.expr, values: TensorValues) -> bool:
    """Whether any part of a condition is true or false by values of a tensor."""
    # Each part is decided by itself: `flag and x.sum() > 0` is about values, whatever the flag is.
    if isinstance(condition, ast.BoolOp):
        return any(_decides_by_values(part, values) for part in condition.values)
    if isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not):
        return _decides_by_values(condition.operand, values)
    return values.is_tensor(condition)


def host_reads(source: SourceFile, context: LintContext) -> Remarks:
    """Find values that are taken out of a tensor while it is traced."""
    for _, values, call in _traced_calls(source, context):
        match call.func:
            case ast.Attribute(value=owner, attr=name) if name in READS:
                # A tensor only: `item()` of a dictionary or of an unknown object may mean anything.
                if values.kind(owner) is Holding.TENSOR:
                    yield _read(call, name)
            # Python's conversions read a value as `item()` does.
            case ast.Name(id="int" | "float" | "bool" as name) if any(
                values.is_tensor(item) for item in call.args
            ):
                yield _read(call, name)


def _read(call: ast.Call, name: str) -> Remark:
    return Remark(
        "host-read-in-forward",
        call,
        f"{quoted(call)} takes values of a tensor to Python with `{name}()`",
    )


def prints(source: SourceFile, context: LintContext) -> Remarks:
    """Find output that appears only while a program is traced."""
    for _, _, call in _traced_calls(source, context):
        match call.func:
            case ast.Name(id=name) if name in _PRINTS:
                yield Remark("print-in-forward", call, f"{quoted(call)} prints while it is traced")
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if (
                # Loggers have no common class that a text shows, but nearly always a name with
                # "log" in it.
                name in _LOGS and "log" in owner.lower()
            ):
                yield Remark("print-in-forward", call, f"{quoted(call)} logs while it is traced")


def host_operators(source: SourceFile, context: LintContext) -> Remarks:
    """Find operators that the target does not run."""
    for _, values, call in _traced_calls(source, context):
        operator = _operator(source, call, values)
        if operator in context.unsupported:
            yield _fallback(call, operator, context)
    # Layers are made outside of traced functions, and run in them: all calls of the file are looked
    # at.
    for call, name in source.calls:
        home, _, layer = name.rpartition(".")
        # By the home as well, since a program may have a class of its own named LSTM.
        operator = LAYERS.get(layer, "") if home.startswith("torch.nn") else ""
        if operator in context.unsupported:
            yield _fallback(call, operator, context)


def _fallback(call: ast.Call, operator: str, context: LintContext) -> Remark:
    return Remark(
        "host-operator",
        call,
        f"{quoted(call.func)} is ONNX's {operator}, which {context.target} does not run: "
        f"{context.unsupported[operator]}",
    )


def _operator(source: SourceFile, call: ast.Call, values: TensorValues) -> str:
    """Return the ONNX operator behind a call that some target does not run; empty for all others."""
    name = source.names.dotted(call.func)
    # Before the table of functions, whose names are those of torch itself.
    if name.startswith("torch.fft."):
        return FOURIER
    if name.startswith(("torch.", "samba.")):
        return FUNCTIONS.get(name.rpartition(".")[2], "")
    if isinstance(call.func, ast.Attribute) and values.is_tensor(call.func.value):
        # `bitwise_xor_` in place is the same operator.
        return FUNCTIONS.get(call.func.attr.rstrip("_"), "")
    return ""


def random_numbers(source: SourceFile, context: LintContext) -> Remarks:
    """Find random numbers that are drawn outside of dropout."""
    for _, values, call in _traced_calls(source, context):
        home, _, name = source.names.dotted(call.func).rpartition(".")
        # Functions by their module, as a program may have a function `rand` of its own; methods by
        # what they belong to.
        if (home in {"torch", "samba"} and name in RANDOM) or (
            isinstance(call.func, ast.Attribute)
            and call.func.attr in RANDOM_METHODS
            and values.is_tensor(call.func.value)
        ):
            message = f"{quoted(call)} draws random numbers while the program is traced"
            yield Remark("random-in-forward", call, message)


def data_sized(source: SourceFile, context: LintContext) -> Remarks:
    """Find results whose size depends on values."""
    for function, values in context.traced(source).values.items():
        for node in ast.walk(function):
            if _is_data_sized(source, node, values):
                message = f"{quoted(node)} has as many elements as values say"
                yield Remark("size-by-values", node, message)


def _is_data_sized(source: SourceFile, node: ast.AST, values: TensorValues) -> bool:
    match node:
        # Read only: `x[mask] = 0` keeps the size of x.
        case ast.Subscript(slice=ast.Compare() as mask, ctx=ast.Load(), value=value):
            return values.is_tensor(mask) and values.is_tensor(value)
        case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in DATA_SIZED:
            return values.is_tensor(owner) or source.names.dotted(node.func).startswith("torch.")
        # With one operand `torch.where` returns places, with three it chooses.
        case ast.Call(args=[only], keywords=[]):
            return source.names.dotted(node.func) == "torch.where" and values.is_tensor(only)
    return False


def data_types(source: SourceFile, context: LintContext) -> Remarks:
    """Find data types that no table of the RDU has."""
    for function, values in context.traced(source).values.items():
        for node in ast.walk(function):
            match node:
                case ast.Attribute(attr=name) if name in _TYPES:
                    # A name that is not torch's may be anything, as `np.float64`.
                    if source.names.dotted(node) != f"torch.{name}" or _is_asked(source, node):
                        continue
                # `double()` of a module and of a tensor look alike, and only the tensor is known.
                case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in _NARROW:
                    if not values.is_tensor(owner):
                        continue
                case _:
                    continue
            message = f"{quoted(node)} makes values of `{_NARROW.get(name, name)}`"
            yield Remark("data-type", node, message)


def _is_asked(source: SourceFile, node: ast.AST) -> bool:
    """Whether a data type is only compared, or asked for its limits."""
    above = next(source.enclosing(node), None)
    # As in `x.dtype in (torch.float16, torch.bfloat16)`.
    if isinstance(above, ast.Tuple | ast.List | ast.Set):
        above = next(source.enclosing(above), None)
    if isinstance(above, ast.Call):
        # Limits of a type are numbers of Python.
        return source.names.dotted(above.func) in ("torch.finfo", "torch.iinfo")
    return isinstance(above, ast.Compare)


def attributes(source: SourceFile, context: LintContext) -> Remarks:
    """Find tensors that ``forward`` leaves in the module."""
    for function, values in context.traced(source).values.items():
        for node in ast.walk(function):
            if not isinstance(node, ast.Assign | ast.AugAssign):
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            # What is no tensor may be kept: counters, flags and shapes are the same in every run.
            if values.kind(node.value) is Holding.OTHER:
                continue
            for target in targets:
                # Buffers and parameters are known tensors of the module, and may be written.
                if _is_own(target) and not values.is_tensor(target):
                    message = f"{quoted(target)} keeps a traced tensor in the module"
                    yield Remark("state-in-attribute", node, message)


def _is_own(target: ast.expr) -> bool:
    return isinstance(target, ast.Attribute) and (
        isinstance(target.value, ast.Name) and target.value.id == "self"
    )


def refused(source: SourceFile, context: LintContext) -> Remarks:
    """Find what no program is compiled of."""
    for call, name in source.calls:
        if name in _REFUSED:
            yield Remark("cannot-be-traced", call, _REFUSED[name])
        elif _is_reentrant(call, name):
            message = f"{quoted(call.func)} is reentrant unless `use_reentrant=False` is given"
            yield Remark("cannot-be-traced", call, message)
    for _, values, call in _traced_calls(source, context):
        match call.func:
            case ast.Attribute(value=owner, attr="backward") if values.is_tensor(owner):
                message = f"{quoted(call)} differentiates inside of `forward`"
                yield Remark("cannot-be-traced", call, message)


def _is_reentrant(call: ast.Call, name: str) -> bool:
    """Whether a call is a checkpoint that runs forward again inside of a backward."""
    if name != "torch.utils.checkpoint.checkpoint":
        return False
    # Left out counts as well: torch's default was reentrant, and old programs rely on it.
    return literal(argument(call, "use_reentrant")) is not False


def _traced_calls(
    source: SourceFile, context: LintContext
) -> Iterator[tuple[Function, TensorValues, ast.Call]]:
    for function, values in context.traced(source).values.items():
        for node in ast.walk(function):
            if isinstance(node, ast.Call):
                yield function, values, node


def _title(source: SourceFile, function: Function) -> str:
    owner = source.class_of(function)
    return function.name if owner is None else f"{owner.name}.{function.name}"


FORWARD_CHECKS: tuple[Check, ...] = (
    branches,
    host_reads,
    prints,
    host_operators,
    random_numbers,
    data_sized,
    data_types,
    attributes,
    refused,
)
