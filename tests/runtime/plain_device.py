"""What a device computes, written down plainly: numpy, names and places; nothing is ever repeated.

It shares no code with the product. Values are looked up by name; a value that the documentation
says is gone is gone here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class PlainStage:
    """One section or fallback."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    compute: Callable[..., Any]
    on_rdu: bool = True
    type: str = "FWD"
    graph: str = "main"


class RefusedError(Exception):
    """A run would read what has no value."""


@dataclass
class PlainDevice:
    """Values by name."""

    stages: Sequence[PlainStage]
    outputs: Mapping[str, Sequence[str]]
    """Outputs of each graph."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Region by name, where it is shared."""
    overlaid: frozenset[str] = frozenset()
    """Names that share a region only because their lives do not overlap."""
    residents: frozenset[str] = frozenset()
    argins: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Array] = field(default_factory=dict)
    host_only: set[str] = field(default_factory=set)
    """What a fallback wrote and no section has read since."""

    def run(
        self,
        graph: str,
        selection: Sequence[int] | None,
        inputs: Mapping[str, Array],
        outputs: Sequence[str] | None,
    ) -> dict[str, Array]:
        """Execute stages by their numbers; raise RefusedError and change nothing if one cannot be."""
        before = dict(self.values), set(self.host_only)
        try:
            return self._run(graph, selection, inputs, outputs)
        except RefusedError:
            self.values, self.host_only = before
            raise

    def _run(
        self,
        graph: str,
        selection: Sequence[int] | None,
        inputs: Mapping[str, Array],
        outputs: Sequence[str] | None,
    ) -> dict[str, Array]:
        own = [number for number, stage in enumerate(self.stages) if stage.graph == graph]
        chosen = own if selection is None else selection
        for name, value in inputs.items():
            if any(
                name in self.stages[number].inputs for number in own if self.stages[number].on_rdu
            ):
                self.put(name, value)
            else:
                self.values[name] = np.array(value)
                self.host_only.add(name)
        written: set[str] = set()
        for group in self._groups(chosen):
            written |= self._execute(group)
        if outputs is None:
            outputs = [n for n in self.outputs[graph] if chosen == own or n in written]
        missing = [name for name in outputs if name not in self.values]
        if missing:
            raise RefusedError(missing)
        results = {name: self.values[name].copy() for name in outputs}
        if chosen == own:
            for name in written & self.host_only:
                del self.values[name]
            self.host_only -= written
        return results

    def put(self, name: str, value: Array) -> None:
        """Let a name have a value, and those of its region have it as well or none any more."""
        self.values[name] = np.array(value)
        self.host_only.discard(name)
        for other, place in self.places.items():
            if other != name and place == self.places.get(name):
                self.host_only.discard(other)
                if name in self.overlaid or other in self.overlaid:
                    self.values.pop(other, None)
                else:
                    self.values[other] = np.array(value)

    def _groups(self, chosen: Sequence[int]) -> list[list[int]]:
        groups: list[list[int]] = []
        for number in chosen:
            stage = self.stages[number]
            last = self.stages[groups[-1][-1]] if groups else None
            if last is None or (last.on_rdu, last.type) != (stage.on_rdu, stage.type):
                groups.append([])
            groups[-1].append(number)
        return groups

    def _execute(self, group: Sequence[int]) -> set[str]:
        inner: dict[str, Array] = {}
        for number in group:
            stage = self.stages[number]
            arguments = []
            for name in stage.inputs:
                if name not in inner and name not in self.values and name not in self.argins:
                    raise RefusedError(name)
                if name in self.host_only and name not in inner and stage.on_rdu:
                    self.put(name, self.values[name])
                known = {**self.argins, **self.values, **inner}
                arguments.append(known[name])
            results = stage.compute(*arguments)
            results = results if isinstance(results, tuple) else (results,)
            inner |= dict(zip(stage.outputs, results, strict=True))
        kept = [name for name in inner if self._stays(name, group, inner)] or list(inner)[-1:]
        for name in inner.keys() - set(kept):
            self.values.pop(name, None)
        for name in kept:
            self.put(name, inner[name])
            if not self.stages[group[0]].on_rdu:
                self.host_only.add(name)
        return set(kept)

    def _stays(self, name: str, group: Sequence[int], inner: Mapping[str, Array]) -> bool:
        """Whether it is the last of its place, and somebody else may want it."""
        place = self.places.get(name, name)
        if [other for other in inner if self.places.get(other, other) == place][-1] != name:
            return False
        readers = {n for n, stage in enumerate(self.stages) if name in stage.inputs}
        wanted = any(name in names for names in self.outputs.values()) or name in self.residents
        return wanted or not readers <= set(group)
