"""Readable names for stages, from the module scopes that exporters leave on nodes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import onnx_ir as ir

from samba_onnx.facts.names import SEPARATOR, FreeNames

SCOPES_KEY = "pkg.torch.onnx.name_scopes"
"""Metadata of torch's exporter: the node's enclosing modules as the text of a Python list."""
OWN_SCOPE_KEY = "samba.scope"
"""Metadata of our own exporter: the path of the module, led by the model's name, joined by ``__``."""
OPERATOR_KEY = "samba.operator"
"""Metadata of our own exporter: the operator of torch that a node computes or is a part of, forward or backward;
empty for one that goes through elements one by one."""
# Metadata comes from any model; a name of a stage needs no more.
_LONGEST_TEXT = 10_000
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")


def scope(node: ir.Node) -> tuple[str, ...] | None:
    """Return the path of the module that a node comes from.

    Args:
        node: A node, with torch's ``pkg.torch.onnx.name_scopes`` or our exporter's ``samba.scope``,
            or with a name like ``/layer1/layer1.0/conv1/Conv``.

    Returns:
        Attribute names from the outermost module inwards, as ``("layer1", "0", "conv1")``; empty
        for the outermost module itself, None where the node does not say.
    """
    exported = node.metadata_props.get(OWN_SCOPE_KEY, "")[:_LONGEST_TEXT]
    # Our own exporter's path is exact, torch's scopes hold the same as text, and names of nodes are
    # a guess.
    if exported:
        return tuple(part for part in exported.split(SEPARATOR)[1:] if part)
    text = node.metadata_props.get(SCOPES_KEY, "")[:_LONGEST_TEXT]
    scopes = [first or second for first, second in _QUOTED.findall(text)]
    if len(scopes) > 1:  # the last entry names the operator itself
        return tuple(part for part in scopes[-2].split(".") if part)
    name = (node.name or "")[:_LONGEST_TEXT]
    if not name.startswith("/"):
        return None
    path: list[str] = []
    for part in name.split("/")[1:-1]:
        inner = part.split(".")
        # The older exporter repeats the parent: layer1, then layer1.0.
        path.extend(inner[1:] if len(inner) > 1 and path and path[-1] == inner[0] else inner)
    return tuple(part for part in path if part)


def stage_name(nodes: Sequence[ir.Node], rule: str = "") -> str:
    """Return a name that tells people which part of the model a stage is.

    Args:
        nodes: The stage's nodes, at least one.
        rule: The rule of fusion that the stage is one for; empty where none is.

    Returns:
        The innermost module that holds them all (``layers.3.attention``), with the operator for a
        single node; the first and last outermost module (``conv1..fc``) where no module does; the
        first and last operator (``Gemm..Softmax``) where nothing is known about modules; then the rule
        behind a colon.
    """
    return f"{_place_name(nodes)}:{rule}" if rule else _place_name(nodes)


def _place_name(nodes: Sequence[ir.Node]) -> str:
    places = [(path, node.op_type) for node in nodes if (path := scope(node)) is not None]
    if not places:
        places = [((), node.op_type) for node in nodes]
    common = places[0][0]
    for path, _ in places[1:]:
        common = _agreeing(common, path)
    if len(nodes) == 1:
        return ".".join([*common, nodes[0].op_type])
    if common:
        return ".".join(common)
    # An operator of the outermost module stands for itself.
    outermost = [path[0] if path else operator for path, operator in places]
    return f"{outermost[0]}..{outermost[-1]}" if len(outermost) > 1 else outermost[0]


def unique(names: Sequence[str]) -> tuple[str, ...]:
    """Return names with a number added to those that occurred before.

    Args:
        names: Any names.

    Returns:
        Names in the same order, each different: ``("a", "a")`` becomes ``("a", "a_2")``.
    """
    # Numbers count from 2, since the first one keeps its plain name.
    free = FreeNames(names, first=2)
    seen: set[str] = set()
    result: list[str] = []
    for name in names:
        result.append(free.take(name) if name in seen else name)
        seen.add(name)
    return tuple(result)


def _agreeing(left: Sequence[str], right: Sequence[str]) -> tuple[str, ...]:
    pairs = zip(left, right, strict=False)
    return tuple(one for one, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
