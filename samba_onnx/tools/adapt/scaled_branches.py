"""Two branches that compute the same step, one with a gradient scaler and one without: the plain one is kept."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst

from samba_onnx.tools.adapt.bindings import Bindings
from samba_onnx.tools.adapt.plain_form import PlainForm
from samba_onnx.tools.adapt.roles import Role, StepRoles
from samba_onnx.tools.adapt.source import ProgramFile
from samba_onnx.tools.adapt.trained_step import Search

_AUTOCASTS = ("torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast")


def with_plain_branches(form: PlainForm) -> PlainForm:
    """Keep the branch without a scaler where the other one computes the same in a narrower type.

    Args:
        form: The program; branches that differ in more than that stay as they are.
    """
    source = form.source
    if not any("GradScaler" in file.text for file in source.files):
        return form
    roles = Search(source, Bindings(source)).roles
    kept: dict[cst.If, cst.BaseSuite] = {}
    for node in source.nodes:
        plain = _plain_branch(source, roles, node) if isinstance(node, cst.If) else None
        if isinstance(node, cst.If) and plain is not None:
            kept[node] = plain
            form.refuse(
                node,
                "autocast",
                "the branch in float32 is kept: what is computed in a narrower type is decided when the program is "
                "compiled",
                instead="compile with --precision mixed, or leave it to SambaFlow's default",
                blocks=False,
            )
    changed = {source.file(node).path: source.file(node) for node in kept}
    texts = {path: _code(file.module.visit(_Keeping(kept))) for path, file in changed.items()}
    return form.rewritten(texts)


def _plain_branch(source: ProgramFile, roles: StepRoles, node: cst.If) -> cst.BaseSuite | None:
    """Return the branch of a condition that has no scaler; None if the other one does something else."""
    if not isinstance(node.orelse, cst.Else):
        return None
    branches = [node.body, node.orelse.body]
    scaled = [any(_is_scaled(roles, one) for one in _inner(branch)) for branch in branches]
    # Only branches with a step in them: what else depends on the type is the author's.
    steps = [any(_differentiates(roles, one) for one in _inner(branch)) for branch in branches]
    # One branch of each kind: two with a scaler are a choice of something else.
    if sorted(scaled) != [False, True] or not all(steps):
        return None
    texts = ["\n".join(_lines(source, roles, branch)) for branch in branches]
    # By their trees: comments and blank lines say nothing of what is computed.
    if ast.dump(ast.parse(texts[0])) != ast.dump(ast.parse(texts[1])):
        return None
    return branches[scaled.index(False)]


def _inner(branch: cst.BaseSuite) -> Iterator[cst.BaseStatement]:
    """Yield the statements of a branch, with those of blocks in it."""
    for one in branch.body if isinstance(branch, cst.IndentedBlock) else ():
        if isinstance(one, cst.BaseStatement):
            yield one
            inner = one.body if isinstance(one, cst.With | cst.If) else None
            if inner is not None:
                yield from _inner(inner)


def _is_scaled(roles: StepRoles, statement: cst.BaseStatement) -> bool:
    part = roles.of(statement)
    if part is None or part.call is None:
        return False
    # scaler.step(optimizer) and scaler.scale(loss).backward(): the subject is an argument.
    func = part.call.func
    owner = func.value if isinstance(func, cst.Attribute) else None
    return part.role is Role.SCALER or (
        part.role in {Role.STEP, Role.BACKWARD} and part.subject is not owner
    )


def _differentiates(roles: StepRoles, statement: cst.BaseStatement) -> bool:
    part = roles.of(statement)
    return part is not None and part.role is Role.BACKWARD


def _lines(source: ProgramFile, roles: StepRoles, branch: cst.BaseSuite) -> Iterator[str]:
    """Yield the lines of a branch as they are without autocast and scaler."""
    if not isinstance(branch, cst.IndentedBlock):
        yield "pass"
        return
    for one in branch.body:
        part = roles.of(one) if isinstance(one, cst.BaseStatement) else None
        if isinstance(one, cst.With) and _is_autocast(source, one):
            yield from _lines(source, roles, one.body)
        elif part is not None and part.role is Role.SCALER:
            continue
        elif part is not None and part.subject is not None and _is_scaled(roles, part.statement):
            method = "step" if part.role is Role.STEP else "backward"
            yield f"({source.code(part.subject)}).{method}()"
        elif isinstance(one, cst.If) and one.orelse is None:
            yield f"if {source.code(one.test)}:"
            yield from (f"    {line}" for line in (*_lines(source, roles, one.body), "pass"))
        else:
            yield source.code(one)


def _is_autocast(source: ProgramFile, block: cst.With) -> bool:
    first = block.items[0].item if len(block.items) == 1 else None
    return isinstance(first, cst.Call) and source.imported(first.func) in _AUTOCASTS


def _code(module: cst.Module | cst.CSTNode) -> str:
    assert isinstance(module, cst.Module)
    return module.code


class _Keeping(cst.CSTTransformer):
    """Puts one branch of a condition in the place of the condition."""

    def __init__(self, kept: dict[cst.If, cst.BaseSuite]) -> None:
        super().__init__()
        self._kept = kept

    def leave_If(
        self, original_node: cst.If, updated_node: cst.If
    ) -> cst.If | cst.FlattenSentinel[cst.BaseStatement]:
        kept = self._kept.get(original_node)
        if not isinstance(kept, cst.IndentedBlock):
            return updated_node
        lines = [one for one in kept.body if isinstance(one, cst.BaseStatement)]
        first = lines[0]
        if isinstance(first, cst.SimpleStatementLine):
            above = [*updated_node.leading_lines, *first.leading_lines]
            lines[0] = first.with_changes(leading_lines=above)
        return cst.FlattenSentinel(lines)
