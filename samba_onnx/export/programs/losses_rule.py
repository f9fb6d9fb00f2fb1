"""Which outputs of a module are losses: those that training starts from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import torch
from torch import fx
from torch.utils import _pytree as pytree

from samba_onnx.errors import GradientError, UsageError

LossIndex: TypeAlias = int | Sequence[int]
"""Position of an output, counted over all leaves; or a path into nested outputs."""

_LOSS_OPERATORS: Final = frozenset(
    {
        "_linear_cross_entropy_batch_chunked",
        "_linear_cross_entropy_batch_chunked_no_reduction",
        "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
        "kl_div",
        "nll_loss2d",
        "nll_loss2d_forward",
        "nll_loss_forward",
        "nll_loss_nd",
    }
)
"""Besides every operator whose name ends in ``_loss``."""

# What may be done to a loss: its shape or type changes, it is masked or reduced.
_PASSED_ON: Final = frozenset(
    {
        "_to_copy",
        "alias",
        "clone",
        "contiguous",
        "div",
        "div_",
        "expand",
        "flatten",
        "getitem",
        "index",
        "masked_fill",
        "masked_select",
        "mean",
        "mul",
        "mul_",
        "nan_to_num",
        "nanmean",
        "neg",
        "permute",
        "reshape",
        "select",
        "slice",
        "squeeze",
        "sum",
        "to",
        "transpose",
        "unsqueeze",
        "view",
    }
)
_ANY_OPERAND: Final = frozenset({"add", "add_", "cat", "mul", "mul_", "stack", "sub", "where"})
_LOSS_MODULES: Final = "torch.nn.modules.loss."


def find_losses(outputs: Sequence[object]) -> list[int]:
    """Return which outputs a loss operator made: all that may have a gradient if none did.

    A loss may have been reshaped, cast, scaled, masked, reduced or added to something since.
    Integers are never losses.

    Args:
        outputs: Flat outputs of an exported graph, before any decomposition: nodes, or constants.

    Returns:
        Their positions, in order.
    """
    real = [i for i, output in enumerate(outputs) if _is_real(output)]
    losses = [i for i in real if _is_loss(outputs[i])]
    return losses or real


def chosen_losses(
    indices: Sequence[LossIndex], outputs: Sequence[object], out_spec: pytree.TreeSpec | None = None
) -> list[int]:
    """Return which flat outputs ``loss_indices`` names.

    Args:
        indices: Positions among the flat outputs, or paths into nested ones.
        outputs: Flat outputs of an exported graph.
        out_spec: Their nesting, for paths of more than one step.

    Raises:
        UsageError: An index does not exist.
        GradientError: It names an output of integers.
    """
    chosen = []
    for index in indices:
        position = _position(index, len(outputs), out_spec)
        if not _is_real(outputs[position]):
            raise GradientError(
                f"loss_indices names output {position}, which holds no floating-point numbers; "
                "name an output that has a gradient"
            )
        chosen.append(position)
    return sorted(set(chosen))


def _position(index: LossIndex, count: int, out_spec: pytree.TreeSpec | None) -> int:
    path = [index] if isinstance(index, int) else list(index)
    position: object = path[0] if path else None
    if len(path) > 1 and out_spec is not None:
        position = _follow(path, out_spec, count)
    if not isinstance(position, int) or not -count <= position < count:
        raise UsageError(
            f"loss_indices has {index!r}, but the module has {count} outputs: "
            f"use indices from 0 to {count - 1}"
        )
    return position % count


def _follow(path: Sequence[int], out_spec: pytree.TreeSpec, count: int) -> object:
    """Return the flat position of a leaf of nested outputs, None if there is none."""
    place: object = pytree.tree_unflatten(list(range(count)), out_spec)
    for step in path:
        branches = list(place.values()) if isinstance(place, dict) else place
        if not isinstance(branches, list | tuple) or not -len(branches) <= step < len(branches):
            return None
        place = branches[step]
    return place


def _is_real(output: object) -> bool:
    value = output.meta.get("val") if isinstance(output, fx.Node) else None
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _is_loss(output: object) -> bool:
    """Return whether a loss operator made a value, looking through what may be done to a loss."""
    pending, known = [output], set[fx.Node]()
    while pending:
        node = pending.pop()
        if not isinstance(node, fx.Node) or node in known:
            continue
        known.add(node)
        if _makes_loss(node):
            return True
        name = _operator(node)
        if name in _ANY_OPERAND:
            pending += node.all_input_nodes
        elif name in _PASSED_ON:
            pending += node.all_input_nodes[:1]
    return False


def _makes_loss(node: fx.Node) -> bool:
    if node.op != "call_function":
        return False
    name = _operator(node)
    if name.endswith("_loss") or name in _LOSS_OPERATORS:
        return True
    modules = list(node.meta.get("nn_module_stack", {}).values())
    return bool(modules) and str(modules[-1][1]).startswith(_LOSS_MODULES)


def _operator(node: fx.Node) -> str:
    """Return an operator's name without namespace and overload."""
    packet = getattr(node.target, "overloadpacket", node.target)
    return str(getattr(packet, "__name__", packet))
