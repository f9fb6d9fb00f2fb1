"""Programs that only infer: the call of their model, on a line of its own, and what belongs to it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import libcst as cst

from samba_onnx.tools.adapt.bindings import Thing
from samba_onnx.tools.adapt.graph_code import plain_name
from samba_onnx.tools.adapt.modes import asks_for_mode, mode_of
from samba_onnx.tools.adapt.name_units import attribute_name, reads, unit_of, walk, writes
from samba_onnx.tools.adapt.plain_form import PlainForm
from samba_onnx.tools.adapt.port import ProgramPort
from samba_onnx.tools.adapt.roles import Role, StepPart
from samba_onnx.tools.adapt.slice_values import Input, SliceValues
from samba_onnx.tools.adapt.slicing import Slice
from samba_onnx.tools.adapt.source import Frame
from samba_onnx.tools.adapt.trained_step import TrainedStep

_MAKERS: Final = (
    "torch.nn.",
    "torchvision.models.",
    "timm.create_model",
    "torch.hub.load",
    "torch.load",
)
_PRETRAINED: Final = frozenset({"from_pretrained", "from_config"})
_TRANSFORMERS: Final = re.compile(r"(Model|For[A-Z]\w+)$")
_NO_MODELS: Final = (
    "torch.nn.functional.",
    "torch.nn.utils.",
    "torch.nn.init.",
    "torch.nn.Parameter",
)
_OWN_LOOPS: Final = frozenset({"generate", "sample", "predict", "encode"})
_CONDITIONAL: Final = (
    cst.Lambda, cst.ListComp, cst.GeneratorExp, cst.SetComp, cst.DictComp, cst.IfExp, cst.BooleanOperation,
    cst.While, cst.Assert, cst.Await, cst.Decorator,
)  # fmt: skip
"""What may execute a call in it never, or several times."""


@dataclass(frozen=True)
class ModelCall:
    """A place where a program calls its model."""

    call: cst.Call
    model: Thing


def model_calls(port: ProgramPort) -> tuple[ModelCall, ...]:
    """Return the calls of modules with weights, but those in other modules.

    Args:
        port: The program.
    """
    found = []
    for call in port.source.calls:
        frame = port.source.frame(call)
        unit = unit_of(call.func)
        if not unit or port.source.is_module(port.source.class_of(frame)):
            continue
        thing = port.bindings.resolve(frame, unit)
        if _is_made_as_module(port, thing):
            found.append(ModelCall(call, thing))
    return tuple(found)


def _is_made_as_module(port: ProgramPort, thing: Thing) -> bool:
    made = port.bindings.maker(thing)
    if made is None:
        return False
    definition = port.source.definition(made.func)
    if isinstance(definition, cst.ClassDef):
        return port.source.is_module(definition)
    name = port.source.imported(made.func)
    if name.startswith("torch.nn."):
        # A criterion has no weights, and is called for what the host looks at.
        return not name.startswith(_NO_MODELS) and not name.endswith("Loss")
    if name.startswith("transformers."):
        last = (
            name.rpartition(".")[2]
            if attribute_name(made.func) not in _PRETRAINED
            else name.split(".")[-2]
        )
        return bool(_TRANSFORMERS.search(last))
    return name.startswith(_MAKERS)


def with_named_result(form: PlainForm, port: ProgramPort) -> PlainForm:
    """Give what a program's only model call returns a name, on a line of its own.

    Args:
        form: The program.
        port: What is known of it.
    """
    calls = model_calls(port)
    if len(calls) != 1 or _refuse(port, calls[0]) or _is_named(port, calls[0].call):
        return form
    call = calls[0].call
    statement = port.source.statement(call)
    file = port.source.file(call)
    name = port.names.fresh("outputs")
    line = cst.parse_statement(f"{name} = {port.source.code(call)}", file.module.config_for_parsing)
    changed = file.module.visit(_Naming(call, statement, name, line))
    assert isinstance(changed, cst.Module)
    return form.rewritten({file.path: changed.code})


class _Naming(cst.CSTTransformer):
    """Puts the line with the call before the statement that it was in."""

    def __init__(
        self, call: cst.Call, statement: cst.BaseStatement, name: str, line: cst.BaseStatement
    ) -> None:
        super().__init__()
        self._call = call
        self._statement = statement
        self._name = name
        self._line = line

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        return cst.Name(self._name) if original_node is self._call else updated_node

    def on_leave(  # type: ignore[override]  # one method for statements of all types
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> cst.CSTNode | cst.FlattenSentinel[cst.BaseStatement]:
        left = super().on_leave(original_node, updated_node)
        if original_node is not self._statement:
            return left  # type: ignore[return-value]  # nothing is removed here
        assert isinstance(left, cst.BaseStatement)
        lines = getattr(left, "leading_lines", ())
        first = self._line.with_changes(leading_lines=lines)
        rest = left.with_changes(leading_lines=()) if lines else left
        return cst.FlattenSentinel([first, rest])


def _is_named(port: ProgramPort, call: cst.Call) -> bool:
    """Whether a call's result goes into variables, and nothing else is on its line."""
    above = port.source.parent(call)
    if not isinstance(above, cst.Assign) or len(above.targets) != 1:
        return False
    target = above.targets[0].target
    parts = (
        [element.value for element in target.elements]
        if isinstance(target, cst.Tuple)
        else [target]
    )
    return all(isinstance(part, cst.Name) for part in parts)


