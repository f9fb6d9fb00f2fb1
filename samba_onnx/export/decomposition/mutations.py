"""Takes operators that write to their operands out of a traced graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from samba_onnx.export.decomposition.functionalizing import functionalized
from samba_onnx.safety.collecting import collections_deferred


@collections_deferred()
def made_functional(
    traced: fx.GraphModule, table: dict[Any, Any], enter: Callable[[fx.Node], None]
) -> fx.GraphModule:
    """Return a graph in which every operator leaves its operands as they are.

    Where views of what is written are read later, torch's own functionalisation traces the graph
    once more.

    Args:
        traced: What ``make_fx`` made.
        table: Decompositions for a second trace.
        enter: Called with every node before a second trace executes it.
    """
    # First without tracing once more, which takes as long as the trace itself.
    simple = functionalized(traced)
    if simple is not None:
        return simple
    examples = [node.meta["val"] for node in traced.graph.find_nodes(op="placeholder")]
    replay = torch.func.functionalize(_Replay(traced, enter).run, remove="mutations")
    return make_fx(replay, decomposition_table=table, tracing_mode="fake")(*examples)


class _Replay(fx.Interpreter):
    """Executes a traced graph again, and says which node it is at."""

    def __init__(self, traced: fx.GraphModule, enter: Callable[[fx.Node], None]) -> None:
        super().__init__(traced)
        self._enter = enter

    def run_node(self, n: fx.Node) -> Any:
        self._enter(n)
        return super().run_node(n)
