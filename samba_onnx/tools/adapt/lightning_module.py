"""Modules of Lightning: what they say of a training, and what is left of them as modules of torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import libcst as cst

from samba_onnx.tools.adapt.graph_code import statements_text
from samba_onnx.tools.adapt.inlining import Inlining, RefusedMethodError
from samba_onnx.tools.adapt.name_units import SELF, attribute_name, unit_of, walk
from samba_onnx.tools.adapt.plain_form import behind_imports
from samba_onnx.tools.adapt.source import ProgramFile

_STEPS: Final = frozenset(
    {"training_step", "validation_step", "test_step", "predict_step", "configure_optimizers"}
)
"""Methods that the loop took the statements of, or that nobody calls any more."""
_LOADERS: Final = frozenset(
    {
        "__init__",
        "forward",
        "train_dataloader",
        "val_dataloader",
        "test_dataloader",
        "predict_dataloader",
        "prepare_data",
        "setup",
    }
)
_HOOKS: Final = (
    "on_",
    "optimizer_",
    "configure_",
    "backward",
    "lr_scheduler_",
    "transfer_batch",
    "manual_",
)
_LOGS: Final = frozenset({"log", "log_dict", "save_hyperparameters"})
_LIGHTNINGS: Final = frozenset(
    {"trainer", "current_epoch", "global_step", "logger", "device", "optimizers", "lr_schedulers", "manual_backward",
     "example_input_array", "automatic_optimization", "print", "freeze", "unfreeze", "toggle_optimizer"}
)  # fmt: skip
"""Attributes that a module of Lightning has by its class."""


def is_lightning(source: ProgramFile, owner: cst.ClassDef, kind: str) -> bool:
    """Whether a class is derived from ``LightningModule`` or ``LightningDataModule`` itself.

    Args:
        source: The program.
        owner: The class.
        kind: ``Module`` or ``DataModule``.
    """
    return any(source.imported(base.value).endswith(f".Lightning{kind}") for base in owner.bases)


@dataclass
class Optimizing:
    """How a module of Lightning is optimized."""

    lines: list[str] = field(default_factory=list)
    """What makes optimizer and scheduler."""
    every_step: str = ""
    every_epoch: str = ""


class LightningClass:
    """A module of Lightning."""

    def __init__(self, source: ProgramFile, owner: cst.ClassDef) -> None:
        self.source = source
        self.owner = owner
        self.methods = {
            one.name.value: one for one in owner.body.body if isinstance(one, cst.FunctionDef)
        }
        if len(owner.bases) > 1:
            # Of a mixin nobody knows here what it takes from Lightning.
            raise RefusedMethodError(owner, "the class has other bases beside Lightning's")
        for name, method in self.methods.items():
            # Its statements would stand nowhere in the loop that is written.
            if name.startswith(_HOOKS) and name != "configure_optimizers":
                raise RefusedMethodError(method, f"Lightning calls {name} in its loop")
            if method.decorators and name in _STEPS:
                raise RefusedMethodError(method, "a decorator changes the method")
        for node in walk(owner):
            name = unit_of(node).partition(".")[2] if unit_of(node).startswith(f"{SELF}.") else ""
            # A module of torch has none of these: it would fail, or have another meaning.
            if name in _LIGHTNINGS:
                raise RefusedMethodError(node, f"`{name}` is Lightning's alone")

    def optimizing(self, inlining: Inlining) -> Optimizing:
        """Return the lines that make what steps.

        Args:
            inlining: Writes methods where they are called.
        """
        function = self.methods.get("configure_optimizers")
        if function is None:
            raise RefusedMethodError(self.owner, "the module has no configure_optimizers")
        done = inlining.method(function, [])
        made = Optimizing()
        text = statements_text(done.statements)
        if text:
            made.lines.append(text)
        optimizer, scheduler, interval = _parts(function, done.result)
        module = cst.Module(body=[])
        code = module.code_for_node(optimizer)
        if code != "optimizer":
            # The name by which the loop steps it.
            made.lines.append(f"optimizer = {code}")
        if scheduler is not None:
            code = module.code_for_node(scheduler)
            if code != "scheduler":
                made.lines.append(f"scheduler = {code}")
            # Where nothing is said, Lightning steps schedulers by epoch.
            if interval == "step":
                made.every_step = "scheduler.step()"
            else:
                made.every_epoch = "scheduler.step()"
        return made


def _parts(
    function: cst.FunctionDef, value: cst.BaseExpression | None
) -> tuple[cst.BaseExpression, cst.BaseExpression | None, str]:
    """Return optimizer, scheduler and when that steps, of what configure_optimizers returns."""
    if isinstance(value, cst.Dict):
        entries = _entries(function, value)
        if "optimizer" not in entries or set(entries) - {"optimizer", "lr_scheduler"}:
            raise RefusedMethodError(
                function, "what it returns says more than optimizer and scheduler"
            )
        return entries["optimizer"], *_scheduler(function, entries.get("lr_scheduler"))
    # Two lists, of optimizers and of schedulers, is the oldest of the forms.
    if isinstance(value, cst.Tuple) and len(value.elements) == 2:
        first, second = (element.value for element in value.elements)
        if (
            isinstance(first, cst.List)
            and isinstance(second, cst.List)
            and len(first.elements) == len(second.elements) == 1
        ):
            return first.elements[0].value, *_scheduler(function, second.elements[0].value)
    # Several optimizers are several graphs.
    if isinstance(value, cst.List) and len(value.elements) == 1:
        value = value.elements[0].value
    if value is None or isinstance(value, cst.Tuple | cst.List):
        raise RefusedMethodError(function, "it returns not one optimizer")
    return value, None, ""


def _scheduler(
    function: cst.FunctionDef, value: cst.BaseExpression | None
) -> tuple[cst.BaseExpression | None, str]:
    if not isinstance(value, cst.Dict):
        return value, "epoch"
    entries = _entries(function, value)
    interval = entries.get("interval")
    word = interval.evaluated_value if isinstance(interval, cst.SimpleString) else "epoch"
    if (
        "scheduler" not in entries
        # `monitor` steps by a metric, `frequency` not each time: both need what Lightning logs.
        or set(entries) - {"scheduler", "interval", "name"}
        or word not in {"epoch", "step"}
    ):
        raise RefusedMethodError(
            function, "the scheduler steps by what Lightning logs, or not every time"
        )
    return entries["scheduler"], str(word)


def _entries(function: cst.FunctionDef, value: cst.Dict) -> dict[str, cst.BaseExpression]:
    found = {}
    for element in value.elements:
        if not isinstance(element, cst.DictElement) or not isinstance(
            element.key, cst.SimpleString
        ):
            raise RefusedMethodError(function, "nobody can say here what it returns")
        found[str(element.key.evaluated_value)] = element.value
    return found


def cleaned_module(
    source: ProgramFile,
    model: str,
    replaced: Mapping[cst.BaseStatement, Sequence[cst.BaseStatement]],
) -> str:
    """Return the program's text without Lightning.

    Args:
        source: The program.
        model: The variable of the module that is trained.
        replaced: What stands in the place of statements now.
    """
    changed = source.module.visit(_Cleaning(source, replaced))
    assert isinstance(changed, cst.Module)
    # In a second pass: what was inlined logs by the variable, and what stayed by self.
    return cst.parse_module(changed.code).visit(_Logs({SELF, model})).code


class _Cleaning(cst.CSTTransformer):
    """Takes Lightning out of a program."""

    def __init__(
        self,
        source: ProgramFile,
        replaced: Mapping[cst.BaseStatement, Sequence[cst.BaseStatement]],
    ) -> None:
        super().__init__()
        self._source = source
        self._replaced = replaced

    def leave_ClassDef(
        self, original_node: cst.ClassDef, updated_node: cst.ClassDef
    ) -> cst.ClassDef:
        if is_lightning(self._source, original_node, "Module"):
            # Its only base, or it was refused.
            base = cst.Arg(cst.parse_expression("torch.nn.Module"))
            body = [
                one
                for one in updated_node.body.body
                if not isinstance(one, cst.FunctionDef) or one.name.value not in _STEPS
            ]
            return updated_node.with_changes(
                bases=[base], body=updated_node.body.with_changes(body=body)
            )
        if is_lightning(self._source, original_node, "DataModule"):
            return updated_node.with_changes(
                bases=[], lpar=cst.MaybeSentinel.DEFAULT, rpar=cst.MaybeSentinel.DEFAULT
            )
        return updated_node

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        if original_node.name.value != "__init__":
            return updated_node
        calls = [node for node in walk(original_node) if isinstance(node, cst.Call)]
        saved = [call for call in calls if unit_of(call.func) == f"{SELF}.save_hyperparameters"]
        if not saved:
            return updated_node
        # All arguments of __init__ are what a call without names keeps.
        if any(one.args for one in saved) or original_node.params.star_kwarg is not None:
            raise RefusedMethodError(saved[0], "it saves some of the arguments")
        names = [parameter.name.value for parameter in original_node.params.params[1:]]
        line = (
            f"self.hparams = types.SimpleNamespace({', '.join(f'{name}={name}' for name in names)})"
        )
        return updated_node.visit(_Saved(cst.parse_statement(line)))  # type: ignore[return-value]  # a function stays one

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        if self._source.imported(original_node.func).endswith("seed_everything"):
            return updated_node.with_changes(
                # The others seed the workers of loaders, which have no effect on what is drawn in this process.
                func=cst.Name("seed_everything"),
                args=updated_node.args[:1],
            )
        return updated_node

    def on_leave(  # type: ignore[override]  # one method for statements of all types
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> cst.CSTNode | cst.RemovalSentinel | cst.FlattenSentinel[cst.BaseStatement]:
        if original_node in self._replaced and isinstance(original_node, cst.BaseStatement):
            new = self._replaced[original_node]
            return cst.FlattenSentinel(new) if new else cst.RemoveFromParent()
        if isinstance(original_node, cst.SimpleStatementLine):
            small = original_node.body[0]
            if (
                isinstance(small, cst.Import | cst.ImportFrom)
                and "lightning" in self._source.code(small).split()[1]
            ):
                return cst.RemoveFromParent()
        leave = getattr(self, f"leave_{type(original_node).__name__}", None)
        left: cst.CSTNode = (
            leave(original_node, updated_node) if leave is not None else updated_node
        )
        return left

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        text = updated_node.code
        body = list(updated_node.body)
        known = self._source.files[0].imports.values()
        lines = [
            f"import {one}" for one in ("torch", "types") if one not in known and f"{one}." in text
        ]
        seeds = "seed_everything(" in text
        if seeds:
            lines += ["import random", "import numpy as np"]
        new = [cst.parse_statement(line) for line in lines]
        place = behind_imports(body)
        if seeds:
            function = cst.parse_module(_SEEDS).body[0]
            # A function of its own, for programs call it from several places.
            new.append(function.with_changes(leading_lines=[cst.EmptyLine(indent=False)] * 2))
        header = getattr(body[0], "leading_lines", ())
        # The comment at the top of a file stays at its top.
        if new and place == 0 and header:
            new[0] = new[0].with_changes(leading_lines=header)
            body[0] = body[0].with_changes(leading_lines=())
        return updated_node.with_changes(body=[*body[:place], *new, *body[place:]])


_SEEDS: Final = '''\
def seed_everything(seed):
    """Seed all generators."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
'''


class _Saved(cst.CSTTransformer):
    """Writes what ``save_hyperparameters`` keeps."""

    def __init__(self, line: cst.BaseStatement) -> None:
        super().__init__()
        self._line = line

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement:
        return (
            self._line if _logs(original_node, {"save_hyperparameters"}, {SELF}) else updated_node
        )


class _Logs(cst.CSTTransformer):
    """Takes out what only Lightning's log would show."""

    def __init__(self, owners: set[str]) -> None:
        super().__init__()
        self._owners = owners

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.RemovalSentinel:
        return cst.RemoveFromParent() if _logs(original_node, _LOGS, self._owners) else updated_node

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        if updated_node.body:
            return updated_node
        # A block may have had nothing but what it logged.
        return updated_node.with_changes(body=[cst.parse_statement("pass")])


def _logs(
    statement: cst.SimpleStatementLine, names: frozenset[str] | set[str], owners: set[str]
) -> bool:
    small = statement.body[0]
    value = small.value if isinstance(small, cst.Expr) else None
    return (
        isinstance(value, cst.Call)
        and attribute_name(value.func) in names
        and isinstance(value.func, cst.Attribute)
        and unit_of(value.func.value) in owners
    )
