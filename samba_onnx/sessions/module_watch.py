"""What a program changes in its module after the trace, which the compiled graph does not follow.

A run asks how often anything was written on the host. Only where that is more than before, versions of
tensors, flags and attributes are compared, and only where these differ, it is found out what changed. Each cause is spoken of once per trace.
"""

from __future__ import annotations

import functools
import logging
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any, Final

from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from samba_onnx.errors import UsageError
from samba_onnx.export.capture.explanations import user_place
from samba_onnx.program.kinds import SectionType
from samba_onnx.tensor import SambaTensor
from samba_onnx.tensor.carried import carried, collect
from samba_onnx.tensor.host_writes import HOST_WRITES
from samba_onnx.tensor.native import natively

__all__ = ["ModuleWatch", "copied"]

LOGGER: Final = logging.getLogger(__name__)

_VERSION: Final[Callable[[Tensor], int]] = Tensor._version.__get__  # type: ignore[attr-defined]
_REQUIRES_GRAD: Final[Callable[[Tensor], bool]] = Tensor.requires_grad.__get__  # type: ignore[attr-defined]
_STANDARD: Final = frozenset(vars(nn.Module())) - {"training"}
_MEMBERS: Final = ("_modules", "_parameters", "_buffers")
_MOST: Final = 3
"""So many names are in a message."""
_WATCHES: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
_TRAINING: Final = frozenset({SectionType.BCKWD, SectionType.OPT})


@dataclass(frozen=True)
class _Entry:
    """One thing in a dictionary of a module that a run would have to follow."""

    module: nn.Module
    path: str
    kind: str
    """``attribute``, or the name of the module's dictionary of members."""
    key: str

    @property
    def held_in(self) -> dict[str, Any]:
        """The dictionary."""
        own: dict[str, Any] = vars(self.module)
        return own if self.kind == "attribute" else own[self.kind]

    @property
    def name(self) -> str:
        """How the program writes it."""
        return ".".join(filter(None, (self.path, self.key)))


@dataclass(eq=False)
class ModuleWatch:
    """Compares a module with what it was when it was traced, or was last copied from or to the device."""

    model: nn.Module
    gradients: Collection[str]
    """Paths of the parameters that the program computes gradients of; empty where it only runs forward."""
    _told: set[str] = field(default_factory=set)
    _names: list[str] = field(default_factory=list)
    _tensors: list[Tensor] = field(default_factory=list)
    _versions: list[int] = field(default_factory=list)
    _polled: list[Tensor] = field(default_factory=list)
    _polled_versions: list[int] = field(default_factory=list)
    _polls_flags: bool = False
    _count: int = -1

    def __post_init__(self) -> None:
        """Note what the module is now."""
        _WATCHES.add(self)
        HOST_WRITES.see_modules()
        tensors = [*self.model.parameters(), *self.model.buffers()]
        weakref.finalize(self, HOST_WRITES.unwatch, list(map(id, tensors)))
        self._entries = list(_entries(self.model))
        self._places = [entry.held_in for entry in self._entries]
        self._keys = [entry.key for entry in self._entries]
        self._training = self.model.training
        self._spoken_of = {
            *dict(self.model.named_parameters()),
            *(
                ".".join(filter(None, (path, one.buffer)))
                for path, inner in self.model.named_modules()
                for one in carried(inner)
            ),
        }
        self._held = self._holdings()
        self.accept()
        with natively():
            self._flags = list(map(_REQUIRES_GRAD, self._tensors))
        self._traced_flags = dict(zip(self._names, self._flags, strict=True))

    def accept(self, only: Collection[int] | None = None) -> None:
        """Take what the host has now for what the device has: it was copied, or spoken of.

        Args:
            only: Identities of the tensors that this is said of; None for all.
        """
        members = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        known = {} if only is None else dict(zip(self._names, self._versions, strict=True))
        self._names, self._tensors = list(members), list(members.values())
        HOST_WRITES.watch(tensor for tensor in self._tensors if only is None or id(tensor) in only)
        with natively():
            self._versions = [
                _VERSION(tensor) if only is None or id(tensor) in only else known.get(name, -1)
                for name, tensor in members.items()
            ]
        # Parameters of ours count their writes; of what else there is, versions are compared in each run.
        pairs = list(zip(self._tensors, self._versions, strict=True))
        self._polled = [tensor for tensor, _ in pairs if not isinstance(tensor, SambaTensor)]
        self._polled_versions = [v for t, v in pairs if not isinstance(t, SambaTensor)]
        # Nor do they say that they were frozen.
        self._polls_flags = any(isinstance(tensor, nn.Parameter) for tensor in self._polled)

    def look(self, section_types: Collection[str]) -> None:
        """Say, or refuse, what has changed since the trace and a run would not follow.

        Args:
            section_types: What the run is about to execute.

        Raises:
            UsageError: It would be wrong whatever was meant: gradients of other parameters than now
                require them, modules that were exchanged, or state that is gone.
        """
        count = HOST_WRITES.count
        # Nearly every run ends here: one number is compared, and no tensor is looked at.
        if count == self._count and not (
            self._polled
            and (self._is_written(self._polled) or (self._polls_flags and not self._has_flags()))
        ):
            return
        same = self._has_flags()
        written = self._is_written(self._tensors) or HOST_WRITES.exposed
        if not same or written or not self._holds():
            self._explain(section_types)
        # Not where it is refused, maybe by a later run only: flags matter to runs that train.
        if same:
            self._count = count

    def _has_flags(self) -> bool:
        with natively():
            return list(map(_REQUIRES_GRAD, self._tensors)) == self._flags

    def _is_written(self, tensors: list[Tensor]) -> bool:
        versions = self._versions if tensors is self._tensors else self._polled_versions
        with natively():
            return list(map(_VERSION, tensors)) != versions

    def _holdings(self) -> list[Any]:
        return list(map(dict.get, self._places, self._keys))

    def _holds(self) -> bool:
        try:
            return self._holdings() == self._held
        except RuntimeError:  # tensors are compared element by element
            return False

    def _explain(self, section_types: Collection[str]) -> None:
        self._values()
        if not _TRAINING.isdisjoint(section_types):
            self._gradients()
        for place, entry in enumerate(self._entries):
            before, now = self._held[place], self._places[place].get(entry.key)
            # Of that, the run itself speaks; what was compiled is kept, for the mode may come back.
            if entry.key == "training" and self.model.training != self._training:
                continue
            if before is not now and not _equal(before, now):
                self._entry(entry, before, now)
                self._held[place] = now

    def _values(self) -> None:
        """Tell of values that were written on the host and not sent."""
        collect(self.model)
        members = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        triples = zip(self._names, self._tensors, self._versions, strict=True)
        with natively():
            written = [
                name
                for name, tensor, version in triples
                if members.get(name, tensor) is not tensor
                or _VERSION(tensor) not in (version, _sent_version(tensor))
                or HOST_WRITES.wrote(tensor)
            ]
        self.accept()
        # Statistics alone are what a run in torch, to compare with, leaves on the host.
        if not self._spoken_of.isdisjoint(written):
            self._tell(
                "values",
                f"{_listed(written)} of {type(self.model).__name__} got other values on the host since they were "
                "last copied, as by load_state_dict or in place, and runs go on with those of the device: "
                "send them with samba.session.to_rdu(model), or trace the model again",
            )

    def _gradients(self) -> None:
        # A program that only runs forward does not care what requires gradients.
        if not self.gradients:
            return
        before = self._traced_flags
        with natively():
            now = {n: p.requires_grad for n, p in self.model.named_parameters() if n in before}
        frozen = [n for n in now if before[n] and not now[n] and n in self.gradients]
        thawed = [n for n in now if not before[n] and now[n] and n not in self.gradients]
        for names, what in (
            (frozen, "no longer requires gradients, but was compiled to be trained, and would be"),
            (thawed, "requires gradients now, but was compiled without, and would not be trained"),
        ):
            if names:
                raise UsageError(
                    f"{user_place()}: {_listed(names)} {what}: which parameters are trained is part of the "
                    "program, so set requires_grad before compiling, and compile and trace again; "
                    "one PEF for each choice can be kept"
                )

    def _entry(self, entry: _Entry, before: Any, now: Any) -> None:
        """Tell of an attribute or a member that is another one."""
        if entry.kind == "_modules":
            raise UsageError(
                f"{user_place()}: module {entry.name!r} is another {type(now).__name__} than the one that was traced, "
                "and runs compute with that one: compile and trace the model again"
            )
        if entry.kind != "attribute" or entry.key in _carried_names(entry.module):
            return  # members are spoken of by their values
        advice = "compile and trace the model again, or make it an input"
        if isinstance(entry.module, _DropoutNd) and entry.key == "p":
            advice = "give the rate to the run, as hyperparam_dict={'p': rate}, or by the dropout's own name"
        self._tell(
            entry.name,
            f"{entry.name!r} of {type(self.model).__name__} is {_short(now)} now, and runs compute what was "
            f"compiled, with {_short(before)}: {advice}",
        )

    def _tell(self, cause: str, sentence: str) -> None:
        if cause not in self._told:
            self._told.add(cause)
            LOGGER.warning("%s: %s. This is said once per trace.", user_place(), sentence)


