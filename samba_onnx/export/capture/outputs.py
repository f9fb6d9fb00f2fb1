"""What modules return: tensors in containers that torch knows, in dataclasses, which it does not, and in caches."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch import nn
from torch.utils import _pytree as pytree

from samba_onnx.errors import ModelError
from samba_onnx.export.capture.caches import has_cache, is_cache, register_caches, tensors_of
from samba_onnx.facts.names import SEPARATOR
from samba_onnx.tensor.inputs import key_text

__all__ = ["Fields", "field_names", "plain_outputs", "with_plain_outputs"]

_KEPT: Final = (bool, float, int, str, torch.Tensor, torch.SymBool, torch.SymFloat, torch.SymInt)
_DROPPED: Final = (bytes, complex, enum.Enum, torch.device, torch.dtype)
"""Values without tensors inside, which a graph has no form for."""
_PRESENT: Final = "present"
"""What names of outputs say in the place of a cache's: its inputs have the name of the argument."""


class Fields(dict[str, Any]):
    """What a dataclass or a cache returned, by the names of its fields, which outputs are named after."""


class _CacheFields(Fields):
    """What a cache returned, by layer."""


def _flatten(fields: Fields) -> tuple[list[Any], tuple[str, ...]]:
    return list(fields.values()), tuple(fields)


def _flatten_with_keys(fields: Fields) -> tuple[list[tuple[Any, Any]], tuple[str, ...]]:
    return [(pytree.MappingKey(name), value) for name, value in fields.items()], tuple(fields)


def _register(kind: type[Fields]) -> None:
    def unflatten(values: Iterable[Any], names: tuple[str, ...]) -> Fields:
        return kind(zip(names, values, strict=True))

    pytree.register_pytree_node(
        kind,
        _flatten,
        unflatten,
        serialized_type_name=f"{kind.__module__}.{kind.__qualname__}",
        flatten_with_keys_fn=_flatten_with_keys,
    )


_register(Fields)
_register(_CacheFields)


def plain_outputs(
    module: nn.Module,
    returned: Any,
    args: Sequence[Any],
    keywords: Mapping[str, Any],
    notes: dict[str, None] | None = None,
) -> Any:
    """Return what a module returned in containers that torch takes apart.

    Args:
        module: For messages.
        returned: Tensors, numbers and texts in tuples, lists, mappings, named tuples, dataclasses, caches
            of ``transformers`` and classes that torch's registry of containers has.
        args: What it was run with. Where no cache is among that, caches are left out.
        keywords: Arguments by keyword.
        notes: Receives a sentence for every cache that is left out: which, and how to keep it.

    Returns:
        The same with :class:`Fields` for every dataclass that torch's registry lacks, in the order of its
        fields, and for every cache.

    Raises:
        ModelError: There is an object of another class, which may have tensors inside, or nothing but caches
            that are left out.
    """
    register_caches()
    keeps = has_cache((args, keywords))
    left_out: dict[str, None] = {}
    plain = _Flattening(module, keeps, left_out).plain(returned)
    if left_out and not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(plain)):
        raise ModelError(
            f"{type(module).__name__} returns nothing but a cache, and no cache is among the inputs: give one, "
            "which may be empty, as the input of that name, or return a tensor"
        )
    if notes is not None:
        notes.update(left_out)
    return plain


@dataclasses.dataclass(frozen=True)
class _Flattening:
    """How the outputs of a module are written in plain containers."""

    module: nn.Module
    keeps_caches: bool
    notes: dict[str, None]

    def plain(self, returned: Any, name: str = "") -> Any:
        """Return outputs in plain containers; the name is that of the field that they are in."""
        return pytree.tree_map(lambda leaf: self._leaf(leaf, name), returned, is_leaf=_is_whole)

    def _leaf(self, leaf: Any, name: str) -> Any:
        if leaf is None or isinstance(leaf, _KEPT):
            return leaf
        if is_cache(leaf):
            return self._cache(leaf, name)
        if isinstance(leaf, Mapping):
            values = {key: self.plain(value, str(key)) for key, value in leaf.items()}
            if not _is_dataclass(leaf):
                return values
            _name_parts(type(leaf))
            return type(leaf)(**values)
        if _is_dataclass(leaf):
            names = (field.name for field in dataclasses.fields(leaf))
            return Fields((key, self.plain(getattr(leaf, key), key)) for key in names)
        # To torch's registry it is another class than tuple, and unknown.
        if isinstance(leaf, torch.Size):
            return tuple(leaf)
        if isinstance(leaf, _DROPPED):
            # They keep their place among the outputs, which callers take apart by position.
            return None
        raise ModelError(
            f"{type(self.module).__name__} returns an object of class {type(leaf).__name__}: return "
            "tensors, in tuples, lists, dicts, named tuples or dataclasses"
        )

    def _cache(self, cache: Any, name: str) -> Any:
        if self.keeps_caches:
            return _as_fields(tensors_of(cache))
        self.notes[_left_out(self.module, cache, name)] = None
        return None


