"""What a pickle says, without doing any of it: no class is looked up, nothing is called or made.

A pickle is a program: to unpickle is to run it, and even among the few functions that torch lets it call
are some that take any amount of memory (``bytearray`` of a number) or of time (a key that is a tuple of
tuples, each twice in the next one, which has to be hashed). Here its instructions are only written down, as
records of what would be called with what. That takes time and memory in proportion to the file's size.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, Final, cast

__all__ = [
    "MOST_BYTES",
    "MOST_INSTRUCTIONS",
    "Called",
    "Description",
    "Named",
    "Persistent",
    "described",
    "looked_through",
]

MOST_BYTES: Final = 64 << 20
"""Bytes of a file's instructions, names and texts among them; the numbers of tensors lie elsewhere."""
MOST_INSTRUCTIONS: Final = 4 << 20
"""Some 30 describe a tensor; so many take 9 s and half a gigabyte at most."""


@dataclass(frozen=True)
class Named:
    """A class or function that would be imported."""

    name: str
    """Its name with that of its module, for example ``collections.OrderedDict``."""


@dataclass(frozen=True, eq=False)
class Persistent:
    """What the program that reads the file would put in its place: torch's storages."""

    identity: Any


@dataclass(frozen=True, eq=False)
class Called:
    """What a call would have made."""

    function: Any
    arguments: Any
    items: dict[str, Any] = field(default_factory=dict)
    """What was entered into it afterwards, by text."""


class _Limited:
    """Reads a file up to a number of bytes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._left = file, MOST_BYTES
        self.tell = file.tell

    def read(self, size: int) -> bytes:
        return self._counted(self._file.read(self._allowed(size)))

    def readline(self) -> bytes:
        # A hole is a line without an end.
        line = self._file.readline(self._left + 1)
        self._allowed(len(line))
        return self._counted(line)

    def _allowed(self, size: int) -> int:
        if size > self._left:
            raise ValueError(f"its instructions take more than {MOST_BYTES >> 20} MiB")
        return size

    def _counted(self, content: bytes) -> bytes:
        self._left -= len(content)
        return content


@dataclass(frozen=True)
class Description:
    """What was found in a pickle."""

    root: Any
    """What it would make."""
    names: frozenset[str]
    """All that it would import."""
    persistent: tuple[Any, ...]
    """The identities of all that the program would put in its place, in the order of the file."""
    other_keys: bool
    """Whether a dict in it has keys that are no plain values, which may take any time to hash."""


def described(file: IO[bytes]) -> Any:
    """Return what a pickle would make, of plain values and records.

    Args:
        file: Open at the pickle's first byte; it is at the one after its last byte then.

    Returns:
        As the root of ``looked_through``.

    Raises:
        ValueError: It is no pickle, a damaged one, or longer than any of a real file.
    """
    return looked_through(file).root


def looked_through(file: IO[bytes]) -> Description:
    """Return what a pickle would make, of plain values and records, and what it would import.

    Args:
        file: Open at the pickle's first byte; it is at the one after its last byte then.

    Returns:
        Its root: numbers, texts, bytes, None, lists (sets, too) and tuples as they are; dicts with those of their keys
        that are texts; and ``Named``, ``Persistent`` and ``Called`` for the rest.

    Raises:
        ValueError: It is no pickle, a damaged one, or longer than any of a real file.
    """
    machine = _Machine()
    try:
        for count, (opcode, argument, _) in enumerate(
            pickletools.genops(cast("IO[bytes]", _Limited(file)))
        ):
            if count == MOST_INSTRUCTIONS:
                raise ValueError(f"it has more than {MOST_INSTRUCTIONS} instructions")
            machine.do(opcode.name, argument)
        root, names = machine.stack.pop(), frozenset(machine.names)
        return Description(root, names, tuple(machine.persistent), machine.other_keys)
    # What Python raises when instructions do not fit what lies on the stack.
    except (IndexError, KeyError, TypeError, AttributeError, OverflowError) as error:
        # A file that takes from an empty stack, or enters into a number.
        raise ValueError(f"an instruction has no sense here: {error!r}") from None


_VALUES: Final = frozenset({
    "INT", "LONG", "LONG1", "LONG4", "BININT", "BININT1", "BININT2", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "BINUNICODE8", "SHORT_BINUNICODE", "BINBYTES", "BINBYTES8",
    "SHORT_BINBYTES", "BYTEARRAY8",
})  # fmt: skip
"""Instructions whose argument is the value."""
_NEW: Final[Mapping[str, Callable[[], Any]]] = {
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
    "EMPTY_LIST": list, "EMPTY_SET": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple,
}  # fmt: skip
_PLAIN: Final = (str, int, float, bytes, type(None))
_TUPLES: Final = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
# Frames and versions change nothing of what is made.
_NOTHING: Final = frozenset({"PROTO", "FRAME", "STOP"})


class _Machine:
    """The stack and the memory of the machine that pickles are programs of."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.names: set[str] = set()
        self.persistent: list[Any] = []
        self.other_keys = False
        self._marked: list[list[Any]] = []
        self._memory: dict[int, Any] = {}

    def do(self, name: str, argument: Any) -> None:
        """Follow an instruction.

        Args:
            name: What the instruction is called.
            argument: What stands after it in the file.

        Raises:
            ValueError: No program that saves tensors has such an instruction.
        """
        if name in _VALUES:
            self.stack.append(argument)
        elif name in _NEW:
            self.stack.append(_NEW[name]())
        elif name in _TUPLES:
            self.stack.append(tuple(self._pop(_TUPLES[name])))
        elif name not in _NOTHING:
            follow = _INSTRUCTIONS.get(name)
            if follow is None:
                # What is not listed is refused: an unknown instruction could take any amount of
                # work.
                raise ValueError(f"no program that saves tensors has the instruction {name}")
            follow(self, argument)

    def _pop(self, count: int) -> list[Any]:
        if count > len(self.stack):
            raise IndexError("the stack is too short")
        items = self.stack[-count:]
        del self.stack[-count:]
        return items

    def _mark(self, _: Any) -> None:
        self._marked.append(self.stack)
        self.stack = []

    def _push(self, item: Any) -> None:
        self.stack.append(item)

    def _popped(self) -> list[Any]:
        """Return all since the last mark."""
        items, self.stack = self.stack, self._marked.pop()
        return items

    def _get(self, place: int) -> None:
        self.stack.append(self._memory[place])

    def _put(self, place: int) -> None:
        self._memory[place] = self.stack[-1]

    def _memoize(self, _: Any) -> None:
        self._memory[len(self._memory)] = self.stack[-1]

    def _append(self, items: list[Any]) -> None:
        if isinstance(self.stack[-1], list):  # or into an object, which may be passed over
            self.stack[-1].extend(items)

    def _enter(self, items: list[Any]) -> None:
        target = self.stack[-1]
        entries: dict[str, Any] = target.items if isinstance(target, Called) else target
        # Keys that are no texts name no weight; to hash one may take any time.
        self.other_keys |= not all(isinstance(key, _PLAIN) for key in items[::2])
        entries.update(
            (key, value)
            for key, value in zip(items[::2], items[1::2], strict=True)
            if isinstance(key, str)
        )

    def _dict(self, _: Any) -> None:
        items = self._popped()
        self.stack.append({})
        self._enter(items)

    def _call(self, _: Any) -> None:
        function, arguments = self._pop(2)
        self.stack.append(Called(function, arguments))

    def _import(self, _: Any) -> None:
        names = self._pop(2)
        if not all(isinstance(name, str) for name in names):
            raise TypeError("a name is no text")
        self._name(".".join(names))

    def _name(self, name: str) -> None:
        self.names.add(name)
        self.stack.append(Named(name))

    def _persist(self, _: Any) -> None:
        self.persistent.append(self.stack.pop())
        self.stack.append(Persistent(self.persistent[-1]))


