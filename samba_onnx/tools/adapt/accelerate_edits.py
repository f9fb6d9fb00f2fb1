"""Programs on ``accelerate``: its calls are those of a plain loop, which they become."""

from __future__ import annotations

from functools import partial
from typing import Final

import libcst as cst

from samba_onnx.tools.adapt.name_units import argument, unit_of
from samba_onnx.tools.adapt.port import ProgramPort

_CLASSES: Final = frozenset({"accelerate.Accelerator", "accelerate.accelerator.Accelerator"})
_VALUES: Final = {
    "is_main_process": "True",
    "is_local_main_process": "True",
    "is_last_process": "True",
    "sync_gradients": "True",
    "num_processes": "1",
    "process_index": "0",
    "local_process_index": "0",
}
"""What an accelerator says of itself, where there is one process that steps after every batch."""
_FIRST: Final = frozenset(
    {"gather", "gather_for_metrics", "reduce", "unwrap_model", "pad_across_processes"}
)
"""Calls that return their first argument in a single process."""
_NOTHING: Final = frozenset(
    {"wait_for_everyone", "free_memory", "clear", "init_trackers", "log", "end_training"}
)
"""Calls that do nothing in a single process without trackers."""
_OPENED: Final = frozenset(
    {"accumulate", "autocast", "main_process_first", "local_main_process_first"}
)
_STEP: Final = frozenset(
    {"backward", "clip_grad_norm_", "prepare", "prepare_model", "prepare_optimizer"}
)
"""Calls that are parts of a step, or that other edits know."""
_CALLED: Final = frozenset({"print", "save"})
"""Calls that have a name of their own elsewhere."""
_WHAT: Final = "accelerate's calls become those of a plain loop"


class AccelerateEdits:
    """Plans the change of what a program asks of ``accelerate``."""

    def __init__(self, port: ProgramPort) -> None:
        self.port = port
        self.source = port.source

    def plan(self) -> None:
        """Plan all edits."""
        made = [one for one in self.source.calls if self.source.imported(one.func) in _CLASSES]
        if not made:
            return
        for call in made:
            self._made(call)
        for node in self.source.nodes:
            text = self.source.code(node) if isinstance(node, cst.ImportFrom) else ""
            if text.startswith("from accelerate import") and text.endswith("import Accelerator"):
                self.port.edits.remove(self.source.statement(node), "accelerate", _WHAT)
        for node in self.source.nodes:
            if isinstance(node, cst.Attribute) and self._is_accelerator(node.value):
                self._use(node)

    def _is_accelerator(self, node: cst.BaseExpression) -> bool:
        unit = unit_of(node)
        thing = self.port.bindings.resolve(self.source.frame(node), unit) if unit else None
        maker = self.port.bindings.maker(thing) if thing is not None else None
        return maker is not None and self.source.imported(maker.func) in _CLASSES

    def _made(self, call: cst.Call) -> None:
        # Others of the program's functions may be given it still: None is what they do not look at.
        steps = argument(call, "gradient_accumulation_steps")
        if steps is not None and self.source.code(steps.value) != "1":
            self._refuse(
                steps,
                "gradients are summed over several batches by accelerate",
                "write it out: divide the loss, and call step() and zero_grad() every so many batches",
            )
        logged = argument(call, "log_with")
        if logged is not None and self.source.code(logged.value) != "None":
            self._refuse(logged, "accelerate writes a log", "write the log yourself")
        narrow = argument(call, "mixed_precision")
        if narrow is not None:
            self.port.points.add(
                narrow,
                "autocast",
                "what is computed in a narrower type is decided when the program is compiled",
                instead="compile with --precision mixed, or leave it to SambaFlow's default",
                blocks=False,
            )
        none = cst.Name("None")
        self.port.edits.rewrite(call, lambda _: none, "accelerate", _WHAT)

    def _refuse(self, node: cst.CSTNode, why: str, instead: str) -> None:
        self.port.points.add(node, "framework", why, instead=instead)

    def _use(self, node: cst.Attribute) -> None:
        name = node.attr.value
        above = self.source.parent(node)
        call = above if isinstance(above, cst.Call) and above.func is node else None
        statement = self.source.statement(node)
        if name == "device" and call is None:
            torch = self.port.names.module("torch", self.source.file(node))
            self._write(node, f'{torch}.device("cpu")')
        elif name in _VALUES and call is None:
            self._write(node, _VALUES[name])
        elif call is None or name not in {*_FIRST, *_NOTHING, *_OPENED, *_STEP, *_CALLED}:
            self._refuse(
                node,
                f"`{name}` is accelerate's alone",
                "write what it does as a line of a plain loop",
            )
        elif name in _FIRST and call.args:
            self.port.edits.rewrite(call, partial(_argument, 0), "accelerate", _WHAT)
        elif name in _CALLED:
            self._write(node, self._called(name, node))
        elif name in _OPENED and isinstance(statement, cst.With):
            self.port.edits.open(statement, "accelerate", _WHAT)
        elif name in _NOTHING:
            self._remove(statement, call)
        elif name.startswith("prepare"):
            self._prepare(statement, call)

    def _write(self, node: cst.BaseExpression, code: str) -> None:
        self.port.edits.rewrite(node, lambda _: cst.parse_expression(code), "accelerate", _WHAT)

    def _called(self, name: str, node: cst.CSTNode) -> str:
        if name == "save":
            return f"{self.port.names.module('torch', self.source.file(node))}.save"
        return "print"

    def _remove(self, statement: cst.BaseStatement, call: cst.Call) -> None:
        line = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
        if isinstance(line, cst.Expr) and line.value is call:
            self.port.edits.remove(statement, "accelerate", _WHAT)
        else:
            self._refuse(call, "its result is used", "write what it does as a line of a plain loop")

    def _prepare(self, statement: cst.BaseStatement, call: cst.Call) -> None:
        """Write ``a, b = a, b``, or nothing at all, for what is prepared."""
        given = ", ".join(self.source.code(one.value) for one in call.args)
        line = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
        target = line.targets[0].target if isinstance(line, cst.Assign) else None
        names = self.source.code(target).strip("()") if target is not None else ""
        if " ".join(names.split()) == " ".join(given.split()):
            self.port.edits.remove(statement, "accelerate", _WHAT)
        else:
            code = f"({given})" if len(call.args) > 1 else given
            self._write(call, code)


def _argument(index: int, node: cst.BaseExpression) -> cst.BaseExpression:
    assert isinstance(node, cst.Call)
    return node.args[index].value