def copied(model: nn.Module, tensors: Iterable[Tensor] | None = None) -> None:
    """Note that a module was copied between host and device, in either direction.

    Args:
        model: One that was traced, or any other.
        tensors: The members that were copied; None for all.
    """
    only = None if tensors is None else set(map(id, tensors))
    # A copy of the set: a module that is collected meanwhile would change it.
    for watch in tuple(_WATCHES):
        if watch.model is model:
            watch.accept(only)


def _sent_version(tensor: Tensor) -> int | None:
    return tensor._host.sent if isinstance(tensor, SambaTensor) else None


def _entries(model: nn.Module) -> Iterator[_Entry]:
    """Iterate over what forward passes read of a module, and of those in it."""
    kinds: list[Any] = [type(inner) for inner in model.modules()]
    names = set[str]().union(*map(_names_in, kinds))
    for path, inner in model.named_modules():
        for kind in _MEMBERS:
            yield from (_Entry(inner, path, kind, key) for key in vars(inner)[kind])
        for key in vars(inner):
            if key in names and key not in _STANDARD:
                yield _Entry(inner, path, "attribute", key)


@functools.cache
def _names_in(kind: Any) -> frozenset[str]:
    """Return the names that a class's ``forward``, and methods which it calls, have in their code."""
    names: set[str] = set()
    pending = ["forward"]
    while pending:
        function = getattr(kind, pending.pop(), None)
        if isinstance(function, property):
            function = function.fget
        if not isinstance(function, FunctionType):
            continue
        # Only names that are new: methods that call each other would never end.
        new = _names_of(function.__code__) - names
        names |= new
        pending += new
    return frozenset(names)


def _names_of(code: CodeType) -> set[str]:
    inner = [_names_of(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*inner)


def _carried_names(module: nn.Module) -> set[str]:
    return {one.attribute for one in carried(module)}


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except (RuntimeError, ValueError):  # of tensors and arrays, another object is another value
        return False


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return ", ".join(map(repr, names[:_MOST])) + more


def _short(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}"
    text = repr(value)
    return text if len(text) <= 40 else f"a {type(value).__name__}"