_INSTRUCTIONS: Final[Mapping[str, Callable[[_Machine, Any], None]]] = {
    "MARK": _Machine._mark,
    "POP": lambda machine, _: machine._pop(1).clear(),
    "POP_MARK": lambda machine, _: machine._popped().clear(),
    "DUP": lambda machine, _: machine.stack.append(machine.stack[-1]),
    "TUPLE": lambda machine, _: machine._push(tuple(machine._popped())),
    "LIST": lambda machine, _: machine._push(machine._popped()),
    "FROZENSET": lambda machine, _: machine._push(machine._popped()),
    "DICT": _Machine._dict,
    "APPEND": lambda machine, _: machine._append(machine._pop(1)),
    "APPENDS": lambda machine, _: machine._append(machine._popped()),
    "ADDITEMS": lambda machine, _: machine._append(machine._popped()),
    "SETITEM": lambda machine, _: machine._enter(machine._pop(2)),
    "SETITEMS": lambda machine, _: machine._enter(machine._popped()),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Machine._get),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _Machine._put),
    "MEMOIZE": _Machine._memoize,
    "GLOBAL": lambda machine, names: machine._name(names.replace(" ", ".")),
    "STACK_GLOBAL": _Machine._import,
    "BINPERSID": _Machine._persist,
    # Both call something with arguments, and neither is done here.
    **dict.fromkeys(("REDUCE", "NEWOBJ"), _Machine._call),
    # The state of an object is the object's own business, and nothing of it is a weight.
    "BUILD": lambda machine, _: machine._pop(1).clear(),
}
