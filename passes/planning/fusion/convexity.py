"""Which nodes may become one block without blocks waiting for each other in a circle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from samba_onnx.program.dataflow import Dataflow


class BlockOrder:
    """Blocks of nodes in an order in which they can run; at first, every node is one.

    Joining nodes only looks at the blocks between the first and the last of them, and puts these into order
    again, so that many small blocks in a large graph take no more time than few.
    """

    def __init__(self, flow: Dataflow) -> None:
        """Begin with one block per node.

        Args:
            flow: Nodes in topological order.
        """
        self._flow = flow
        self._blocks: list[tuple[int, ...]] = [(p,) for p in range(len(flow.nodes))]
        """Positions of nodes, ascending, by id of their block; empty for one that was joined to another."""
        self._block = list(range(len(flow.nodes)))
        """Id of the block of each node."""
        self._rank = list(range(len(flow.nodes)))
        """Where each block stands."""
        self._order = list(range(len(flow.nodes)))
        """Ids of blocks by rank; -1 where one was joined to another."""

    def blocks(self) -> Iterator[tuple[int, ...]]:
        """Yield the positions of the nodes of each block, in an order in which blocks can run."""
        for block in self._order:
            if block >= 0:
                yield self._blocks[block]

    def join(self, positions: Sequence[int]) -> bool:
        """Make blocks one, if that is possible.

        Args:
            positions: Nodes; the blocks that they are in become one.

        Returns:
            Whether it was done: not, if a way leads out of the new block and back into it.
        """
        joined = {self._block[position] for position in positions}
        ranks = sorted(self._rank[block] for block in joined)
        after = self._after(joined, ranks[-1])
        if after is None:
            return False
        window = self._order[ranks[0] : ranks[-1] + 1]
        first = self._order[ranks[0]]
        # What does not wait for the new block runs before it, and what waits for it behind. Nothing between
        # does both, or `_after` would have found the circle.
        before = [b for b in window if b >= 0 and b not in joined and b not in after]
        later = [block for block in window if block in after]
        order = [*before, first, *later]
        # The window stays as long as it was, so that no block outside of it gets another rank.
        order += [-1] * (len(window) - len(order))
        for rank, block in enumerate(order, start=ranks[0]):
            self._order[rank] = block
            if block >= 0:
                self._rank[block] = rank
        # Positions are topological: ascending, the nodes of a block can run one after the other.
        members = sorted(position for block in joined for position in self._blocks[block])
        for block in joined:
            self._blocks[block] = ()
        self._blocks[first] = tuple(members)
        for position in members:
            self._block[position] = first
        return True

    def _after(self, joined: Set[int], last: int) -> set[int] | None:
        """Return the blocks up to a rank that wait for some; None if one of these waits for them."""
        after: set[int] = set()
        pending = list(joined)
        while pending:
            for block in self._followers(self._blocks[pending.pop()]):
                # Nothing behind the last of them leads back: who waits has the higher rank.
                if block in joined or block in after or self._rank[block] > last:
                    continue
                after.add(block)
                pending.append(block)
        for block in after:
            if not joined.isdisjoint(self._followers(self._blocks[block])):
                return None
        return after

    def _followers(self, nodes: Sequence[int]) -> set[int]:
        return {self._block[p] for node in nodes for p in self._flow.successors(node)}
