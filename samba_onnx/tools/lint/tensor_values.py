"""Which expressions of a traced function hold values of tensors, and which only their shapes.

The function is walked once in the order of its statements, loops twice. What cannot be known from
the text counts as no tensor: a finding that is missing costs less than one that is wrong.
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Mapping, Sequence
from typing import Final

from samba_onnx.tools.lint.names import words
from samba_onnx.tools.lint.source import Function, SourceFile


class Holding(enum.Enum):
    """What an expression holds."""

    OTHER = "other"
    """A number, a flag, a shape, a module, or something unknown."""
    TENSOR = "tensor"
    """A tensor whose values are those of a run, or a number that was taken out of one."""
    CONTAINER = "container"
    """A tuple, list or dictionary with such tensors in it."""


ABOUT_TENSORS: Final = words(
    "shape dtype device ndim layout is_cuda requires_grad is_leaf names name itemsize nbytes "
    "sn_name sn_region_name grad_fn size dim numel nelement ndimension stride element_size "
    "is_floating_point is_complex is_contiguous get_device storage_offset dim_order"
)
"""Attributes and methods that tell of a tensor what is the same in every run."""

_ABOUT: Final = words(
    "is_tensor is_floating_point is_complex finfo iinfo device Size is_grad_enabled numel "
    "zeros_like ones_like full_like empty_like get_default_dtype promote_types"
)
"""Functions of torch whose results are the same in every run, whatever tensors they are given."""

_CONTAINER_METHODS: Final = frozenset({"items", "values"})
_PLAIN_BUILTINS: Final = words(
    "len isinstance hasattr type id callable issubclass range print repr str getattr"
)
_COLLECTIONS: Final = words("list tuple enumerate zip reversed dict set map filter")
_PLAIN_TYPES: Final = frozenset({"int", "float", "bool", "str", "bytes", "Callable", "Module"})


def parameter_kinds(source: SourceFile, function: Function) -> dict[str, Holding]:
    """Return what the parameters of a ``forward`` hold, as far as its text tells.

    A parameter is a tensor by its annotation, or without one where the function treats it as one:
    asks for its shape, calls a tensor's method, or gives it to a layer or function of torch first.

    Args:
        source: The file.
        function: The method; its first parameter is the module.
    """
    arguments = function.args
    # The first parameter is the module.
    named = [*arguments.posonlyargs, *arguments.args][1:]
    # Defaults belong to the last positional parameters; missing ones are filled in before.
    defaults: Sequence[ast.expr | None] = [
        *([None] * (len(named) - len(arguments.defaults))),
        *arguments.defaults[-len(named) or None :],
        *arguments.kw_defaults,
    ]
    used = _treated_as_tensors(source, function)
    kinds = {
        item.arg: _parameter_kind(item, default, used)
        for item, default in zip([*named, *arguments.kwonlyargs], defaults, strict=True)
    }
    if arguments.vararg is not None:
        # Whatever is given beyond the parameters of a module is mostly tensors.
        kinds[arguments.vararg.arg] = Holding.CONTAINER
    return kinds


def _parameter_kind(item: ast.arg, default: ast.expr | None, used: frozenset[str]) -> Holding:
    if item.annotation is not None:
        words = {
            part.id if isinstance(part, ast.Name) else part.attr
            for part in ast.walk(_unquoted(item.annotation))
            if isinstance(part, ast.Name | ast.Attribute)
        }
        # By the end of the name, so that SambaTensor, LongTensor and a type of the program's own
        # count too.
        if not any(word.endswith("Tensor") for word in words):
            # An annotation without a tensor, as an unknown name, decides nothing if the parameter
            # is used as one.
            return Holding.OTHER if words & _PLAIN_TYPES or item.arg not in used else Holding.TENSOR
        grouped = words & {"list", "tuple", "dict", "List", "Tuple", "Dict", "Sequence", "Mapping"}
        return Holding.CONTAINER if grouped else Holding.TENSOR
    # A default of a number, text or flag says that it is no tensor; None says nothing.
    if isinstance(default, ast.Constant) and default.value is not None:
        return Holding.OTHER
    return Holding.TENSOR if item.arg in used else Holding.OTHER


def _unquoted(annotation: ast.expr) -> ast.expr:
    """Return an annotation, parsed where it is written as a string."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return ast.parse(annotation.value, mode="eval").body
        except SyntaxError:
            return annotation
    return annotation


def _treated_as_tensors(source: SourceFile, function: Function) -> frozenset[str]:
    names: set[str] = set()
    for node in ast.walk(function):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if (
                attribute in ABOUT_TENSORS or attribute in _TENSOR_METHODS
            ):
                names.add(name)
            case ast.Call(func=called, args=[ast.Name(id=name), *_]) if _is_layer(source, called):
                names.add(name)
    return frozenset(names)


