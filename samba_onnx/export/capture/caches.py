"""Caches of keys, values and states, as ``transformers`` has them: taken apart into their tensors.

Torch knows none of their classes. Here they are entered into its registry of containers, so that a cache
among the inputs of a module is a number of inputs, and one that it returns a number of outputs. Nothing of
``transformers`` is imported: who has a cache has imported it.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree

from samba_onnx.errors import UsageError
from samba_onnx.export.capture.sliding_caches import (
    LENGTH,
    NUMBER,
    follow_length,
    length_of,
    original_class,
)

__all__ = ["has_cache", "is_cache", "register_caches", "tensors_of"]

_MODULE: Final = "transformers.cache_utils"
_LAYERS: Final = "layers"
_SPOKEN: Final = MappingProxyType(
    {
        "keys": "key",
        "values": "value",
        "self_attention_cache": "self",
        "cross_attention_cache": "cross",
    }
)
"""What names of values say in the place of an attribute's."""
_Path = tuple[str | int, ...]


def is_cache(value: object) -> bool:
    """Return whether a value is a cache of ``transformers`` that can be taken apart."""
    cache = _base()
    return cache is not None and isinstance(value, cache)


def has_cache(inputs: Any) -> bool:
    """Return whether there is a cache in nested inputs, be it an empty one."""
    # Whole caches as leaves: an empty one has no tensor that could be found.
    leaves = pytree.tree_leaves(inputs, is_leaf=is_cache)
    return any(map(is_cache, leaves))


def register_caches() -> None:
    """Let torch take caches apart, of every class that is there by now.

    A class that is entered already, as ``transformers`` itself may have done, stays as it is.
    """
    cache = _base()
    if cache is None:
        return
    # The registry finds a class itself only, and not by its bases.
    for kind in (cache, *_subclasses(cache)):
        if kind not in pytree.SUPPORTED_NODES:
            pytree.register_pytree_node(
                kind,
                _flatten,
                _unflatten,
                serialized_type_name=f"{kind.__module__}.{kind.__qualname__}",
                flatten_with_keys_fn=_flatten_with_keys,
            )


def tensors_of(cache: Any) -> dict[str, Any]:
    """Return the tensors of a cache as nested mappings: layer, key or value or state, and its number.

    Args:
        cache: For which ``is_cache`` is true.

    Raises:
        UsageError: It keeps tensors in another way.
    """
    nested: dict[str, Any] = {}
    for path, tensor in _parts(cache)[0]:
        *outer, last = _words(path)
        place = nested
        for word in outer:
            place = place.setdefault(word, {})
        place[last] = tensor
    return nested


def _base() -> Any:
    return getattr(sys.modules.get(_MODULE), "Cache", None)


def _subclasses(kind: type) -> Iterator[type]:
    inner: type
    for inner in type.__subclasses__(kind):
        yield inner
        yield from _subclasses(inner)


@dataclass(frozen=True)
class _Skeleton:
    """A cache without its tensors: what is left to make another one of other tensors."""

    cache: Any
    paths: tuple[_Path, ...]

    @property
    def _described(self) -> tuple[str, ...]:
        """All that decides what a module does with the cache, as text."""
        # As text, since settings may be objects that are equal to nothing but themselves.
        return (str(self.paths), *_settings(self.cache))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Skeleton) and self._described == other._described

    def __hash__(self) -> int:
        # Equal skeletons have equal paths, and the text of all settings is long.
        return hash(self.paths)

    def __repr__(self) -> str:
        return f"{type(self.cache).__name__}({', '.join(self._described)})"


def _flatten(cache: Any) -> tuple[list[Any], _Skeleton]:
    parts, skeleton = _parts(cache)
    return [tensor for _, tensor in parts], skeleton


def _flatten_with_keys(cache: Any) -> tuple[list[tuple[Any, Any]], _Skeleton]:
    parts, skeleton = _parts(cache)
    return [(pytree.MappingKey("__".join(_words(path))), leaf) for path, leaf in parts], skeleton