def _refuse(port: ProgramPort, one: ModelCall) -> bool:
    """Note why a call cannot be one run; return whether there is a reason."""
    source = port.source
    statement = source.statement(one.call)
    inner = []
    for above in source.enclosing(one.call):
        inner.append(above)
        if above is statement:
            break
    is_late = isinstance(statement, cst.If) and any(
        isinstance(above, cst.If) and above is not statement
        for above in source.enclosing(statement)
        if source.parent(statement) is above
    )
    if is_late or any(isinstance(above, _CONDITIONAL) for above in inner):
        port.points.add(
            one.call,
            "model-call",
            "whether and how often this call is executed is decided inside of an expression",
            instead="call the model on a line of its own, as `outputs = model(inputs)`",
        )
        return True
    if any(argument.star == "*" for argument in one.call.args):
        port.points.add(
            one.call,
            "model-call",
            "nobody can say here how many inputs the model is given",
            instead="give it each of its inputs by name",
        )
        return True
    return False


def inference(port: ProgramPort) -> TrainedStep | None:
    """Return the one call of a model that a program makes; note why there is none.

    Args:
        port: The program.
    """
    calls = model_calls(port)
    if not calls:
        _refuse_without_call(port)
        return None
    for other in calls[1:]:
        port.points.add(
            other.call,
            "several-steps",
            "the program calls its modules at several places, and each of them is a graph of its own",
            instead="call the model in one function, which both places call",
        )
    if len(calls) > 1 or _refuse(port, calls[0]):
        return None
    _refuse_mode(port, calls[0])
    return _step(port, calls[0])


def _refuse_without_call(port: ProgramPort) -> None:
    loops = [
        call
        for call in port.source.calls
        if attribute_name(call.func) in _OWN_LOOPS and isinstance(call.func, cst.Attribute)
    ]
    port.points.add(
        loops[0] if loops else port.source.module,
        "no-training",
        "there is no backward pass in this program, and no line that calls a model"
        + (": this method calls it itself" if loops else ""),
        instead="give the file that has the training loop, or one that calls its model as `outputs = model(inputs)`",
    )


