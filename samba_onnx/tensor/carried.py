"""Tensors that a module keeps in plain attributes from call to call: state, as its buffers are.

``self.hidden = h.detach()`` is state that torch does not know of. A tensor that is found to be carried so
becomes a buffer of its module, one without an entry in ``state_dict``, so that plain modules still take
that, and with that all that buffers are: in memory of the device between runs, copied by ``to_cpu`` and ``to_rdu``. A tensor inside of a tuple, list,
dict, deque or object stays there as well, and is the very tensor that is registered beside it.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from samba_onnx.errors import SambaError, UsageError
from samba_onnx.tensor.native import natively, plain

__all__ = [
    "CarriedTensor",
    "carried",
    "carry",
    "carrying",
    "collect",
    "leaf_at",
    "load_carried",
    "spread",
    "with_leaf",
]

Step: TypeAlias = Any
"""An index of a tuple, list or deque, a key of a dict, or the name of an object's attribute."""

_CARRIED: Final = "_samba_carried"
"""Attribute of a module: what it carries, in the order in which it was found."""
_METADATA: Final = "samba_carried"
"""Key of what ``state_dict`` says of a module beside its members; torch saves that as well."""
_INDEXED: Final = (tuple, list, dict, deque)


@dataclass(frozen=True)
class CarriedTensor:
    """A tensor that a module carries from call to call in a plain attribute."""

    buffer: str
    """Its key among the module's buffers."""
    attribute: str
    steps: tuple[Step, ...]
    """The way to it within the attribute's value; empty where it is the value itself."""
    shape: torch.Size
    dtype: torch.dtype

    @property
    def path(self) -> str:
        """How a program writes it: ``hidden[0]``."""
        return self.attribute + "".join(
            f".{step}" if isinstance(step, str) and step.isidentifier() else f"[{step!r}]"
            for step in self.steps
        )

    def describe(self) -> str:
        """Return what there has to be: its type and shape."""
        return f"{self.dtype} of shape {list(self.shape)}"


def carried(module: nn.Module) -> tuple[CarriedTensor, ...]:
    """Return what a module carries, without what modules in it do.

    Args:
        module: Any module.
    """
    found: tuple[CarriedTensor, ...] = vars(module).get(_CARRIED, ())
    return found


def carry(module: nn.Module, attribute: str, steps: Sequence[Step] = ()) -> CarriedTensor:
    """Make a tensor in a plain attribute a buffer that the module carries.

    Args:
        module: Whose attribute it is; changed.
        attribute: The attribute's name.
        steps: The way to the tensor within its value.
    """
    held = vars(module)[attribute]
    tensor = _own(module, leaf_at(held, steps))
    words = [str(step) for step in steps]
    key = "__".join(
        [attribute, *(word if word.isidentifier() or word.isdigit() else "item" for word in words)]
    )
    if steps:
        # The module may have an attribute of that name already.
        while hasattr(module, key):
            key += "_"
        vars(module)[attribute] = with_leaf(held, steps, tensor)
    else:
        # register_buffer refuses the name of an attribute that there is.
        del vars(module)[attribute]
    module.register_buffer(key, tensor, persistent=False)
    one = CarriedTensor(key, attribute, tuple(steps), tensor.shape, tensor.dtype)
    if not carried(module):
        module.register_state_dict_post_hook(_save)  # type: ignore[no-untyped-call]
    vars(module)[_CARRIED] = (*carried(module), one)
    return one


def _save(module: nn.Module, _saved: Any, _prefix: str, metadata: dict[str, Any]) -> None:
    """Put what a module carries beside its saved state, where a plain module does not look."""
    metadata[_METADATA] = [
        (one.attribute, list(one.steps), module._buffers[one.buffer]) for one in carried(module)
    ]


def load_carried(model: nn.Module) -> None:
    """Let ``load_state_dict`` of a model load what was carried when its dictionary was saved.

    Args:
        model: One whose attributes may not have been found to be state yet.
    """
    hooks: list[Any] = list(model._load_state_dict_pre_hooks.values())
    known = [hook.hook for hook in hooks]
    if _load not in known:
        model.register_load_state_dict_pre_hook(_load)  # type: ignore[no-untyped-call]


def _load(model: nn.Module, saved: Any, *_: Any) -> None:
    paths = dict(model.named_modules())
    for path, metadata in getattr(saved, "_metadata", {}).items():
        for attribute, steps, values in metadata.get(_METADATA, ()) if path in paths else ():
            held = getattr(paths[path], attribute, None)
            leaf = leaf_at(held, steps)
            # Another shape, as of a larger batch, is none that it could go on with.
            if isinstance(leaf, Tensor) and leaf.shape == values.shape:
                # Not into the tensor that is there: (zeros, zeros) may be one.
                setattr(paths[path], attribute, with_leaf(held, steps, values.detach().clone()))


