"""Readable names for stages, from the module scopes that exporters leave on nodes."""

from __future__ import annotations

import re
from collections.abc import Sequence

import onnx_ir as ir

SCOPES_KEY = "pkg.torch.onnx.name_scopes"
"""Metadata of torch's exporter: the node's enclosing modules as the text of a Python list."""
_LONGEST_TEXT = 10_000
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")


def scope(node: ir.Node) -> tuple[str, ...]:
    """Return the path of the module that a node comes from.

    Args:
        node: A node, with torch's ``pkg.torch.onnx.name_scopes`` or with a name like
            ``/layer1/layer1.0/conv1/Conv``.

    Returns:
        Attribute names from the outermost module inwards, as ``("layer1", "0", "conv1")``; empty
        where the node does not say.
    """
    text = node.metadata_props.get(SCOPES_KEY, "")[:_LONGEST_TEXT]
    found = [first or second for first, second in _QUOTED.findall(text)]
    if len(found) > 1:  # the last entry names the operator itself
        return tuple(part for part in found[-2].split(".") if part)
    path: list[str] = []
    for part in (node.name or "")[:_LONGEST_TEXT].split("/")[1:-1]:
        inner = part.split(".")
        # The older exporter repeats the parent: layer1, then layer1.0.
        path.extend(inner[1:] if len(inner) > 1 and path and path[-1] == inner[0] else inner)
    return tuple(part for part in path if part)


def stage_name(nodes: Sequence[ir.Node]) -> str:
    """Return a name that tells people which part of the model a stage is.

    Args:
        nodes: The stage's nodes, at least one.

    Returns:
        The innermost module that holds them all (``layers.3.attention``), with the operator for a
        single node; the first and last outermost module (``conv1..fc``) where no module does; the
        first and last operator (``Gemm..Softmax``) where nothing is known about modules.
    """
    scopes = [path for path in map(scope, nodes) if path]
    operator = nodes[0].op_type
    if not scopes:
        return operator if len(nodes) == 1 else _span(operator, nodes[-1].op_type)
    common = list(scopes[0])
    for path in scopes[1:]:
        common = _agreeing(common, path)
    if not common:
        return _span(scopes[0][0], scopes[-1][0])
    return ".".join([*common, operator] if len(nodes) == 1 else common)


def unique(names: Sequence[str]) -> tuple[str, ...]:
    """Return names with a number added to those that occurred before.

    Args:
        names: Any names.

    Returns:
        Names in the same order, each different: ``("a", "a")`` becomes ``("a", "a_2")``.
    """
    taken = set(names)
    seen: dict[str, int] = {}
    result: list[str] = []
    for name in names:
        number = seen.get(name, 0) + 1
        candidate = name
        while number > 1 and (candidate := f"{name}_{number}") in taken:
            number += 1
        seen[name] = number
        taken.add(candidate)
        result.append(candidate)
    return tuple(result)


def _agreeing(left: Sequence[str], right: Sequence[str]) -> list[str]:
    agreeing: list[str] = []
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        agreeing.append(one)
    return agreeing


def _span(first: str, last: str) -> str:
    return f"{first}..{last}"
