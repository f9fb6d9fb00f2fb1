"""What is built into a program besides its tensors: the mode of every module, and numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from samba_onnx.export.capture.captured_modules import arguments, input_names


def built_in(model: nn.Module, inputs: Any) -> dict[str, Any]:
    """Return what a program depends on and nobody can change between its runs.

    Args:
        model: What is compiled or traced.
        inputs: Arguments of ``forward``.

    Returns:
        JSON: whether the model trains, which of its modules do otherwise, and the inputs that are
        no tensors, as Python writes them.
    """
    args, keywords = arguments(inputs)
    others = [path for path, inner in model.named_modules() if inner.training != model.training]
    leaves = input_names(model, args, keywords)
    # As Python writes them: JSON has no infinity and no complex numbers, and 1 is not 1.0 or True.
    numbers = {name: repr(leaf) for name, leaf in leaves if not isinstance(leaf, torch.Tensor)}
    return {"training": model.training, "others": others, "numbers": numbers}


def changed(compiled: Mapping[str, Any] | None, now: Mapping[str, Any]) -> str:
    """Say what has changed since a model was compiled, and what to do.

    Args:
        compiled: As ``built_in`` returned it then; None if that is not known.
        now: As it returns it now.

    Returns:
        A sentence without a full stop; empty if nothing has changed.
    """
    if compiled is None:
        return ""
    # The mode of the whole comes first: what modules do otherwise is told relative to it.
    if compiled["training"] != now["training"]:
        before, after = _mode(compiled["training"]), _mode(now["training"])
        return f"it was compiled after {before} and is traced after {after}: call {before} first"
    moved = sorted({*compiled["others"]} ^ {*now["others"]})
    if moved:
        before = _mode(compiled["training"] ^ (moved[0] in compiled["others"]))
        return f"its module {moved[0]!r} was compiled after {before}: call {before} on it first"
    numbers, values = compiled["numbers"], now["numbers"]
    for name in numbers:
        if numbers[name] != values.get(name, numbers[name]):
            return (
                f"its input {name!r} is {values[name]}, but was {numbers[name]} when it was compiled:"
                " numbers are built in, so give the same one, or a tensor when it is compiled"
            )
    return ""


def _mode(training: bool) -> str:
    return "train()" if training else "eval()"
