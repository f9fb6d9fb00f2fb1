"""Layers that compute something else in training than in evaluation, and the calls that choose between the two."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import libcst as cst

from samba_onnx.tools.adapt.bindings import Thing
from samba_onnx.tools.adapt.name_units import attribute_name
from samba_onnx.tools.adapt.port import ProgramPort

_LAYERS: Final = (
    "Dropout", "AlphaDropout", "FeatureAlphaDropout", "dropout", "alpha_dropout", "feature_alpha_dropout",
    "BatchNorm", "SyncBatchNorm", "LazyBatchNorm", "batch_norm", "InstanceNorm", "LazyInstanceNorm",
    "RReLU", "rrelu", "Transformer",
)  # fmt: skip
"""How names of torch.nn begin that ask for the mode; a Transformer drops a tenth by default."""
_WITHOUT_LAYERS: Final = frozenset(
    {"torch", "numpy", "math", "pandas", "sklearn", "scipy", "matplotlib", "PIL", "tqdm", "einops", "yaml"}
)  # fmt: skip
"""Packages whose calls make no layers beside those of ``_LAYERS``."""
_LOADING: Final = ("torch.load", "torch.hub.", "torch.jit.load")
"""What makes whole modules of files."""


def asks_for_mode(port: ProgramPort, models: Sequence[Thing]) -> bool:
    """Whether a program has layers that ask for the mode, or takes its modules from a library that may have some.

    Args:
        port: The program.
        models: Its modules.
    """
    makers = [port.bindings.maker(model) for model in models]
    # By what names stand for, and not by words: comments and variables have them, too.
    for node in port.source.nodes:
        if isinstance(node, cst.Name | cst.Attribute) and _is_layer(port.source.imported(node)):
            return True
        if isinstance(node, cst.Arg) and _drops(node):
            return True
        if isinstance(node, cst.Call) and _is_foreign(port, node, node in makers):
            return True
    return False


def mode_of(call: cst.Call) -> str:
    """Return the mode that a call sets, as ``train`` for ``model.train(True)``; empty for other calls."""
    name = attribute_name(call.func)
    if name == "eval" and not call.args:
        return "eval"
    if name != "train" or len(call.args) > 1:
        return ""
    given = call.args[0].value if call.args else None
    # train(loader) is a function of the program's own, of whatever else.
    if given is None or (isinstance(given, cst.Name) and given.value in {"True", "False"}):
        is_false = isinstance(given, cst.Name) and given.value == "False"
        return "eval" if is_false else "train"
    return ""


def _is_layer(name: str) -> bool:
    return name.startswith("torch.nn.") and name.rpartition(".")[2].startswith(_LAYERS)


def _drops(argument: cst.Arg) -> bool:
    name = argument.keyword.value if argument.keyword is not None else ""
    is_zero = isinstance(argument.value, cst.Integer | cst.Float) and not (
        argument.value.evaluated_value
    )
    return "dropout" in name and not is_zero


def _is_foreign(port: ProgramPort, call: cst.Call, makes_model: bool) -> bool:
    """Whether a library that nobody has read here makes a module, or a part of one."""
    name = port.source.imported(call.func)
    if makes_model and name.startswith(_LOADING):
        return True
    package = name.partition(".")[0]
    if not package or package in _WITHOUT_LAYERS or package in sys.stdlib_module_names:
        return False
    frame = port.source.frame(call)
    return makes_model or (
        isinstance(frame, cst.FunctionDef)
        and frame.name.value == "__init__"
        and port.source.is_module(port.source.class_of(frame))
    )