def _unflatten(leaves: Iterable[Any], skeleton: _Skeleton) -> Any:
    """Return a cache of the skeleton's class and settings, with other tensors."""
    cache = _bare(skeleton.cache)
    for path, leaf in zip(skeleton.paths, leaves, strict=True):
        _put(cache, path, leaf)
    _follow_lengths(cache)
    return cache


def _follow_lengths(owner: Any) -> None:
    """Let all sliding windows in a cache go by the lengths that they were given."""
    for name, value in list(_members(owner)):
        if _is_inner(value):
            _follow_lengths(value)
            _place(owner)[name] = follow_length(value)


def _words(path: _Path) -> list[str]:
    return [_SPOKEN.get(str(step), str(step)) for step in path if step != _LAYERS]


def _parts(cache: Any) -> tuple[list[tuple[_Path, Any]], _Skeleton]:
    """Return the tensors of a cache, each with the path to it, and what else there is."""
    _refuse_unless_plain(cache)
    parts = list(_tensors(cache, ()))
    return parts, _Skeleton(_bare(cache), tuple(path for path, _ in parts))


def _refuse_unless_plain(cache: Any) -> None:
    if getattr(cache, "offloading", False):
        raise UsageError(
            f"a {type(cache).__name__} among the inputs or outputs is offloaded, which makes copies that "
            "no graph can express: give one without offloading"
        )


def _tensors(owner: Any, path: _Path) -> Iterator[tuple[_Path, Any]]:
    """Yield what changes from run to run; attributes with an underscore are settings."""
    length = length_of(owner)
    for name, value in _members(owner):
        if isinstance(name, str) and name.startswith("_"):
            continue
        if isinstance(value, torch.Tensor):
            yield (*path, name), length if name == LENGTH and length is not None else value
        elif _is_inner(value):
            yield from _tensors(value, (*path, name))


def _is_inner(value: Any) -> bool:
    """Return whether tensors may be inside: in a list, a dict, a layer's part, or a cache in a cache."""
    if isinstance(value, list | dict):
        return True
    return any(base.__module__ == _MODULE for base in type(value).__mro__)


def _members(owner: Any) -> Iterator[tuple[str | int, Any]]:
    if isinstance(owner, list):
        yield from enumerate(owner)
    else:
        yield from (owner if isinstance(owner, dict) else vars(owner)).items()


def _bare(owner: Any) -> Any:
    """Return a copy with None in the place of every tensor that changes from run to run."""
    if isinstance(owner, list):
        return [_bare_member(value) for value in owner]
    if isinstance(owner, dict):
        return {name: _bare_member(value) for name, value in owner.items()}
    # Past __init__, which wants a configuration and may allocate tensors.
    twin: Any = object.__new__(original_class(owner))
    for name, value in vars(owner).items():
        vars(twin)[name] = value if name.startswith("_") else _bare_member(value)
    if NUMBER in vars(twin):
        # The tensor says it: two caches differ in nothing else when one is longer.
        vars(twin)[NUMBER] = 0
    return twin


def _bare_member(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return None
    return _bare(value) if _is_inner(value) else copy.copy(value)


def _put(owner: Any, path: _Path, leaf: Any) -> None:
    """Write a tensor to where a path leads."""
    *outer, last = path
    for step in outer:
        owner = _place(owner)[step]
    _place(owner)[last] = leaf


def _place(owner: Any) -> Any:
    """Return what holds the members: lists and dicts do so themselves."""
    return owner if isinstance(owner, list | dict) else vars(owner)


def _settings(owner: Any) -> Iterator[str]:
    """Yield what is no tensor, each with its name."""
    for name, value in _members(owner):
        if _is_inner(value):
            yield f"{name}: {type(value).__name__}"
            yield from _settings(value)
        elif not isinstance(value, torch.Tensor):
            yield f"{name}={value!r}"
