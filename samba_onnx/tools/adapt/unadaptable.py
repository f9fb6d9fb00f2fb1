"""Programs and steps that cannot become one graph, with what is missing."""

from __future__ import annotations

from typing import Final

import libcst as cst

from samba_onnx.tools.adapt.modes import asks_for_mode, mode_of
from samba_onnx.tools.adapt.name_units import attribute_name, root_unit, unit_of
from samba_onnx.tools.adapt.port import ProgramPort, is_scheduler
from samba_onnx.tools.adapt.roles import Role
from samba_onnx.tools.adapt.trained_step import TrainedStep

_FRAMEWORKS: Final = {
    "pytorch_lightning": "Lightning",
    "lightning": "Lightning",
    "ignite": "ignite",
    "deepspeed": "DeepSpeed",
    "fastai": "fastai",
}
"""Libraries that have the training loop, by their packages."""
_KNOWN: Final = ("torch.", "accelerate.", "transformers.", "torchvision.", "copy.")
"""Libraries whose use of an optimizer is known: it is stepped by what the program says."""
_NOTING: Final = frozenset({"join", "str", "repr", "print", "write", "info", "debug", "format"})
"""Functions that make a text of the command line, or show it."""
_TRAINERS: Final = frozenset({"transformers.Trainer", "transformers.Seq2SeqTrainer"})


def refuse_frameworks(port: ProgramPort) -> bool:
    """Note that a framework has the loop; return whether one does."""
    found = False
    for node in port.source.nodes:
        if isinstance(node, cst.Import | cst.ImportFrom):
            words = port.source.code(node).replace(",", " ").split()
            package = words[1].partition(".")[0]
            if package in _FRAMEWORKS:
                found = True
                _note(port, node, _FRAMEWORKS[package])
        elif isinstance(node, cst.Call) and port.source.imported(node.func) in _TRAINERS:
            found = True
            _note(port, node, "the Trainer of transformers")
    return found


def refuse_arguments(port: ProgramPort) -> None:
    """Note words of the command line that the program takes by their places: ``compile`` and ``run`` come first now."""
    for node in port.source.nodes:
        if isinstance(node, cst.Attribute) and port.source.imported(node) == "sys.argv":
            above = list(port.source.enclosing(node))
            calls = [attribute_name(one.func) for one in above if isinstance(one, cst.Call)]
            # argparse is told of the commands; and the name of the program is its first word still.
            if {"parse_args", "parse_known_args"} & set(calls) or _is_first(above[0]):
                continue
            if _is_noted(above):
                continue
            port.points.add(
                node,
                "arguments-by-place",
                "the program reads its command line itself, which now begins with compile or run",
                instead="take its arguments by argparse, as options with a default",
            )


def _is_noted(above: list[cst.CSTNode]) -> bool:
    """Whether the whole command line is only put into a text, as into a log of how the program was called."""
    call = above[1] if isinstance(above[0], cst.Arg) else None
    name = attribute_name(call.func) or unit_of(call.func) if isinstance(call, cst.Call) else ""
    return name in _NOTING or isinstance(above[0], cst.FormattedStringExpression)


def _is_first(node: cst.CSTNode) -> bool:
    index = node.slice[0].slice if isinstance(node, cst.Subscript) else None
    value = index.value if isinstance(index, cst.Index) else None
    return isinstance(value, cst.Integer) and value.evaluated_value == 0


def _note(port: ProgramPort, node: cst.CSTNode, name: str) -> None:
    port.points.add(
        node,
        "framework",
        f"the training loop is inside of {name}, and not in this program",
        instead="write the loop out: batches of the loader, the model, its loss, backward() and step()",
    )


def refuse_step(port: ProgramPort, training: TrainedStep) -> bool:
    """Note what a training step lacks; return whether it can be adapted at all."""
    backward = training.backward
    if not training.optimizers:
        port.points.add(
            backward.statement,
            "no-optimizer",
            "no optimizer of torch.optim is made in this file that steps what is differentiated here",
            instead="make the optimizer in the same file, from torch.optim",
        )
        return False
    if not training.models:
        port.points.add(
            training.optimizers[0].call,
            "no-model",
            "nobody can tell whose parameters these are",
            instead="give the optimizer model.parameters()",
        )
        return False
    _refuse_details(port, training)
    return True