def _refuse_mode(port: ProgramPort, one: ModelCall) -> None:
    """Refuse inference in the mode of training, in which dropout and normalisation depend on the batch."""
    modes = [(call, mode_of(call)) for call in port.source.calls if mode_of(call)]
    # from_pretrained calls eval() itself.
    told = any(mode == "eval" for _, mode in modes) or any(
        attribute_name(call.func) == "from_pretrained" for call in port.source.calls
    )
    asks = asks_for_mode(port, [one.model])
    trained = [call for call, mode in modes if mode == "train"]
    if asks and (trained or not told):
        port.points.add(
            trained[0] if trained else one.call,
            "lasting-evaluation",
            "dropout and normalisation may be those of training when the model is called, and an RDU that infers "
            "computes them as in evaluation",
            instead="call model.eval() before, and train() never",
        )


def _step(port: ProgramPort, one: ModelCall) -> TrainedStep:
    statement = port.source.statement(one.call)
    part = StepPart(Role.FORWARD, statement, one.call, None)
    levels = port.search.levels(part)
    home = _home(port, levels_frames=[level.frame for level in levels], model=one.model)
    made = port.bindings.maker(one.model)
    entry = around = levels[home].statement
    while True:
        above = port.source.around(around)
        if above is None or (made is not None and port.source.contains(above, made)):
            break
        around = above
        if isinstance(above, cst.For | cst.While):
            entry = above
    return TrainedStep(
        backward=part, parts=(), optimizers=(), levels=levels, home=home, entry=entry,
        models=(one.model,), infers=True,
    )  # fmt: skip


def _home(port: ProgramPort, levels_frames: list[Frame], model: Thing) -> int:
    """Return the lowest function that keeps the model itself."""
    # Not one that is handed it: what is called twice would trace twice.
    for place, frame in enumerate(levels_frames):
        unit = port.bindings.unit_in(frame, model)
        thing = port.bindings.thing(frame, unit)
        own = thing.owner is frame or thing.owner is None is frame
        if unit and own and not port.bindings.is_parameter(thing):
            return place
    methods = [
        place
        for place, frame in enumerate(levels_frames)
        if model.owner is not None and port.source.class_of(frame) is model.owner
    ]
    return methods[-1] if methods else len(levels_frames) - 1


def inferred_slice(port: ProgramPort, step: TrainedStep) -> Slice:
    """Return the call of a model as the part of a program that the RDU computes.

    Args:
        port: The program.
        step: The call.
    """
    statement, call = step.backward.statement, step.backward.call
    assert call is not None
    unit = unit_of(call.func)
    inputs = _inputs(port, call)
    values = SliceValues(port.flow(step))
    frame = step.frame
    later = {
        name for one in port.source.statements(frame) for name in _read_outside(one, statement)
    }
    computed = [name for name in writes(statement) if name in later]
    outputs, renamed = values.outputs(computed, call, "", (statement,))
    return Slice(
        moved=(statement,), models=(unit,), inputs=inputs, constants=(), outputs=outputs, renamed=renamed,
        loss="", loss_is_read=False, place=statement, condition=None,
    )  # fmt: skip


def _read_outside(node: cst.CSTNode, gone: cst.BaseStatement) -> set[str]:
    if node is gone or isinstance(node, cst.FunctionDef | cst.ClassDef):
        return set()
    if gone not in list(walk(node)):
        return set(reads(node))
    return {unit for child in node.children for unit in _read_outside(child, gone)}


def _inputs(port: ProgramPort, call: cst.Call) -> tuple[Input, ...]:
    """Return the arguments of a call that the host computes: all but constants of the text."""
    # The whole argument: what the host computes of a batch need not be traced.
    found: dict[str, Input] = {}
    for place, one in enumerate(call.args):
        node = one.value
        code = port.source.code(node)
        if one.star != "**" and (not reads(node) or code in {"None", "True", "False"}):
            continue
        name = one.keyword.value if one.keyword is not None else plain_name(unit_of(node))
        if not name:
            name = "x" if not place else f"x_{place + 1}"
        if name in {other.name for other in found.values()}:
            name = f"{name}_{place + 1}"
        found.setdefault(code, Input(name, node, is_mapping=one.star == "**"))
    return tuple(found.values())