def _own(module: nn.Module, tensor: Tensor) -> Tensor:
    """Return a plain tensor in memory that no other buffer has: ``(zeros, zeros)`` may be one tensor."""
    with natively(), torch.no_grad():
        # By the whole memory, not by an address: two views of one tensor begin in different places.
        memories = {buffer.untyped_storage()._cdata for buffer in module.buffers()}
        own = plain(tensor).detach()
        if not own.is_contiguous() or own.untyped_storage()._cdata in memories:
            return own.clone(memory_format=torch.contiguous_format)
        return tensor if type(tensor) is Tensor and tensor.grad_fn is None else own


def collect(model: nn.Module, error: Callable[[str], SambaError] = UsageError) -> None:
    """Register the tensors that are in attributes now: a program, or ``forward``, may have put others there.

    Args:
        model: With all modules in it.
        error: Made of a sentence, where there is no such tensor any more.

    Raises:
        SambaError: One is None, of another shape or type, or gone.
    """
    for module in model.modules():
        for one in carried(module):
            now = _current(module, one)
            if not isinstance(now, Tensor) or (now.shape, now.dtype) != (one.shape, one.dtype):
                raise error(_lost(module, one, now))
            if now is not module._buffers[one.buffer]:
                _register(module, one, now)


def _register(module: nn.Module, one: CarriedTensor, now: Tensor) -> None:
    """Let a tensor that is within an attribute's value be the one that is registered."""
    is_traced = isinstance(now, FakeTensor | FunctionalTensor)
    # By attribute: what traces a module notices buffers that are assigned so.
    setattr(module, one.buffer, now.detach() if is_traced else _own(module, now))
    held = vars(module)[one.attribute]
    vars(module)[one.attribute] = with_leaf(held, one.steps, module._buffers[one.buffer])


def spread(model: nn.Module) -> None:
    """Put copies of the tensors that are registered into the attributes that carry them.

    Args:
        model: With all modules in it.
    """
    for module in model.modules():
        for one in carried(module):
            if one.steps:
                held = vars(module)[one.attribute]
                registered = module._buffers[one.buffer]
                assert registered is not None
                # A copy, as collecting it writes into the buffer, of which gradients may need what was there.
                vars(module)[one.attribute] = with_leaf(held, one.steps, registered.clone())


@contextlib.contextmanager
def carrying(model: nn.Module, error: Callable[[str], SambaError]) -> Iterator[None]:
    """Let what is registered be what ``forward`` carries, while the context is open.

    Within it parameters and buffers may be others than the module's own, as where it is traced.

    Args:
        model: Spread before each call, and collected after it.
        error: As for ``collect``.
    """
    handles = (
        model.register_forward_pre_hook(lambda *_: spread(model)),
        model.register_forward_hook(lambda *_: collect(model, error)),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _current(module: nn.Module, one: CarriedTensor) -> Any:
    if not one.steps:
        return module._buffers.get(one.buffer)
    return leaf_at(vars(module).get(one.attribute), one.steps)


def _lost(module: nn.Module, one: CarriedTensor, now: Any) -> str:
    is_tensor = isinstance(now, Tensor)
    what = f"{now.dtype} of shape {list(now.shape)}" if is_tensor else repr(now)[:60]
    return (
        f"{one.path!r} of {type(module).__name__} is {what} now, but was compiled as state that stays on the "
        f"device, {one.describe()}, which it must keep: to begin anew, assign a tensor of zeros of that shape and "
        "call samba.session.to_rdu(model)"
    )


def leaf_at(value: Any, steps: Sequence[Step]) -> Any:
    """Return what is at the end of a way into containers and objects; None if there is no such way.

    Args:
        value: Where it begins.
        steps: The way.
    """
    for step in steps:
        try:
            value = value[step] if isinstance(value, _INDEXED) else vars(value)[step]
        except (LookupError, TypeError):
            return None
    return value


def with_leaf(value: Any, steps: Sequence[Step], leaf: Any) -> Any:
    """Return containers with something else at the end of a way into them.

    Args:
        value: Where the way begins; whatever can be written is changed in place.
        steps: The way.
        leaf: What is to be there.
    """
    if not steps:
        return leaf
    first, rest = steps[0], steps[1:]
    if not isinstance(value, _INDEXED):
        vars(value)[first] = with_leaf(vars(value)[first], rest, leaf)
        return value
    inner = with_leaf(value[first], rest, leaf)
    if not isinstance(value, tuple):
        value[first] = inner
        return value
    # Named tuples take their fields one by one, other tuples take them as a sequence.
    parts = [inner if place == first else part for place, part in enumerate(value)]
    return type(value)(*parts) if hasattr(value, "_make") else type(value)(parts)
