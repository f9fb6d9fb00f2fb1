"""Turning a torch module into one whose parameters live on host and device."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Final

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.weak import WeakIdKeyDictionary

from samba_onnx.errors import UsageError
from samba_onnx.facts.names import root_name, symbol_name
from samba_onnx.tensor.carried import collect, load_carried
from samba_onnx.tensor.conversion import from_torch_tensor
from samba_onnx.tensor.gradient_hooks import share_hooks
from samba_onnx.tensor.native import describes_the_same_memory
from samba_onnx.tensor.parameter import SambaParameter
from samba_onnx.tensor.samba_tensor import SambaTensor

BUFFERS: Final[dict[str, SambaTensor]] = {}
"""Buffers of all converted modules by name; they share memory with the modules' own."""

_NAME: Final = "_samba_name"
_OUTPUTS: Final = "output_tensors"
"""Attribute of a model: its traced outputs."""

_REPLACEMENTS: Final = WeakIdKeyDictionary()
"""SambaParameters by the parameter that they replaced: whatever else has it gets the same one."""
_NAMED_BY: Final = WeakIdKeyDictionary()
"""By parameter and buffer, a weak reference to the model that was converted when it got its name."""


def from_torch_model_(model: nn.Module, parent_module_prefix: str | None = None) -> None:
    """Convert a module in place.

    Its parameters become SambaParameters in the same memory; tied ones stay tied, also to those of
    other models. Buffers stay torch tensors and are registered by name. A parameter's name is the
    path to it, joined by ``__`` and led by the lower-case name of the model's class; every
    submodule gets its path as ``name`` unless it has an attribute of that name already. What is
    shared with another model, which was converted before and is no part of this one, keeps the name
    that it has: PEFs of that model stay valid, and graphs of both models in one PEF share it.

    Which parameters require gradients, and which modules train, stays as it is. SambaFlow takes
    gradients from parameters of modules in evaluation mode; here they keep them, because
    fine-tuning with fixed batch statistics needs them, and so do programs that train a model as
    ``from_pretrained`` returns it.

    Convert before making optimizers: they refer to the parameters.

    Args:
        model: The module.
        parent_module_prefix: Prefix of all names, joined to them by ``__``; None for none.

    Raises:
        UsageError: ``model`` is no module, or has parameters without a shape or values yet.
    """
    if not isinstance(model, nn.Module):
        what = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise UsageError(f"from_torch_model_ was given {what}; give a module, as Net() makes one")
    for name, parameter in model.named_parameters():
        if nn.parameter.is_lazy(parameter):
            raise UsageError(
                f"parameter {name!r} has no shape yet: run the model once, then convert"
            )
        if isinstance(parameter, FakeTensor):
            raise UsageError(
                f"parameter {name!r} has no values: the model was made within a FakeTensorMode of torch; "
                "make it outside"
            )
    root = root_name(model, parent_module_prefix)
    for path, module in model.named_modules():
        _set_name(module, symbol_name(root, path))
        for key, parameter in list(module.named_parameters(recurse=False, remove_duplicate=False)):
            # By attribute: recurrent modules keep a second list of their parameters up to date so.
            setattr(module, key, _samba_parameter(parameter))
    _name_members(model, root)
    load_carried(model)
    if not hasattr(model, _OUTPUTS):
        # So that a run that comes before trace_graph says so, and not that there is no attribute.
        setattr(model, _OUTPUTS, ())


def member_names(model: nn.Module, root: str) -> dict[str, str]:
    """Return how parameters and buffers of a module are called on the device.

    Args:
        model: A module, converted or not.
        root: Leads the names of those that were not converted.

    Returns:
        Names by path. What was converted goes by the name that it got then, everything else by its
        path, and what has several paths by the first.
    """
    known = _buffer_names()
    first: dict[int, str] = {}
    names: dict[str, str] = {}
    for path, tensor in _members(model):
        own = _own_name(tensor, known)
        names[path] = first.setdefault(id(tensor), own or symbol_name(root, path))
    return names


