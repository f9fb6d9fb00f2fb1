"""A set that remembers the order in which things were put into it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, MutableSet
from typing import Any, TypeVar

T = TypeVar("T", bound=Hashable)


class OrderedSet(MutableSet[T]):
    """A set whose iteration order is the order of insertion.

    Equal to any other set with the same elements, whatever their order.
    """

    def __init__(self, items: Iterable[T] = ()) -> None:
        """Take the items, each once.

        Args:
            items: Hashable things.
        """
        # A dict remembers the order, which a set does not.
        self._items: dict[T, None] = dict.fromkeys(items)

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def __reversed__(self) -> Iterator[T]:
        return reversed(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> T:
        return tuple(self._items)[index]

    def __repr__(self) -> str:
        return f"OrderedSet({list(self._items)!r})"

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> OrderedSet[Any]:
        return cls(it)

    def add(self, value: T) -> None:
        """Put an item at the end, unless it is in the set."""
        self._items[value] = None

    def discard(self, value: T) -> None:
        """Take an item out, if it is in the set."""
        self._items.pop(value, None)

    def update(self, items: Iterable[T]) -> None:
        """Add several items, in their order."""
        self._items.update(dict.fromkeys(items))
