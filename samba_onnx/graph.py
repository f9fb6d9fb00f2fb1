"""Graphs of a multigraph program: what ``SambaSession.add_graph`` takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from samba_onnx.errors import UsageError
from samba_onnx.facts.names import SEPARATOR
from samba_onnx.tensor import SambaTensor

__all__ = ["FwdGraph", "SambaGraph"]


class SambaGraph:
    """A traced graph with a name, to be compiled together with others."""

    def __init__(
        self,
        inputs: Mapping[str, Any] | Sequence[Any] | Tensor,
        outputs: Sequence[SambaTensor] | SambaTensor,
        name: str = "",
    ) -> None:
        """Name a traced graph.

        Args:
            inputs: The inputs that the graph was traced with, in the same form.
            outputs: All or some of the tensors that ``trace_multigraph`` returned.
            name: Name of the graph, unique among the graphs of one program. When empty, it is
                made from the first output's name.

        Raises:
            UsageError: There is no output, or one is no SambaTensor.
        """
        self.inputs = inputs
        self.outputs = (outputs,) if isinstance(outputs, SambaTensor) else tuple(outputs)
        for output in self.outputs:
            if not isinstance(output, SambaTensor):
                raise UsageError(
                    f"an output of graph {name!r} is {type(output).__name__}; give the tensors "
                    "that trace_multigraph returned"
                )
        if not self.outputs:
            raise UsageError(f"graph {name!r} has no outputs; give those of trace_multigraph")
        self.name = name or self.outputs[0].sn_name.split(SEPARATOR)[0] or "graph"

    def input_tensors(self) -> tuple[Tensor, ...]:
        """Return the tensors among the inputs, in order, however they are nested."""
        return tuple(_tensors(self.inputs))

    def __repr__(self) -> str:
        names = ", ".join(output.name for output in self.outputs)
        return f"{type(self).__name__}(name={self.name!r}, outputs=[{names}])"


class FwdGraph(SambaGraph):
    """A graph that computes forward only."""


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in a value, also those in mappings, lists and tuples."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