_TENSOR_METHODS: Final = words(
    "view reshape permute transpose flatten unsqueeze squeeze contiguous float bfloat16 long to "
    "sum mean abs relu sigmoid tanh softmax masked_fill expand repeat chunk split detach clone "
    "item tolist numpy cpu max min argmax"
)


def _is_layer(source: SourceFile, called: ast.expr) -> bool:
    if source.names.dotted(called).startswith(("torch.", "samba.")):
        return True
    # `self.layers[0](x)` is no attribute, and is left out; `self.block.attention(x)` is followed to
    # its root.
    while isinstance(called, ast.Attribute):
        called = called.value
    return isinstance(called, ast.Name) and called.id == "self"


class TensorValues:
    """What every expression of one traced function holds."""

    def __init__(
        self,
        source: SourceFile,
        function: Function,
        parameters: Mapping[str, Holding],
        attributes: frozenset[str],
    ) -> None:
        """Walk the function.

        ``parameters`` says what its parameters hold; ``attributes`` of ``self`` hold parameters or
        buffers.
        """
        self._source = source
        self._names = dict(parameters)
        self._attributes = attributes
        self._kinds: dict[ast.AST, Holding] = {}
        self._walk(function.body)

    def kind(self, node: ast.AST) -> Holding:
        """Return what an expression of the function holds."""
        return self._kinds.get(node, Holding.OTHER)

    def is_tensor(self, node: ast.AST) -> bool:
        """Whether an expression is a tensor, or a number taken out of one."""
        return self.kind(node) is Holding.TENSOR

    def kinds_of_arguments(self, call: ast.Call, callee: Function) -> dict[str, Holding]:
        """Return what a call gives to the parameters of a function of the same file."""
        names = [item.arg for item in (*callee.args.posonlyargs, *callee.args.args)]
        # By the usual names, for a static method has neither.
        if isinstance(call.func, ast.Attribute) and names and names[0] in {"self", "cls"}:
            names = names[1:]
        kinds = {
            name: self.kind(value)
            for name, value in zip(names, call.args, strict=False)
            if not isinstance(value, ast.Starred)
        }
        kinds |= {item.arg: self.kind(item.value) for item in call.keywords if item.arg}
        return kinds

    def _walk(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                kind = self._visit(value)
                for target in targets:
                    self._bind(target, kind, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._bind(target, self._visit(value), value)
            case ast.AugAssign(target=target, value=value):
                self._bind(target, _joined(self._visit(target), self._visit(value)))
            case ast.For(target=target, iter=iterated) | ast.AsyncFor(target=target, iter=iterated):
                self._loop(target, iterated, node)
            # A function inside reads the names around it, and is executed while tracing too.
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._walk(node.body)
            case _:
                self._parts(node)

    def _loop(self, target: ast.expr, iterated: ast.expr, node: ast.For | ast.AsyncFor) -> None:
        kind = self._visit(iterated)
        # What a container holds is tensors, and so are slices of a tensor.
        inner = Holding.OTHER if kind is Holding.OTHER else Holding.TENSOR
        counted = isinstance(iterated, ast.Call) and _called_name(iterated) == "enumerate"
        for _ in range(2):  # what an iteration leaves in a name, the next one reads
            self._bind(target, inner)
            # The first of each pair is a number.
            if counted and isinstance(target, ast.Tuple) and target.elts:
                self._bind(target.elts[0], Holding.OTHER)
            self._walk(node.body)
        self._walk(node.orelse)

    def _parts(self, node: ast.AST) -> None:
        """Walk expressions and statements of a node in their order."""
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.stmt):
                self._statement(part)
            elif isinstance(part, ast.expr):
                self._visit(part)
            # Clauses such as those of `with` or `match`, whose expressions lie deeper.
            else:
                self._parts(part)

    def _bind(self, target: ast.expr, kind: Holding, value: ast.expr | None = None) -> None:
        match target:
            case ast.Name(id=name):
                self._names[name] = kind
            case ast.Starred(value=inner):
                self._bind(inner, Holding.OTHER if kind is Holding.OTHER else Holding.CONTAINER)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                values = value.elts if isinstance(value, ast.Tuple | ast.List) else []
                # Behind the first value of a function of this file, nothing is known to be a
                # tensor.
                first = 1 if self._is_of_this_file(value) else len(targets)
                for index, item in enumerate(targets):
                    if index >= first:
                        kind = Holding.OTHER
                    # Values that are written out are told apart; those of a call hold what the call
                    # holds.
                    own = self.kind(values[index]) if len(values) == len(targets) else None
                    whole = Holding.OTHER if kind is Holding.OTHER else Holding.TENSOR
                    self._bind(item, own if own is not None else whole)
            case ast.Attribute() | ast.Subscript():
                self._visit(target)

    def _is_of_this_file(self, value: ast.expr | None) -> bool:
        """Whether a value is what a function or method of this file returns.

        Such a function often returns a tensor first, and sizes that it computed behind it.
        """
        if not isinstance(value, ast.Call):
            return False
        own = isinstance(value.func, ast.Name) or (
            isinstance(value.func, ast.Attribute)
            and isinstance(value.func.value, ast.Name)
            and value.func.value.id == "self"
        )
        return own and any(item.name == _called_name(value) for item in self._source.functions)

    def _visit(self, node: ast.expr) -> Holding:
        kind = self._kinds[node] = self._kind(node)
        return kind

    def _kind(self, node: ast.expr) -> Holding:
        match node:
            case ast.Name(id=name):
                return self._names.get(name, Holding.OTHER)
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                return Holding.TENSOR if name in self._attributes else Holding.OTHER
            case ast.Attribute(value=value, attr=name):
                kind = self._visit(value)
                # A shape or type of a tensor is the same in every run.
                return Holding.OTHER if _is_about(name) else kind
            case ast.Subscript(value=value, slice=index):
                self._visit(index)
                return Holding.OTHER if self._visit(value) is Holding.OTHER else Holding.TENSOR
            case ast.Call():
                return self._call(node)
            case ast.NamedExpr(target=target, value=value):
                kind = self._visit(value)
                self._bind(target, kind)
                return kind
            case ast.Compare(left=left, ops=operators, comparators=others):
                kinds = [self._visit(item) for item in (left, *others)]
                # `x is None` and `key in dict` do not look at values.
                by_identity = (ast.Is, ast.IsNot, ast.In, ast.NotIn)
                if any(isinstance(operator, by_identity) for operator in operators):
                    return Holding.OTHER
                return Holding.TENSOR if Holding.TENSOR in kinds else Holding.OTHER
            case ast.IfExp(test=test, body=body, orelse=other):
                self._visit(test)
                return _joined(self._visit(body), self._visit(other))
            case ast.BoolOp() | ast.BinOp() | ast.UnaryOp():
                return _joined(*(self._visit(part) for part in _expressions(node)))
        return self._collection(node)

    def _collection(self, node: ast.expr) -> Holding:
        """Return what a display or comprehension holds."""
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            for clause in node.generators:
                kind = self._visit(clause.iter)
                self._bind(
                    clause.target, Holding.OTHER if kind is Holding.OTHER else Holding.TENSOR
                )
                for test in clause.ifs:
                    self._visit(test)
            # Only now, since the parts read the names that the clauses bind.
            self._kinds.update({part: self._kind(part) for part in _expressions(node)})
        elif not isinstance(node, ast.Lambda):
            for part in _expressions(node):
                self._visit(part)
        held = any(self.kind(part) is not Holding.OTHER for part in _expressions(node))
        if isinstance(node, ast.JoinedStr | ast.FormattedValue | ast.Lambda) or not held:
            return Holding.OTHER
        return Holding.CONTAINER

    def _call(self, node: ast.Call) -> Holding:
        called = node.func
        owner = self._visit(called.value) if isinstance(called, ast.Attribute) else Holding.OTHER
        kinds = [self._visit(item) for item in node.args]
        kinds += [self._visit(item.value) for item in node.keywords]
        given = any(kind is not Holding.OTHER for kind in kinds)
        name = _called_name(node)
        if isinstance(called, ast.Attribute) and owner is not Holding.OTHER:
            if _is_about(name) or name in {"keys", "index"}:
                return Holding.OTHER
            # Any other method of a tensor returns tensors.
            return Holding.CONTAINER if name in _CONTAINER_METHODS else Holding.TENSOR
        dotted = self._source.names.dotted(called)
        if isinstance(called, ast.Name) and not dotted:
            if name in _PLAIN_BUILTINS or not given:
                return Holding.OTHER
            return Holding.CONTAINER if name in _COLLECTIONS else Holding.TENSOR
        # Factories like `zeros_like` take a tensor for its shape only.
        if dotted.startswith(("torch.", "samba.")) and (name in _ABOUT or _is_about(name)):
            return Holding.OTHER
        if dotted.startswith("torch.overrides."):
            return Holding.OTHER
        # Results of unknown functions of tensors are tensors, as those of layers are.
        return Holding.TENSOR if given else Holding.OTHER


def _is_about(name: str) -> bool:
    """Whether an attribute, method or function tells of a tensor what is the same in every run."""
    # All that begins so asks for a property, except `is_nonzero`, which reads the value.
    return name in ABOUT_TENSORS or (name.startswith("is_") and name != "is_nonzero")


def _called_name(node: ast.Call) -> str:
    match node.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _expressions(node: ast.AST) -> list[ast.expr]:
    """Return the expressions that an expression is made of."""
    return [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]


def _joined(*kinds: Holding) -> Holding:
    for kind in (Holding.TENSOR, Holding.CONTAINER):
        if kind in kinds:
            return kind
    return Holding.OTHER
