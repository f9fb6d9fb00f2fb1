"""Which nodes of an exported graph read which: what torch's exporter forgot of it."""

from __future__ import annotations

from torch import fx
from torch.export import ExportedProgram

__all__ = ["restore_users"]


def restore_users(program: ExportedProgram) -> None:
    """Let every node know all nodes that read it.

    Where ``forward`` switches gradients on or off, torch's exporter cuts the graph into parts, and puts
    those that need no context of their own back in line. Of a part with one result it then forgets who
    reads that result within the part, such as a rule for gradients. A later change of the graph would
    leave such a reader behind, or end in an error of torch's.

    Args:
        program: As ``torch.export`` returned it; it is changed in place.
    """
    for part in program.graph_module.modules():
        if isinstance(part, fx.GraphModule):
            for node in part.graph.nodes:
                for source in node.all_input_nodes:
                    # torch keeps users as the keys of a dictionary, in the order of the graph.
                    source.users.setdefault(node)
