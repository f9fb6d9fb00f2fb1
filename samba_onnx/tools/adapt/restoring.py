"""From a SambaFlow program back to plain PyTorch, so that both can be compared, on a GPU for instance."""

from __future__ import annotations

from functools import partial
from typing import Final

import libcst as cst

from samba_onnx.tools.adapt.edits import Edits, add_arguments, drop_arguments
from samba_onnx.tools.adapt.name_units import argument, attribute_name
from samba_onnx.tools.adapt.open_points import OpenPoints
from samba_onnx.tools.adapt.program_imports import Names
from samba_onnx.tools.adapt.source import ProgramFile
from samba_onnx.tools.adapt.source_file import ProgramModule

_PACKAGE: Final = "sambaflow."
_SILENT: Final = frozenset(
    {
        "sambaflow.samba.from_torch_model_",
        "sambaflow.samba.from_torch_",
        "sambaflow.samba.session.to_cpu",
        "sambaflow.samba.session.to_rdu",
    }
)
"""Calls that only move or name what the plain program has anyway."""
_SAME: Final = frozenset(
    {"sambaflow.samba.to_torch", "sambaflow.samba.from_torch_tensor", "sambaflow.samba.from_torch"}
)
"""Calls that return their first argument in another coat."""
_MADE: Final = frozenset(
    {f"sambaflow.samba.{name}" for name in ("randn", "rand", "randint", "zeros", "ones", "full")}
)
"""Functions that torch has under the same name."""
_DEFAULTS: Final = {
    "SGD": {"lr": "1e-3"},
    "Adam": {"betas": "(0.9, 0.997)"},
    "AdamW": {"betas": "(0.9, 0.997)", "weight_decay": "0"},
}
"""Defaults of SambaFlow's optimizers that are not torch's."""
_RUN: Final = frozenset({"input_tensors", "output_tensors", "hyperparam_dict", "section_types"})
_RUN_STEP: Final = '''
def run_step(module, optimizer, inputs=(), sections=None, lr=None):
    """Compute what one run on the RDU computes: forward pass, gradients and step; return the outputs."""
    sections = [name.upper() for name in sections or ("ZEROGRAD", "FWD", "BCKWD", "OPT")]
    optimizers = optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]
    outputs = ()
    for one in optimizers:
        if "ZEROGRAD" in sections or {"BCKWD", "OPT"} <= set(sections):
            one.zero_grad()
        if lr is not None:
            for group in one.param_groups:
                group["lr"] = lr
    if "FWD" in sections:
        outputs = module(**inputs) if isinstance(inputs, dict) else module(*inputs)
        outputs = outputs if isinstance(outputs, (list, tuple)) else (outputs,)
    if "BCKWD" in sections:
        outputs[0].backward()
    if "OPT" in sections:
        limit = getattr(optimizers[0], "max_grad_norm", None)
        if limit is not None:
            groups = [group for one in optimizers for group in one.param_groups]
            torch.nn.utils.clip_grad_norm_([p for group in groups for p in group["params"]], limit)
        for one in optimizers:
            one.step()
    return tuple(one.detach() for one in outputs)
'''
_PARSE: Final = '''
def parse_arguments(*functions, argv=None):
    """Parse the command line, whose arguments are added by functions."""
    parser = argparse.ArgumentParser()
    for function in functions:
        function(parser)
    return parser.parse_args(argv)
'''


