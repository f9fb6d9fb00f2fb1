"""Marks of ``op_fusion``, put on the nodes of an exported graph: those of a module, and those of lines.

The mark of a node is an entry of torch's record of the modules that were being called, which every later
graph keeps, that of the backward half included.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator
from typing import Any, Final

from torch import fx, nn
from torch.export import ExportedProgram
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from samba_onnx.program.fusion_marks import MARK, write_mark

__all__ = ["apply_marks", "mark_module", "marked_lines"]

_MODULE: Final = "_samba_op_fusion"
"""Attribute of a module that is to be one section: its name; copies of the module have it, too."""
_NODE: Final = "samba_op_fusion"
"""Key of a node's metadata while it is traced: use and name of the lines that made it."""
# torch writes ``layer@1`` for the second call of one module.
_CALL_NUMBER: Final = re.compile(r"@\d+")
_USES: Final = itertools.count()


def mark_module(module: nn.Module, name: str) -> None:
    """Let what a module computes be one section, in what is compiled at ``o1`` from now on.

    Args:
        module: A module, or a part of one.
        name: What reports call the section.
    """
    module.__dict__[_MODULE] = name


@contextlib.contextmanager
def marked_lines(name: str) -> Iterator[None]:
    """Mark what is computed inside, where that is being captured; of contexts inside each other the outer counts.

    Args:
        name: What reports call the section.
    """
    mode = get_proxy_mode()
    graph = None if mode is None else getattr(mode.tracer, "graph", None)
    before = set() if graph is None else set(graph.nodes)
    yield
    if graph is not None:
        use = next(_USES)
        for node in graph.nodes:
            if node not in before:
                # The outer context ends last, and overwrites what an inner one wrote.
                node.meta[_NODE] = (use, name)


def apply_marks(program: ExportedProgram, module: nn.Module) -> None:
    """Write the marks of lines and modules where later graphs keep them.

    Args:
        program: What was just exported; its nodes are changed.
        module: What it was exported from.
    """
    names = {
        path: part.__dict__[_MODULE]
        for path, part in module.named_modules(remove_duplicate=False)
        if _MODULE in part.__dict__
    }
    # Counted anew in every program: the same model makes the same bytes whatever was marked before.
    numbers: dict[Any, str] = {}
    for part in program.graph_module.modules():
        for node in part.graph.nodes if isinstance(part, fx.GraphModule) else ():
            stack = node.meta.get("nn_module_stack")
            mark = node.meta.get(_NODE) or (_of_module(stack, names) if stack and names else None)
            # Nodes that no module made, such as inputs, have no record to write to.
            if stack and mark is not None:
                number = numbers.setdefault(mark[0], str(len(numbers)))
                entry = ("", write_mark(number, mark[1]))
                node.meta["nn_module_stack"] = {MARK: entry, **stack}


def _of_module(stack: dict[str, tuple[str, Any]], names: dict[str, str]) -> tuple[str, str] | None:
    """Return call and name of the outermost module of a stack that is marked."""
    # The record begins with the outermost module.
    for path, _ in stack.values():
        plain = _CALL_NUMBER.sub("", path)
        if plain in names:
            return path, names[plain]
    return None
