"""Names of symbols: the path through the module tree, joined by two underscores."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
from torch import fx

from samba_onnx.errors import ModelError, UsageError
from samba_onnx.export.places import node_place
from samba_onnx.facts.names import SEPARATOR, symbol_name
from samba_onnx.program.fusion_marks import MARK
from samba_onnx.program.scopes import OPERATOR_KEY
from samba_onnx.tensor import SambaTensor
from samba_onnx.tensor.inputs import key_text

_CALL_NUMBER: Final = re.compile(r"@\d+")


def scope_name(root: str, node: fx.Node) -> str:
    """Return the name of the module that a node of a captured graph belongs to.

    Args:
        root: As :func:`samba_onnx.facts.names.root_name` returns it.
        node: A node with torch's record of the modules that were being called.
    """
    stack: Mapping[str, tuple[str, Any]] = node.meta.get("nn_module_stack") or {}
    # The innermost module is the last.
    path = next((path for path, _ in reversed(list(stack.values()))), "")
    return symbol_name(root, _CALL_NUMBER.sub("", path))


def fusion_mark(node: fx.Node) -> dict[str, str]:
    """Return the mark of ``op_fusion`` as metadata of what a node is written with; empty without one.

    Args:
        node: A node with torch's record of the modules that were being called.
    """
    stack: Mapping[str, tuple[str, Any]] = node.meta.get("nn_module_stack") or {}
    return {MARK: stack[MARK][1]} if MARK in stack else {}


def dropout_name(root: str, node: fx.Node, kind: str) -> str:
    """Return what rate and seed of a dropout are named after.

    Args:
        root: As :func:`samba_onnx.facts.names.root_name` returns it.
        node: The node that drops values.
        kind: What a user calls it, as ``dropout2d``.
    """
    scope = scope_name(root, node)
    # A module that is named after the kind does not have it in its name twice.
    return scope if scope.endswith(f"{SEPARATOR}{kind}") else f"{scope}{SEPARATOR}{kind}"


def operator_name(node: fx.Node) -> str:
    """Return the ATen operator of a node without namespace and overload, as ``linear``."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        # In-place and private operators go by the plain name.
        return target._schema.name.rpartition("::")[2].strip("_")
    return getattr(target, "__name__", str(target))


def whole_operator(node: fx.Node) -> str:
    """Return what tells an operator of a captured graph from all others, for what is computed of it.

    Args:
        node: A node of the captured graph, or one that it became on the way, which states the name.

    Returns:
        Its name. Empty for an operator that goes through elements one by one: those of one line of a model
        are one expression.
    """
    stated: str | None = node.meta.get(OPERATOR_KEY)
    if stated is not None:
        return stated
    target = node.target
    pointwise = isinstance(target, torch._ops.OpOverload) and torch.Tag.pointwise in target.tags
    return "" if pointwise else node.name


def refused(node: fx.Node, why: str) -> ModelError:
    """Return the error about a node of a captured graph, which names its operator and the user's line.

    Args:
        node: A node whose operator cannot be compiled.
        why: What follows operator and line in the sentence: what is wrong, and what to do.
    """
    place = node_place(node)
    message = f"{node.target} {place.phrase}{why}"
    return ModelError(message, operator=str(node.target), location=place.line or None)


class SymbolClaims:
    """Which thing each name stands for; a second thing of the same name is refused."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}

    def claim(self, name: str, owner: str) -> None:
        """Say that a name stands for something.

        Args:
            name: The name on the device.
            owner: What has it, in the user's words, as ``parameter 'layers.0.weight'``.

        Raises:
            UsageError: The name stands for something else already.
        """
        other = self._owners.setdefault(name, owner)
        if other != owner:
            raise UsageError(
                f"{other} and {owner} are both called {name!r} on the device, where every value has "
                "a name of its own: give one of them another name"
            )


def flat_names(inputs: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every leaf of nested inputs with its name, in torch's flat order.

    Args:
        inputs: Nested tuples, lists and mappings.
        name: What its parts are named after: ``name__0``, ``name__key``.

    Yields:
        Name and leaf. A SambaTensor goes by its own name if it has one.
    """
    paths, _ = torch.utils._pytree.tree_flatten_with_path(inputs)
    for path, leaf in paths:
        # A name that the tensor was given goes before its place among the inputs.
        own = leaf.sn_name if isinstance(leaf, SambaTensor) else ""
        yield own or SEPARATOR.join(filter(None, [name, *map(key_text, path)])), leaf
