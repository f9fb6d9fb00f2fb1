"""The nodes of the stages of a manifest, for whoever looks at more than their numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

__all__ = ["StageGraphs"]


class StageGraphs:
    """Gives the nodes of each stage: those that were planned, or those of the stage's file in an open PEF."""

    def __init__(self, nodes: Callable[[int], Sequence[ir.Node]]) -> None:
        """Keep what gives the nodes of the stage with an id, in the order in which they run."""
        self.nodes = nodes

    @classmethod
    def of_models(cls, read: Callable[[int], onnx.ModelProto]) -> StageGraphs:
        """Return those of stages that are read when somebody asks.

        Args:
            read: Returns the model of the stage with an id.
        """

        def nodes(stage: int) -> Sequence[ir.Node]:
            import onnx_ir as ir

            # Content of weights stays in the file: nobody reads it for names and shapes.
            return tuple(ir.from_proto(read(stage)).graph)

        return cls(nodes)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Say to pydantic, which describes manifests, that there is nothing to describe."""
        # Here, not above: only who writes schemas waits for pydantic.
        from pydantic_core.core_schema import any_schema

        return any_schema()
