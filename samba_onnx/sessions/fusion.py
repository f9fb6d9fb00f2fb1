"""``samba.directives.op_fusion``: a module, or lines of one, that are to be one section at ``o1``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from torch import nn

from samba_onnx.export.capture.fusion_marks import mark_module, marked_lines
from samba_onnx.program.fusion_marks import read_mark
from samba_onnx.program.program import Program

__all__ = ["DIRECTIVE", "fuse", "hints_beside"]

DIRECTIVE: Final = "op_fusion"
_EFFECTIVE: Final = ("on", "func_name")
"""What a use of it says that has an effect at ``o1``."""


def fuse(
    record_hint: Callable[[str, Any], None], arguments: tuple[Any, ...], hints: Mapping[str, Any]
) -> AbstractContextManager[None]:
    """Mark what one use of ``op_fusion`` is about.

    Args:
        record_hint: Keeps the use, by its name, as a hint for a PEF of which it makes no section.
        arguments: A module and a name, or the name of a function.
        hints: ``func_name``, ``heuristic`` and others.

    Returns:
        A context that marks what is computed inside, or does nothing where a module was marked.
    """
    words = [
        type(argument).__name__ if isinstance(argument, nn.Module) else argument
        for argument in arguments
    ]
    record_hint(DIRECTIVE, {**({"on": words} if words else {}), **hints})
    name = _name(arguments, hints)
    modules = [argument for argument in arguments if isinstance(argument, nn.Module)]
    for module in modules:
        mark_module(module, name)
    # A module is marked for good; lines are marked only as long as the block lasts.
    return nullcontext() if modules else marked_lines(name)


def _name(arguments: Iterable[Any], hints: Mapping[str, Any]) -> str:
    """Return what reports call a section: by its heuristic, else by its function."""
    words = (hints.get("heuristic"), *arguments, hints.get("func_name"))
    return f"op_fusion({next((word for word in words if word and isinstance(word, str)), '')})"


def hints_beside(hints: Mapping[str, Any], programs: Iterable[Program]) -> dict[str, Any]:
    """Return hints without what has become sections of programs that are compiled at ``o1``.

    Args:
        hints: As the session recorded them.
        programs: What is compiled.

    Returns:
        The hints that have no effect. A use of the directive that marked nothing is still one of them.
    """
    marks = {
        mark[1]
        for program in programs
        for part in program.parts
        for node in part.model.graph
        if (mark := read_mark(node)) is not None
    }
    uses = hints.get(DIRECTIVE)
    left = [_left(use, marks) for use in (uses if isinstance(uses, list) else [uses])]
    kept = [use for use in left if use]
    others = {name: value for name, value in hints.items() if name != DIRECTIVE}
    return others | ({DIRECTIVE: kept[0] if len(kept) == 1 else kept} if kept else {})


def _left(use: Any, marks: set[str]) -> Any:
    """Return what one use says without effect."""
    if not isinstance(use, dict):
        return use
    words = use.get("on") or ()  # a module is there by the name of its class
    # A use of which no node carries the mark had no effect at all: it stays whole.
    if marks.isdisjoint((_name(words, use), _name(words[1:], use))):
        return use
    named = use.get("heuristic")
    return {
        key: value
        for key, value in use.items()
        if key not in _EFFECTIVE and not (key == "heuristic" and isinstance(named, str))
    }