class Restoring:
    """Plans all edits that make a SambaFlow program one of plain PyTorch."""

    def __init__(self, source: ProgramFile) -> None:
        self.source = source
        self.edits = Edits(source)
        self.points = OpenPoints(source)
        self.names = Names(source)
        self._new: dict[ProgramModule, list[str]] = {}

    def plan(self) -> None:
        """Plan all edits."""
        for node in self.source.nodes:
            if isinstance(node, cst.If):
                self._branch(node)
        # Behind the branches: calls of one that is gone need no way back.
        for node in self.source.nodes:
            if isinstance(node, cst.Call) and not self.edits.is_gone(node):
                self._call(node, self.source.imported(node.func))
        for node in self.source.nodes:
            if isinstance(node, cst.AssignTarget) and not self.edits.is_gone(node):
                self._assignment(node)
        self._refuse_rest()
        for file in self.source.files:
            self._imports(file)

    def _branch(self, node: cst.If) -> None:
        """Leave of a choice between compiling and running what runs."""
        if self._asks(node.test, "run") and node.orelse is None:
            if isinstance(node.body, cst.IndentedBlock):
                self.edits.lift(node, node.body, "compile", "the program only runs")
            return
        if not self._asks(node.test, "compile"):
            return
        what = "there is nothing to compile"
        orelse = node.orelse
        if orelse is None:
            self.edits.remove(node, "compile", what)
        elif isinstance(orelse, cst.Else) and isinstance(orelse.body, cst.IndentedBlock):
            self.edits.lift(node, orelse.body, "compile", what)
        elif isinstance(orelse, cst.If) and isinstance(orelse.body, cst.IndentedBlock):
            if orelse.orelse is not None:
                self._refuse(node, "commands", "keep the branch that runs, and no other")
            self.edits.lift(node, orelse.body, "compile", what)

    def _asks(self, test: cst.BaseExpression, command: str) -> bool:
        if not isinstance(test, cst.Comparison) or attribute_name(test.left) != "command":
            return False
        return f"{command}" in self.source.code(test.comparisons[0].comparator).strip("'\"")

    def _call(self, call: cst.Call, name: str) -> None:
        statement = self.source.statement(call)
        if name in _SAME and call.args:
            self._same(statement, call)
        elif name in _MADE:
            torch = self.names.module("torch", self.source.file(call))
            code = f"{torch}.{name.rpartition('.')[2]}"
            self.edits.rewrite(call, partial(_made, code), "tensor", "tensors are torch's own")
        elif name in _SILENT:
            self._silent(statement, call)
        elif name.startswith("sambaflow.samba.optim."):
            self._optimizer(call, name.rpartition(".")[2])
        elif name == "sambaflow.samba.utils.trace_graph":
            self._trace(statement, call)
        elif name == "sambaflow.samba.session.run":
            self._run(call)
        elif name.endswith("argparser.parse_app_args"):
            self._parse(call)

    def _same(self, statement: cst.BaseStatement, call: cst.Call) -> None:
        # Of `loss = samba.to_torch(loss)`, also for several at once, nothing is left.
        line = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
        if isinstance(line, cst.Assign) and len(line.targets) == 1:
            values = line.value.elements if isinstance(line.value, cst.Tuple) else [line.value]
            texts = [
                self._bare(value.value if isinstance(value, cst.Element) else value)
                for value in values
            ]
            if ", ".join(texts) == self.source.code(line.targets[0].target):
                self.edits.remove(statement, "tensor", "tensors are torch's own")
                return
        self.edits.rewrite(call, _first, "tensor", "tensors are torch's own")

    def _bare(self, value: cst.CSTNode) -> str:
        if isinstance(value, cst.Call) and self.source.imported(value.func) in _SAME and value.args:
            value = value.args[0].value
        return self.source.code(value)

    def _silent(self, statement: cst.BaseStatement, call: cst.Call) -> None:
        line = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
        if isinstance(line, cst.Expr) and line.value is call:
            self.edits.remove(statement, "weights", "weights are where torch keeps them")

    def _optimizer(self, call: cst.Call, kind: str) -> None:
        if kind not in _DEFAULTS:
            self._refuse(
                call, f"an optimizer `{kind}`", f"write the optimizer of torch that {kind} is"
            )
            return
        limit = argument(call, "max_grad_norm")
        added = {
            name: value
            for name, value in _DEFAULTS[kind].items()
            if argument(call, name, {"lr": 1, "betas": 2}.get(name)) is None
        }
        torch = self.names.module("torch", self.source.file(call))

        def rewrite(node: cst.BaseExpression) -> cst.BaseExpression:
            assert isinstance(node, cst.Call)
            changed = drop_arguments(node, frozenset({"max_grad_norm"}))
            changed = changed.with_changes(func=cst.parse_expression(f"{torch}.optim.{kind}"))
            return add_arguments(changed, **added) if added else changed

        self.edits.rewrite(
            call, rewrite, "optimizer", "torch's optimizer, with all defaults stated"
        )
        statement = self.source.statement(call)
        line = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
        if limit is not None and isinstance(line, cst.Assign):
            target = self.source.code(line.targets[0].target)
            code = f"{target}.max_grad_norm = {self.source.code(limit.value)}"
            self.edits.insert_after(statement, code, "clipping", "the step clips by this norm")
        elif limit is not None:
            self._refuse(call, "max_grad_norm", "keep the optimizer in a variable")

    def _trace(self, statement: cst.BaseStatement, call: cst.Call) -> None:
        module = argument(call, "model", 0)
        optimizer = argument(call, "optim", 2)
        if module is None or optimizer is None or self.source.code(optimizer.value) == "None":
            self._refuse(
                call, "a graph without an optimizer", "call the module itself where it runs"
            )
            return
        given = f"{self.source.code(module.value)}, {self.source.code(optimizer.value)}"
        file = self.source.file(call)
        partial_name = f"{self.names.module('functools', file)}.partial"
        code = f"{self.source.code(module.value)}.run_step = {partial_name}(run_step, {given})"
        self.names.module("torch", file)
        self.edits.replace(
            statement, [code], "trace", "a step is a function of module and optimizer"
        )
        self._new.setdefault(file, []).append(_RUN_STEP)

    def _assignment(self, node: cst.AssignTarget) -> None:
        """Write ``model.run_step = other.run_step`` for the outputs that are handed on."""
        above = self.source.parent(node)
        value = above.value if isinstance(above, cst.Assign) else None
        names = {attribute_name(node.target), attribute_name(value) if value is not None else ""}
        if names == {"output_tensors"} and value is not None:
            for one in (node.target, value):
                self.edits.rewrite(one, _run_step, "trace", "the step is handed on")

    def _run(self, call: cst.Call) -> None:
        outputs = argument(call, "output_tensors", 1)
        inputs = argument(call, "input_tensors", 0)
        unknown = [one for one in call.args if one.keyword and one.keyword.value not in _RUN]
        owner: cst.BaseExpression | None = (
            outputs.value if outputs is not None else self._traced(call)
        )
        is_all = outputs is None or attribute_name(outputs.value) == "output_tensors"
        if unknown or not is_all:
            self._refuse(call, "this run", "run all outputs of a model, without further arguments")
            return
        if owner is None:
            self._refuse(call, "a run without outputs", "say output_tensors=model.output_tensors")
            return
        rates = argument(call, "hyperparam_dict")
        sections = argument(call, "section_types")
        parts = [] if inputs is None else [self.source.code(inputs.value)]
        parts += [] if sections is None else [f"sections={self.source.code(sections.value)}"]
        parts += [] if rates is None else [f'lr=({self.source.code(rates.value)}).get("lr")']
        code = f"{self._owner_text(owner)}.run_step({', '.join(parts)})"
        self.edits.rewrite(
            call,
            partial(_written, code),
            "run",
            "the step is computed here: forward pass, gradients, step",
        )

    def _owner_text(self, owner: cst.BaseExpression) -> str:
        inner = (
            owner.value
            if attribute_name(owner) == "output_tensors" and isinstance(owner, cst.Attribute)
            else owner
        )
        return self.source.code(inner)

    def _traced(self, call: cst.Call) -> cst.BaseExpression | None:
        """Return the model of the other runs in the same function, for a run of sections alone."""
        frame = self.source.frame(call)
        for one in self.source.calls:
            if (
                self.source.imported(one.func) == "sambaflow.samba.session.run"
                and self.source.frame(one) is frame
            ):
                outputs = argument(one, "output_tensors", 1)
                if outputs is not None:
                    return outputs.value
        return next(
            (
                found.value
                for one in self.source.calls
                if self.source.imported(one.func) == "sambaflow.samba.utils.trace_graph"
                and self.source.frame(one) is frame
                for found in [argument(one, "model", 0)]
                if found is not None
            ),
            None,
        )

    def _parse(self, call: cst.Call) -> None:
        functions = []
        argv = ""
        for place, one in enumerate(call.args):
            name = one.keyword.value if one.keyword is not None else ("argv" if place == 0 else "")
            if name.endswith("_fn") and name not in {"compile_parser_fn"}:
                functions.append(self.source.code(one.value))
            elif name == "argv":
                argv = f"argv={self.source.code(one.value)}"
        file = self.source.file(call)
        self.names.module("argparse", file)
        code = f"parse_arguments({', '.join(filter(None, [*dict.fromkeys(functions), argv]))})"
        self.edits.rewrite(call, partial(_written, code), "command-line", "argparse alone")
        self._new.setdefault(file, []).append(_PARSE)

    def _refuse(self, node: cst.CSTNode, what: str, instead: str) -> None:
        why = f"{what} has no counterpart in a plain program"
        self.points.add(node, "sambaflow-only", why, instead=instead)

    def _refuse_rest(self) -> None:
        """Refuse every use of SambaFlow that no edit takes away."""
        for node in self.source.nodes:
            if not isinstance(node, cst.Name | cst.Attribute) or self.edits.is_gone(node):
                continue
            name = self.source.imported(node)
            above = self.source.parent(node)
            if not name.startswith(_PACKAGE) or isinstance(above, cst.Attribute | cst.ImportAlias):
                continue
            if not any(
                one in self.edits.expressions for one in self.source.enclosing(node)
            ) and not any(
                isinstance(one, cst.Import | cst.ImportFrom) for one in self.source.enclosing(node)
            ):
                self._refuse(
                    node, f"`{name.removeprefix(_PACKAGE)}`", "write what it does in torch"
                )

    def _imports(self, file: ProgramModule) -> None:
        new = dict.fromkeys(self._new.get(file, ()))
        for statement in file.module.body:
            line = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
            if (
                isinstance(line, cst.Import | cst.ImportFrom)
                and " sambaflow" in f" {file.module.code_for_node(line)}"
            ):
                self.edits.remove(statement, "imports", "SambaFlow is not imported")
        self.names.after_imports[file] += [*new, *([""] if new else [])]


def _first(node: cst.BaseExpression) -> cst.BaseExpression:
    assert isinstance(node, cst.Call)
    return node.args[0].value


def _made(code: str, node: cst.BaseExpression) -> cst.BaseExpression:
    assert isinstance(node, cst.Call)
    changed = drop_arguments(node, frozenset({"name", "batch_dim"}))
    return changed.with_changes(func=cst.parse_expression(code))


def _run_step(node: cst.BaseExpression) -> cst.BaseExpression:
    assert isinstance(node, cst.Attribute)
    return node.with_changes(attr=cst.Name("run_step"))


def _written(code: str, _: cst.BaseExpression) -> cst.BaseExpression:
    return cst.parse_expression(code)


def uses_sambaflow(source: ProgramFile) -> bool:
    """Whether a program imports SambaFlow, or this product under its names."""
    for node in source.nodes:
        if isinstance(node, cst.Import | cst.ImportFrom):
            words = source.code(node).replace(",", " ").split()
            if any(word.partition(".")[0] in {"sambaflow", "samba_onnx"} for word in words[1:]):
                return True
    return False
