"""Gradients that accelerate sums over several batches: the condition under which a program steps, written out."""

from __future__ import annotations

from typing import Final

import libcst as cst

from samba_onnx.tools.adapt.graph_code import statements_text
from samba_onnx.tools.adapt.name_units import argument, attribute_name, target_units, unit_of
from samba_onnx.tools.adapt.plain_form import PlainForm
from samba_onnx.tools.adapt.source import ProgramFile

_STEPS: Final = frozenset({"step", "zero_grad", "clip_grad_norm_"})


def with_plain_sums(form: PlainForm) -> PlainForm:
    """Write ``accumulate`` of a program on accelerate as a condition on the number of the batch.

    Args:
        form: The program; where it sums otherwise than its documentation shows, it stays as it is.
    """
    source = form.source
    made = [
        (call, steps)
        for call in source.calls
        if source.imported(call.func).endswith("Accelerator")
        for steps in [argument(call, "gradient_accumulation_steps")]
        if steps is not None and source.code(steps.value) != "1"
    ]
    blocks = [node for node in source.nodes if isinstance(node, cst.With) and _accumulates(node)]
    # What is not of the documented form is refused by those who look for steps, with a better reason.
    if len(made) != 1 or len(blocks) != 1 or source.file(made[0][0]) is not source.file(blocks[0]):
        return form
    call, steps = made[0]
    block = blocks[0]
    loop = source.around(block)
    size = source.code(steps.value)
    if not isinstance(loop, cst.For) or not isinstance(
        steps.value, cst.Name | cst.Integer | cst.Attribute
    ):
        return form
    # A variable of another function has no meaning in the loop.
    if not isinstance(steps.value, cst.Integer) and source.frame(call) is not source.frame(block):
        return form
    head = _head(source, loop)
    body = _body(source, block)
    if head is None or body is None:
        return form
    target, loader, counter = head
    before, differentiates, after = body
    changed = _Rewriting(source, call, steps, block, loop).written(
        target=target,
        values=f"enumerate({loader})",
        lines=[
            *([before] if before else []),
            # accelerate divides the loss itself, in its backward().
            f"{differentiates[0]}({differentiates[1]} / {size})",
            # It also steps at the end of the loader, however many batches are left.
            f"if ({counter} + 1) % {size} == 0 or {counter} + 1 == len({loader}):",
            *(f"    {line}" for line in after.split("\n")),
        ],
    )
    return form.rewritten({source.file(block).path: changed})


def _accumulates(block: cst.With) -> bool:
    first = block.items[0].item if len(block.items) == 1 else None
    return isinstance(first, cst.Call) and attribute_name(first.func) == "accumulate"


def _head(source: ProgramFile, loop: cst.For) -> tuple[str, str, str] | None:
    """Return target, loader and counter of a loop."""
    values, target = loop.iter, source.code(loop.target)
    if (
        isinstance(values, cst.Call)
        and unit_of(values.func) == "enumerate"
        and len(values.args) == 1
    ):
        pair = loop.target
        counter = (
            unit_of(pair.elements[0].value)
            if isinstance(pair, cst.Tuple) and len(pair.elements) == 2
            else ""
        )
        loader = unit_of(values.args[0].value)
        return (target, loader, counter) if counter and loader else None
    names = {node.value for node in source.nodes if isinstance(node, cst.Name)}
    counter = next(
        one
        for one in ("step", "batch_number", "number_of_batch")
        if one not in names or one == "number_of_batch"
    )
    loader = unit_of(values)
    several = isinstance(loop.target, cst.Tuple)
    target = f"({target.strip('()')})" if several else target
    return (
        (f"{counter}, {target}", loader, counter)
        if loader and counter not in target_units(loop.target)
        else None
    )


def _body(source: ProgramFile, block: cst.With) -> tuple[str, tuple[str, str], str] | None:
    """Return what stands before the backward pass, that itself, and what it is followed by."""
    lines = [one for one in block.body.body if isinstance(one, cst.BaseStatement)]
    places = [
        (place, value)
        for place, one in enumerate(lines)
        for value in [_call_of(one)]
        if value is not None and attribute_name(value.func) == "backward" and len(value.args) == 1
    ]
    if len(places) != 1:
        return None
    place, value = places[0]
    before, after = lines[:place], lines[place + 1 :]
    prepared = {
        source.code(one.value)
        for call in source.calls
        if attribute_name(call.func).startswith("prepare")
        for one in call.args
    }
    if not after or not all(_is_step(source, one, prepared) for one in after):
        return None
    # zero_grad before the backward pass would be executed in each batch.
    if any(_is_step(source, one, prepared) for one in before):
        return None
    code = source.code(value.args[0].value)
    code = code if unit_of(value.args[0].value) else f"({code})"
    return statements_text(before), (source.code(value.func), code), statements_text(after)


def _call_of(statement: cst.BaseStatement) -> cst.Call | None:
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    value = small.value if isinstance(small, cst.Expr) else None
    return value if isinstance(value, cst.Call) else None


def _is_step(source: ProgramFile, statement: cst.BaseStatement, prepared: set[str]) -> bool:
    """Whether accelerate executes a statement only where gradients were summed."""
    if isinstance(statement, cst.If) and attribute_name(statement.test) == "sync_gradients":
        inner = [one for one in statement.body.body if isinstance(one, cst.BaseStatement)]
        return statement.orelse is None and all(_is_step(source, one, prepared) for one in inner)
    call = _call_of(statement)
    if (
        call is None
        or not isinstance(call.func, cst.Attribute)
        or call.func.attr.value not in _STEPS
    ):
        return False
    # What was not prepared steps in every batch.
    return call.func.attr.value == "clip_grad_norm_" or source.code(call.func.value) in prepared


class _Rewriting(cst.CSTTransformer):
    """Puts the lines of the block into the loop."""

    def __init__(
        self, source: ProgramFile, call: cst.Call, steps: cst.Arg, block: cst.With, loop: cst.For
    ) -> None:
        super().__init__()
        self._source = source
        self._call = call
        self._steps = steps
        self._block = block
        self._loop = loop
        self._lines: list[cst.BaseStatement] = []
        self._head: tuple[str, str] = ("", "")

    def written(self, *, target: str, values: str, lines: list[str]) -> str:
        """Return the text of the file.

        Args:
            target: Target of the loop.
            values: What it goes through.
            lines: What stands in the place of the block.
        """
        file = self._source.file(self._block)
        parsed = cst.parse_module("\n".join(lines) + "\n", file.module.config_for_parsing)
        self._lines = list(parsed.body)
        self._head = (target, values)
        changed = file.module.visit(self)
        assert isinstance(changed, cst.Module)
        return changed.code

    def leave_With(
        self, original_node: cst.With, updated_node: cst.With
    ) -> cst.With | cst.FlattenSentinel[cst.BaseStatement]:
        return cst.FlattenSentinel(self._lines) if original_node is self._block else updated_node

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For:
        if original_node is not self._loop:
            return updated_node
        head = cst.parse_statement(f"for {self._head[0]} in {self._head[1]}:\n    pass\n")
        assert isinstance(head, cst.For)
        return updated_node.with_changes(target=head.target, iter=head.iter)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        if original_node is not self._call:
            return updated_node
        kept = [
            new
            for old, new in zip(original_node.args, updated_node.args, strict=True)
            if old is not self._steps
        ]
        if kept:
            kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return updated_node.with_changes(args=kept)