def _refuse_details(port: ProgramPort, training: TrainedStep) -> None:
    call = training.backward.call
    stated = (
        [argument for argument in call.args if argument.keyword is not None]
        if call is not None
        else []
    )
    if any(one.keyword and one.keyword.value in {"retain_graph", "create_graph"} for one in stated):
        port.points.add(
            training.backward.statement,
            "kept-graph",
            "the graph is differentiated once more, by something else",
            instead="add the losses up, and differentiate their sum",
        )
    for call in foreign_uses(port, training):
        port.points.add(
            call,
            "foreign-optimizer",
            "a library is given the optimizer, and may step otherwise; the RDU steps by the optimizer itself",
            instead="leave the library out, or write what it does into the loop",
        )
    zeroing = [part for part in training.parts if part.role is Role.ZERO]
    if not zeroing:
        port.points.add(
            training.backward.statement,
            "no-zero-grad",
            "gradients are never set to zero, so that each step adds to those before",
            instead="call optimizer.zero_grad() in every step",
        )
    made = [
        port.source.frame(optimizer.call)
        for optimizer in training.optimizers
        if "self" in optimizer.units
    ]
    # A method that returns an optimizer of its own module is called where the module is known.
    if any(isinstance(one, cst.FunctionDef) and one.name.value == "__init__" for one in made):
        port.points.add(
            training.optimizers[0].call,
            "model-trains-itself",
            "the module makes its optimizer itself",
            instead="make the optimizer where the module is made",
        )
    _refuse_lasting_evaluation(port, training)
    _refuse_several_models(port, training)


def foreign_uses(port: ProgramPort, training: TrainedStep) -> list[cst.Call]:
    """Return the calls of libraries that are given the optimizer, but those that set its rate.

    Args:
        port: The program.
        training: Its step.
    """
    things = {optimizer.thing for optimizer in training.optimizers}
    found = []
    for call in port.source.calls:
        frame = port.source.frame(call)
        given = [unit_of(argument.value) for argument in call.args]
        if not any(unit and port.bindings.resolve(frame, unit) in things for unit in given):
            continue
        library = _library(port, call)
        if library and not library.startswith(_KNOWN) and not is_scheduler(library):
            found.append(call)
    return found


def _library(port: ProgramPort, call: cst.Call) -> str:
    """Return the imported name that a call leads to: its own, or that of what made the object."""
    name = port.source.imported(call.func)
    if name or not isinstance(call.func, cst.Attribute):
        return name
    unit = root_unit(call.func)
    made = (
        port.bindings.maker(port.bindings.resolve(port.source.frame(call), unit)) if unit else None
    )
    return port.source.imported(made.func) if made is not None else ""


def _refuse_lasting_evaluation(port: ProgramPort, training: TrainedStep) -> None:
    """Refuse programs that go on to train in the mode of evaluation: the graph is compiled in one mode."""
    calls = {mode_of(call): call for call in port.source.calls}
    # Without layers that ask for the mode, there is no difference between the two.
    if "eval" not in calls or "train" in calls or not asks_for_mode(port, training.models):
        return
    frame = port.source.frame(calls["eval"])
    places = [
        calls["eval"],
        *(port.bindings.call_sites(frame) if isinstance(frame, cst.FunctionDef) else ()),
    ]
    if any(port.source.contains(training.entry, place) for place in places):
        port.points.add(
            calls["eval"],
            "lasting-evaluation",
            "nothing calls train() after this, so that dropout and normalisation stay off in all later steps; "
            "the RDU trains with them",
            instead="call model.train() before each epoch",
        )


def _refuse_several_models(port: ProgramPort, training: TrainedStep) -> None:
    """Refuse a function that is given modules of several kinds to train: a PEF has the graph of one."""
    function = training.level.frame
    if not isinstance(function, cst.FunctionDef):
        return
    # By the code that makes them: folds and restarts make the same module anew, for the same PEF.
    kinds: dict[str, cst.Call] = {}
    for site in port.bindings.call_sites(function):
        for unit, value in port.bindings.passed(site, function).items():
            if port.bindings.resolve(function, unit) not in training.models:
                continue
            kinds.setdefault(_kind(port, site, value), site)
    if len(kinds) > 1:
        port.points.add(
            list(kinds.values())[1],
            "several-models",
            "another module is trained here by the same function, and its graph needs a PEF of its own",
            instead="choose by an option of the command line which of them is compiled and trained",
        )


def _kind(port: ProgramPort, site: cst.Call, value: cst.BaseExpression) -> str:
    """Return what makes a module that a call is given, as code; its own text if nobody can tell."""
    unit = unit_of(value)
    made = [
        assignment.value
        for assignment in port.bindings.assignments(
            port.bindings.thing(port.source.frame(site), unit)
        )
        # The last one before the call: a variable may hold one module after the other.
        if unit and port.source.line(assignment.node) <= port.source.line(site)
    ]
    return port.source.code(made[-1] if made else value)
