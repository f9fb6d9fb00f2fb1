"""Modules that are run or traced, and have everything back when a block ends."""

from __future__ import annotations

import contextlib
import random
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from samba_onnx.errors import ModelError
from samba_onnx.export.capture.surroundings import Surroundings
from samba_onnx.tensor import native
from samba_onnx.tensor.carried import carrying, collect

__all__ = ["members_replaced", "restored"]

_CONTAINERS: Final = (dict, OrderedDict, list, set)
"""Whose items are put back, too: torch's own registries, and what programs collect in modules.
Types derived of these may do anything when they are written, and are left alone."""


@contextlib.contextmanager
def restored(module: nn.Module) -> Iterator[None]:
    """Give a module back what it had, however the block ends.

    That is, for the module and all within: attributes, the very objects that are registered as
    parameters, buffers, submodules and hooks, the items of lists, dictionaries and sets that it
    keeps, whether it trains and which tensors require gradients; and besides the state of the
    random generators of torch's CPU, Python and numpy, and what ``Surroundings`` says. The values of tensors are not kept:
    ``members_replaced`` lets a module write into others.

    Args:
        module: The module; submodules that the block adds are forgotten with all they have.
    """
    surroundings = Surroundings(module)
    states = [_State.of(inner) for inner in module.modules()]
    # Only leaves have flags and gradients that can be set.
    leaves = [tensor for tensor in _members(module) if tensor.is_leaf]
    flags = [(leaf, native.requires_grad(leaf), native.gradient(leaf)) for leaf in leaves]
    drawn = random.getstate(), np.random.get_state()
    try:
        # Of the CPU only, on which models are traced and compared.
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(drawn[0])
        np.random.set_state(drawn[1])
        for state in states:
            state.restore()
        # Behind the modules, whose attributes lead to what is put back here.
        surroundings.restore()
        for leaf, requires_grad, gradient in flags:
            if native.requires_grad(leaf) != requires_grad:
                native.set_requires_grad(leaf, requires_grad)
            if native.gradient(leaf) is not gradient:
                native.set_gradient(leaf, gradient)


@contextlib.contextmanager
def members_replaced(module: nn.Module, counterpart: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Let a module have other parameters and buffers within a block, and restore it afterwards.

    What is shared within the module stays shared: also by a module that is registered in several
    places, which ``torch.func.functional_call`` leaves with the tensors of the call.

    Args:
        module: The module; afterwards it has all back, as ``restored`` says.
        counterpart: Returns what is to be in the place of a parameter or buffer; called once for
            each. A parameter's must be one.

    Raises:
        UsageError: A tensor that the module carries is gone from its attribute.
    """
    # By identity, so that what is shared is replaced by one and the same.
    twins: dict[int, Tensor] = {}
    collect(module)
    with restored(module), carrying(module, ModelError):
        # Lists, since members may come and go while they are set.
        for inner in list(module.modules()):
            for members in (inner._parameters, inner._buffers):
                for key, tensor in list(members.items()):
                    if tensor is None:
                        continue
                    if id(tensor) not in twins:
                        twins[id(tensor)] = counterpart(tensor)
                    # By attribute: recurrent modules keep a second list of their parameters so.
                    setattr(inner, key, twins[id(tensor)])
        yield


def _members(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]


@dataclass(frozen=True)
class _State:
    """What one module has, without what its submodules have."""

    module: nn.Module
    attributes: dict[str, Any]
    items: tuple[tuple[Any, Any], ...]
    """Containers among the attributes, each with a copy of its items."""

    @classmethod
    def of(cls, module: nn.Module) -> _State:
        """Note what a module has.

        Args:
            module: Stays as it is.
        """
        attributes = dict(vars(module))
        # By exact type: derived containers may do anything when they are written.
        items = tuple((v, v.copy()) for v in attributes.values() if type(v) in _CONTAINERS)
        return cls(module, attributes, items)

    def restore(self) -> None:
        """Give the module back what it had."""
        own = vars(self.module)
        # Written only where something differs, as most calls change nothing.
        if own.keys() != self.attributes.keys() or any(
            own[name] is not value for name, value in self.attributes.items()
        ):
            own.clear()
            own.update(self.attributes)
        for container, items in self.items:
            if isinstance(container, list):
                container[:] = items
            elif _differ(container, items):
                container.clear()
                container.update(items)


def _differ(container: Any, items: Any) -> bool:
    """Return whether a dictionary or set has other items, or in another order, than it had."""
    # By identity: items may be tensors, which do not compare to one truth value.
    now, before = list(container), list(items)
    if len(now) != len(before) or any(a is not b for a, b in zip(now, before, strict=True)):
        return True
    return isinstance(container, dict) and any(container[key] is not items[key] for key in before)
