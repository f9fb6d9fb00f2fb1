"""What operators of rules are in a graph: PyTorch's names for single nodes, and for several together."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

import onnx

from samba_onnx.operator_names import FUNCTIONAL
from samba_onnx.passes.planning.fusion.patterns import Pattern, PatternEntry

_FILE: Final = "operators.yaml"


@dataclass(frozen=True, eq=False)
class OperatorNames:
    """What rules may name."""

    nodes: Mapping[str, tuple[str, ...]]
    """ONNX operators that stand alone for a PyTorch operator."""
    forms: Mapping[str, tuple[Pattern, ...]]
    """Patterns of ONNX operators that together are a PyTorch operator, the largest first."""
    absent: frozenset[str]
    """Operators of PyTorch and SambaFlow that no graph has: the compiler writes them with others."""

    def onnx_operators(self, name: str) -> tuple[str, ...]:
        """Return the ONNX operators of which a single node goes by a name."""
        return self.nodes.get(name, () if name in self.forms or name in self.absent else (name,))

    def known(self) -> frozenset[str]:
        """Return all names that a rule may use, but for operators of foreign domains."""
        return frozenset({*self.nodes, *self.forms, *self.absent, *_onnx_names()})

    def matches_nothing(self, name: str) -> bool:
        """Return whether no node and no form goes by a name."""
        return name in self.absent


@functools.cache
def _onnx_names() -> frozenset[str]:
    # Once: to list the schemas of all versions takes as long as to read a file of rules, and every rule asks.
    return frozenset(s.name for s in onnx.defs.get_all_schemas() if s.domain == "")


@functools.cache
def operator_names() -> OperatorNames:
    """Return the table of names, which is part of the package."""
    import yaml

    text = resources.files(__package__).joinpath(_FILE).read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    nodes = {name: tuple(operators) for name, operators in content["nodes"].items()}
    forms = {
        name: tuple(_form(pattern) for pattern in patterns)
        for name, patterns in content["forms"].items()
    }
    # PyTorch's functions without a node and a form of their own are known all the same: a rule may name
    # them, and a note says that it matches nothing.
    absent = {*FUNCTIONAL, *content["absent"]} - nodes.keys() - forms.keys()
    return OperatorNames(nodes, forms, frozenset(absent))


def _form(pattern: Mapping[str, Mapping[str, Any]]) -> Pattern:
    return Pattern({name: _entry(**entry) for name, entry in pattern.items()})


def _entry(
    op_type: str | list[str],
    child: str = "",
    children: tuple[str, ...] = (),
    matrix: bool = False,
    vector: bool = False,
) -> PatternEntry:
    operators = (op_type,) if isinstance(op_type, str) else tuple(op_type)
    return PatternEntry(
        operators, (child,) if child else tuple(children), matrix=matrix, vector=vector
    )
