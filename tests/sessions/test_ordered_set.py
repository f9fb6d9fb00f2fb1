"""The set that remembers its order."""

from __future__ import annotations

from samba_onnx.sessions import OrderedSet


def test_order_is_that_of_insertion() -> None:
    items = OrderedSet(["b", "a", "b", "c"])
    assert list(items) == ["b", "a", "c"]
    items.add("a")
    items.discard("b")
    items.discard("unknown")
    items.add("b")
    items.update(["d", "c"])
    assert list(items) == ["a", "c", "b", "d"]
    assert list(reversed(items)) == ["d", "b", "c", "a"]
    assert (items[0], items[-1], len(items)) == ("a", "d", 4)
    assert repr(items) == "OrderedSet(['a', 'c', 'b', 'd'])"


def test_it_is_a_set() -> None:
    items = OrderedSet([(1, "x"), (2, "y")])
    assert (1, "x") in items
    assert items == {(2, "y"), (1, "x")}
    assert list(items | [(3, "z")]) == [(1, "x"), (2, "y"), (3, "z")]
    assert list(items & {(2, "y")}) == [(2, "y")]
    assert list(items - {(2, "y")}) == [(1, "x")]
    assert not OrderedSet()