def _members(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Iterate over parameters and buffers with all paths that they have."""
    collect(model)
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def _buffer_names() -> dict[int, str]:
    """Return the names of all converted buffers by their identity."""
    return {id(tensor._host.source): name for name, tensor in BUFFERS.items()}


def _own_name(tensor: torch.Tensor, buffers: dict[int, str]) -> str:
    """Return the name that a conversion or the user gave a tensor; empty without one."""
    return tensor.sn_name if isinstance(tensor, SambaTensor) else buffers.get(id(tensor), "")


def _set_name(module: nn.Module, name: str) -> None:
    """Give a module its path as ``name``, unless it has a ``name`` that is not from here."""
    ours = vars(module).get(_NAME)
    if vars(module).get("name") == ours if ours else not hasattr(module, "name"):
        setattr(module, "name", name)  # noqa: B010  a module's type knows no such attribute
        # By this the next conversion knows that the name is ours, and may be another one then.
        setattr(module, _NAME, name)


def _name_members(model: nn.Module, root: str) -> None:
    """Name parameters and buffers by their first paths, but for what another model named."""
    inner = set(map(id, model.modules()))
    known = _buffer_names()
    paths: dict[int, tuple[str, torch.Tensor]] = {}
    for path, tensor in _members(model):
        paths.setdefault(id(tensor), (symbol_name(root, path), tensor))
    others = {key: t for key, (_, t) in paths.items() if _is_named_outside(t, inner)}
    taken = {name for key, (name, _) in paths.items() if key not in others}
    for key, (name, tensor) in paths.items():
        own = _own_name(tensor, known)
        # The other model's name stays, unless a member of this one goes by it now.
        if key in others and own and own not in taken:
            taken.add(own)
            continue
        if isinstance(tensor, SambaParameter):
            tensor.sn_name = name
        else:
            if own in BUFFERS and BUFFERS[own]._host.source is tensor:
                del BUFFERS[own]
            wrapped = from_torch_tensor(tensor, name=name)
            # A tensor of torch's fake mode is not wrapped: it has no values that a device could take.
            if isinstance(wrapped, SambaTensor):
                BUFFERS[name] = wrapped
        _NAMED_BY[tensor] = weakref.ref(model)


def _is_named_outside(tensor: torch.Tensor, inner: set[int]) -> bool:
    """Return whether a model that still exists, and is none of ``inner``, gave a tensor its name.

    Args:
        tensor: A parameter or buffer.
        inner: Identities of a model and its submodules.
    """
    named_by = _NAMED_BY.get(tensor)  # type: ignore[no-untyped-call]
    model = None if named_by is None else named_by()
    return model is not None and id(model) not in inner


def _samba_parameter(parameter: nn.Parameter) -> SambaParameter:
    """Return a parameter as a SambaParameter in the same memory, with its gradient and attributes."""
    if isinstance(parameter, SambaParameter):
        return parameter
    known = _REPLACEMENTS.get(parameter)  # type: ignore[no-untyped-call]
    if isinstance(known, SambaParameter) and _stands_for(known, parameter):
        return known
    # Without memory there is nothing to share: an empty parameter stands for it.
    if parameter.is_meta:
        result = SambaParameter(shape=parameter.shape, dtype=parameter.dtype, requires_grad=False)
    else:
        result = SambaParameter(parameter, requires_grad=False)
    result.requires_grad = parameter.requires_grad
    if parameter.grad is not None:
        result.grad = parameter.grad
    share_hooks(parameter, result)
    # Attributes that a program has set on the parameter stay with it.
    result.__dict__ |= {k: v for k, v in vars(parameter).items() if k not in vars(result)}
    _REPLACEMENTS[parameter] = result
    return result


def _stands_for(known: SambaParameter, parameter: nn.Parameter) -> bool:
    """Return whether a SambaParameter still is what a parameter was converted to.

    One without memory has nothing to compare but its form: tied parameters of a model that was made
    on the meta device stay tied, too.
    """
    if parameter.is_meta:
        return known.shape == parameter.shape and known.dtype == parameter.dtype
    return describes_the_same_memory(known, parameter)