def _is_whole(value: Any) -> bool:
    """Return whether a container is looked at before torch takes it apart, for the names of its fields."""
    is_known = type(value) in pytree.SUPPORTED_NODES
    return is_cache(value) or (
        _is_dataclass(value) and (isinstance(value, Mapping) or not is_known)
    )


def _name_parts(kind: type) -> None:
    """Tell torch the names of a mapping's parts, where it was told how to take it apart and no more.

    Versions of ``transformers`` before 5.23 leave them out, and outputs are named after them.
    """
    node = pytree.SUPPORTED_NODES.get(kind)
    if node is None or node.flatten_with_keys_fn is not None:
        return

    def flatten_with_keys(mapping: Any) -> tuple[list[tuple[Any, Any]], Any]:
        values, context = node.flatten_fn(mapping)
        return [
            (pytree.MappingKey(key), value) for key, value in zip(mapping, values, strict=True)
        ], context

    pytree.SUPPORTED_NODES[kind] = node._replace(flatten_with_keys_fn=flatten_with_keys)


def _left_out(module: nn.Module, cache: Any, name: str) -> str:
    kind = f"of class {type(cache).__name__}"
    return (
        f"{type(module).__name__} returns {repr(name) if name else 'an object'} {kind}, which is left out "
        "of the program: no cache is among the inputs. To keep it, in inputs and outputs, give a cache as "
        f"the input {name or 'past_key_values'!r}: one that an earlier call returned, or an empty one; "
        "where none is wanted, use_cache=False says so."
    )


def field_names(out_spec: pytree.TreeSpec, count: int) -> list[str]:
    """Return what every flat output is called by the dataclasses and caches that it is in.

    Args:
        out_spec: How the outputs are nested.
        count: How many there are.

    Returns:
        As ``logits`` or ``present__0__key``; empty for one that is in no dataclass, or in a container
        around it.
    """
    nested = pytree.tree_unflatten(list(range(count)), out_spec)
    names = [""] * count
    try:
        leaves, _ = pytree.tree_flatten_with_path(nested)
    except ValueError:  # a class in the registry whose parts have no names
        return names
    for path, position in leaves:
        names[position] = _field_name(nested, path)
    return names


def _field_name(place: Any, path: Sequence[Any]) -> str:
    """Return the names of the fields on a path, from the last cache on it, or else its beginning."""
    words: list[str] = []
    is_named = isinstance(place, Fields) or _is_dataclass(place)
    for entry in path:
        if isinstance(place, _CacheFields):
            words = words if words[:1] == [_PRESENT] else [_PRESENT]
            is_named = True
        words.append(key_text(entry))
        place = entry.get(place)
    return SEPARATOR.join(words) if is_named else ""


def _is_dataclass(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _as_fields(nested: dict[str, Any]) -> _CacheFields:
    return _CacheFields(
        (name, _as_fields(value) if isinstance(value, dict) else value)
        for name, value in nested.items()
    )


@contextlib.contextmanager
def with_plain_outputs(module: nn.Module, notes: dict[str, None]) -> Iterator[None]:
    """Let a module return what :func:`plain_outputs` makes of its outputs, within a context.

    Args:
        module: Gets a forward hook, behind those that it has, for as long as the context is open.
        notes: As for :func:`plain_outputs`.
    """

    def hook(own: nn.Module, args: Any, keywords: Any, returned: Any) -> Any:
        plain = plain_outputs(own, returned, args, keywords, notes)
        return () if plain is None else plain  # to torch, None is what changes nothing

    handle = module.register_forward_hook(hook, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
