"""Checks of how a program is put together: what is called at all, with which arguments."""

from __future__ import annotations

import ast
from typing import Final

from samba_onnx.tools.lint.context import Check, LintContext
from samba_onnx.tools.lint.findings import Remark, Remarks
from samba_onnx.tools.lint.host_operators import DEVICES
from samba_onnx.tools.lint.names import words
from samba_onnx.tools.lint.session_calls import (
    COMPILE,
    CONVERT,
    OPTIMIZER_HOMES,
    RUN,
    TRACE,
    calls_of,
)
from samba_onnx.tools.lint.source import SourceFile, argument, literal, quoted

_OPTIMIZERS: Final = frozenset({"SGD", "Adam", "AdamW", "SparseAdamW", "Optimizer"})
_REFUSED_HOOKS: Final = frozenset({"register_backward_hook", "register_multi_grad_hook"})
_HOOKS: Final = words(
    "register_forward_hook register_forward_pre_hook register_full_backward_hook "
    "register_full_backward_pre_hook register_hook register_post_accumulate_grad_hook"
)
_DEPRECATED: Final = {
    "samba.utils.common.common_app_driver": "`common_app_driver` is deprecated",
    "samba.from_torch_": "`from_torch_` is the old name of `from_torch_model_`",
}
_DEPRECATED_ARGUMENTS: Final = ("graph_names", "graph_transform_hook", "init_output_grads")
_NORMS: Final = ("torch.nn.BatchNorm1d", "torch.nn.BatchNorm2d", "torch.nn.BatchNorm3d")


def conversion(source: SourceFile, context: LintContext) -> Remarks:
    """Find models that are compiled without having been converted."""
    # The old driver converts what it is given.
    if context.calls(*CONVERT) or context.calls("samba.utils.common.common_app_driver"):
        return
    for call in (*calls_of(source, COMPILE), *calls_of(source, TRACE)):
        model = argument(call, "model", 0)
        if not isinstance(literal(model), str):
            message = f"{quoted(call.func)} gets a model that no `from_torch_model_` converted"
            yield Remark("not-converted", call, message)


def optimizers(source: SourceFile, context: LintContext) -> Remarks:
    """Find optimizers that the device has no rule for."""
    # On the host a program may train with any optimizer.
    if not context.calls(*COMPILE, *TRACE):
        return
    for call, dotted in source.calls:
        home, _, name = dotted.rpartition(".")
        # Only classes: functions of these modules begin with a small letter.
        if home in OPTIMIZER_HOMES and name[:1].isupper() and name not in _OPTIMIZERS:
            message = f"{quoted(call.func)} has no rule on the device"
            yield Remark("optimizer", call, message)


def hooks(source: SourceFile, context: LintContext) -> Remarks:
    """Find hooks, which run when a program is traced and not in its steps."""
    for call, dotted in source.calls:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if name in _REFUSED_HOOKS or dotted.endswith(".saved_tensors_hooks"):
            yield Remark("refused-hook", call, f"{quoted(call.func)} cannot be compiled")
        elif name in _HOOKS:
            message = f"{quoted(call.func)} runs its hook while the program is traced"
            yield Remark("traced-hook", call, message)


def run_arguments(source: SourceFile, context: LintContext) -> Remarks:
    """Find runs that are asked for sections in two ways."""
    for call in calls_of(source, RUN):
        kinds, ids = argument(call, "section_types", 6), argument(call, "section_ids", 5)
        # Empty lists ask for nothing, as the default does.
        if kinds is not None and ids is not None and literal(kinds) != [] and literal(ids) != []:
            message = f"{quoted(call.func)} is given section_types and section_ids"
            yield Remark("sections-twice", call, message)


def deprecated(source: SourceFile, context: LintContext) -> Remarks:
    """Find what SambaFlow's documents call deprecated."""
    for call, dotted in source.calls:
        if dotted in _DEPRECATED:
            yield Remark("deprecated", call, f"{_DEPRECATED[dotted]}")
        if dotted in COMPILE:
            for name in _DEPRECATED_ARGUMENTS:
                if argument(call, name) is not None:
                    message = f"`{name}` of `compile` is deprecated"
                    yield Remark("deprecated", call, message)


def devices(source: SourceFile, context: LintContext) -> Remarks:
    """Find what is moved to another accelerator."""
    for call, dotted in source.calls:
        match call.func:
            # With a dotted name it is a function of a module, and no method of a tensor or model.
            case ast.Attribute(attr=name) if name in DEVICES and not dotted:
                yield Remark("other-device", call, f"{quoted(call)} moves to another device")
                continue
        # All of them: a shape may be written as any number of arguments in front of the device.
        words = [literal(item) for item in (argument(call, "device"), *call.args)]
        if _moves(call, dotted) and any(_is_device(word) for word in words):
            yield Remark("other-device", call, f"{quoted(call)} names another device")


def _moves(call: ast.Call, dotted: str) -> bool:
    is_to = isinstance(call.func, ast.Attribute) and call.func.attr == "to"
    # `to` of anything, as models and tensors have it; other calls only where they are torch's.
    return is_to or dotted.startswith("torch.")


def _is_device(word: object) -> bool:
    return isinstance(word, str) and word.partition(":")[0] in DEVICES


def legacy_names(source: SourceFile, context: LintContext) -> Remarks:
    """Find batch normalisation in programs that keep legacy names."""
    # Both are needed: names matter where something is compiled, and one call in the program changes
    # them all.
    if not context.calls(*COMPILE) or context.calls("samba.session.use_legacy_names"):
        return
    for call, dotted in source.calls:
        if dotted in _NORMS:
            message = f"{quoted(call.func)} is compiled with legacy names of operators"
            yield Remark("legacy-names", call, message)
            # One finding for a file, as one call mends them all.
            return


PROGRAM_CHECKS: tuple[Check, ...] = (
    conversion,
    optimizers,
    hooks,
    run_arguments,
    deprecated,
    devices,
    legacy_names,
)
