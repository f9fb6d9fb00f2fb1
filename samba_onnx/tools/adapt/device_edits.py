"""Calls that place tensors and modules on a GPU, or speak to one: an RDU needs none of them."""

from __future__ import annotations

import libcst as cst

from samba_onnx.tools.adapt.bindings import _WRAPPERS
from samba_onnx.tools.adapt.edits import drop_arguments
from samba_onnx.tools.adapt.name_units import attribute_name, root_unit, unit_of, walk
from samba_onnx.tools.adapt.port import ProgramPort

_AUTOCASTS = frozenset(
    {
        "torch.autocast",
        "torch.amp.autocast",
        "torch.cuda.amp.autocast",
        "torch.amp.autocast_mode.autocast",
    }
)
_SPEECH = (
    "torch.cuda.",
    "torch.backends.cudnn.",
    "torch.backends.cuda.",
    "torch.set_float32_matmul_precision",
)
_LOADER = "torch.utils.data.DataLoader"
_REMOVED = "tensors and modules stay where SambaFlow keeps them"


class DeviceEdits:
    """Plans the removal of what is about a GPU."""

    def __init__(self, port: ProgramPort) -> None:
        self.port = port
        self.source = port.source

    def plan(self) -> None:
        """Plan all edits."""
        # Expressions before statements: a statement is gone if nothing is left of its expression.
        for node in self.source.nodes:
            if isinstance(node, cst.Call):
                self._call(node)
            elif isinstance(node, cst.IfExp):
                self._choice(node)
        for node in self.source.nodes:
            if isinstance(node, cst.SimpleStatementLine):
                self._statement(node)
            elif isinstance(node, cst.With):
                self._with(node)

    # Expressions.

    def _call(self, node: cst.Call) -> None:
        # Functions by the module that they come from, methods by their names.
        name = attribute_name(node.func)
        imported = self.source.imported(node.func)
        if imported == "torch.device" and "cuda" in self.source.code(node):
            self._rewrite(
                node,
                lambda one: cst.parse_expression(_device_text(one)),
                "the host's memory is the place",
            )
        elif imported in _WRAPPERS and node.args:
            self._rewrite(node, _first, "replicas and compilation are SambaFlow's")
        elif imported == _LOADER:
            self._loader(node)
        elif isinstance(node.func, cst.Attribute) and not imported:
            if (
                (name == "to" and node.args and all(map(self._is_placing, node.args)))
                or name == "cuda"
                or (name == "cpu" and not node.args and not self._is_of_model(node))
            ):
                self._rewrite(node, _owner, _REMOVED)
            elif name == "to" and any(self._is_placing(argument) for argument in node.args):
                self._rewrite(node, self._without_place, _REMOVED)

    def _is_of_model(self, node: cst.Call) -> bool:
        """Whether a call is of something that is trained, whose weights are on the device."""
        resolve = self.port.bindings.resolve
        owner = resolve(self.source.frame(node), root_unit(node))
        return any(owner in optimizer.models for optimizer in self.port.search.optimizers)

    def _rewrite(self, node: cst.Call, rewrite: object, what: str) -> None:
        assert callable(rewrite)
        self.port.edits.rewrite(node, rewrite, "device", what)

    def _without_place(self, node: cst.BaseExpression) -> cst.BaseExpression:
        assert isinstance(node, cst.Call)
        kept = [argument for argument in node.args if not self._is_placing(argument)]
        kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return node.with_changes(args=kept)

    def _is_placing(self, one: cst.Arg) -> bool:
        """Whether an argument of ``to`` says where, rather than in which type."""
        if one.keyword is not None:
            return one.keyword.value in {"device", "non_blocking", "memory_format"}
        return self.is_device(one.value)

    def is_device(self, value: cst.BaseExpression) -> bool:
        """Whether an expression is a device."""
        # By convention where the text does not say: nobody calls a type `device`.
        code = self.source.code(value)
        last = code.rpartition(".")[2].strip("()")
        if last in {"device", "dev", "gpu", "rank", "local_rank", "device_id", "gpu_id", "DEVICE"}:
            return True
        if isinstance(value, cst.SimpleString):
            return code.strip("'\"").partition(":")[0] in {"cuda", "cpu", "mps"}
        if isinstance(value, cst.Integer):
            return True
        if isinstance(value, cst.Call):
            return self.source.imported(value.func) == "torch.device"
        unit = unit_of(value)
        if not unit:
            return False
        thing = self.port.bindings.resolve(self.source.frame(value), unit)
        made = self.port.bindings.assignments(thing)
        return any("cuda" in self.source.code(one.value) for one in made)

    def _choice(self, node: cst.IfExp) -> None:
        """Rewrite ``"cuda" if torch.cuda.is_available() else "cpu"``."""
        # Inside of torch.device(...), the whole call is rewritten.
        values = {
            self.source.code(one).strip("'\"").partition(":")[0] for one in (node.body, node.orelse)
        }
        inside = any(
            isinstance(one, cst.Call) and one in self.port.edits.expressions
            for one in self.source.enclosing(node)
        )
        if "cuda" in values and values <= {"cuda", "cpu", "mps"} and not inside:
            self.port.edits.rewrite(
                node,
                lambda _: cst.parse_expression('"cpu"'),
                "device",
                "the host's memory is the place",
            )

    def _loader(self, node: cst.Call) -> None:
        names = frozenset({"pin_memory", "pin_memory_device"})
        if any(
            argument.keyword is not None and argument.keyword.value in names
            for argument in node.args
        ):
            self._rewrite(
                node, lambda one: drop_arguments(one, names), "no memory is pinned for a GPU"
            )

    # Statements.

    def _statement(self, statement: cst.SimpleStatementLine) -> None:
        small = statement.body[0]
        if len(statement.body) != 1 or not isinstance(small, cst.Expr | cst.Assign):
            return
        if self._is_speech(small) or self._is_placement(small):
            self.port.edits.remove(statement, "device", _REMOVED)

    def _is_speech(self, small: cst.Expr | cst.Assign) -> bool:
        subject = small.value if isinstance(small, cst.Expr) else small.targets[0].target
        inner = subject.func if isinstance(subject, cst.Call) else subject
        return self.source.imported(inner).startswith(_SPEECH)

    def _is_placement(self, small: cst.Expr | cst.Assign) -> bool:
        """Whether nothing is left of a statement without the calls that place something."""
        # `x = x.to(device)`, and the same of several.
        if not any(node in self.port.edits.expressions for node in walk(small.value)):
            return False
        rest = self._bare(small.value)
        if isinstance(small, cst.Expr):
            return isinstance(small.value, cst.Call) and bool(rest) and "(" not in rest
        targets = self.source.code(small.targets[0].target).strip("()")
        return len(small.targets) == 1 and rest == targets.replace(" ", "")

    def _bare(self, value: cst.BaseExpression) -> str:
        if isinstance(value, cst.Tuple):
            return ",".join(self._bare(element.value) for element in value.elements)
        while isinstance(value, cst.Call) and value in self.port.edits.expressions:
            is_method = isinstance(value.func, cst.Attribute) and not self.source.imported(
                value.func
            )
            if not is_method and not value.args:
                break  # `Accelerator()`
            value = (
                value.func.value
                if is_method and isinstance(value.func, cst.Attribute)
                else value.args[0].value
            )
        return self.source.code(value).strip("()").replace(" ", "")

    def _with(self, statement: cst.With) -> None:
        # With several items, one of which is autocast, the type stays what the program says.
        if len(statement.items) != 1 or not isinstance(statement.items[0].item, cst.Call):
            return
        if self.source.imported(statement.items[0].item.func) in _AUTOCASTS:
            self.port.edits.open(
                statement, "autocast", "the type of arithmetic is compiled: --precision mixed"
            )
            self.port.points.add(
                statement.items[0].item,
                "autocast",
                "what is computed in a narrower type is decided when the program is compiled",
                instead="compile with --precision mixed, or leave it to SambaFlow's default",
                blocks=False,
            )


def _owner(node: cst.BaseExpression) -> cst.BaseExpression:
    """Return what a method is called on."""
    assert isinstance(node, cst.Call)
    assert isinstance(node.func, cst.Attribute)
    return node.func.value.with_changes(
        lpar=[*node.lpar, *node.func.value.lpar], rpar=[*node.func.value.rpar, *node.rpar]
    )


def _first(node: cst.BaseExpression) -> cst.BaseExpression:
    assert isinstance(node, cst.Call)
    return node.args[0].value


def _device_text(node: cst.BaseExpression) -> str:
    assert isinstance(node, cst.Call)
    return f'{cst.Module(body=[]).code_for_node(node.func)}("cpu")'
