"""Batches that a program slices by hand: the loop ends before a smaller last one."""

from __future__ import annotations

import libcst as cst

from samba_onnx.tools.adapt.batch_edits import BatchEdits
from samba_onnx.tools.adapt.name_units import unit_of, walk
from samba_onnx.tools.adapt.plain_form import PlainForm
from samba_onnx.tools.adapt.port import ProgramPort
from samba_onnx.tools.adapt.source import ProgramFile
from samba_onnx.tools.adapt.trained_step import TrainedStep


def with_whole_slices(form: PlainForm, port: ProgramPort, training: TrainedStep) -> PlainForm:
    """Let loops over slices of one size end before a smaller last one.

    Args:
        form: The program.
        port: What is known of it.
        training: Its step; other loops, as those that evaluate, stay as they are.
    """
    source = port.source
    texts: dict[str, str] = {}
    for loop in BatchEdits(port, training).loops():
        call = _range(source, loop)
        if call is None or not isinstance(loop, cst.For) or not _slices(source, loop, call):
            continue
        file = source.file(loop)
        if file.path in texts:
            continue  # one loop goes through the data
        stop, size = (source.code(call.args[place].value) for place in (1, 2))
        # The last start is that of a whole slice; with fewer rows than one, there is one smaller slice, and the compiler says so.
        new = cst.parse_expression(f"max({stop} - {size}, 0) + 1")
        changed = file.module.with_deep_changes(call.args[1], value=new)
        assert isinstance(changed, cst.Module)
        texts[file.path] = changed.code
        form.refuse(
            call,
            "drop-last",
            "a last slice that is smaller than the others is not trained on any more",
            instead="nothing, if that is right; a batch size that divides the data, if not",
            blocks=False,
        )
    return form.shortened(texts)


def _range(source: ProgramFile, loop: cst.For | cst.CompFor) -> cst.Call | None:
    """Return ``range(0, N, B)`` of a loop's head, if N is a length and no arithmetic."""
    for node in walk(loop.iter):
        if (
            isinstance(node, cst.Call)
            and unit_of(node.func) in {"range", "trange"}
            and len(node.args) == 3
        ):
            start, stop, step = (argument.value for argument in node.args)
            is_length = isinstance(
                stop, cst.Name | cst.Attribute | cst.Call | cst.Subscript | cst.Integer
            )
            if source.code(start) == "0" and is_length and not isinstance(step, cst.UnaryOperation):
                return node
    return None


def _slices(source: ProgramFile, loop: cst.For, call: cst.Call) -> bool:
    """Whether a loop slices by its counter, as ``x[i:i + B]``."""
    size = source.code(call.args[2].value)
    for node in walk(loop.body):
        if isinstance(node, cst.Slice) and isinstance(node.lower, cst.Name):
            upper = node.upper
            if isinstance(upper, cst.Call) and unit_of(upper.func) == "min":
                upper = next(
                    (
                        argument.value
                        for argument in upper.args
                        if isinstance(argument.value, cst.BinaryOperation)
                    ),
                    None,
                )
            if not isinstance(upper, cst.BinaryOperation) or not isinstance(
                upper.operator, cst.Add
            ):
                continue
            sides = {source.code(upper.left), source.code(upper.right)}
            # Slices of another size than the steps of the loop overlap or leave rows out: not of this kind.
            if sides == {node.lower.value, size}:
                return True
    return False
