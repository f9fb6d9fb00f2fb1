"""Turning a torch module into one whose parameters live on host and device."""

from __future__ import annotations

import logging
from typing import Final

from torch import nn

from samba_onnx.errors import UsageError
from samba_onnx.facts.names import root_name, symbol_name
from samba_onnx.tensor.conversion import from_torch_tensor
from samba_onnx.tensor.gradient_hooks import share_hooks
from samba_onnx.tensor.parameter import SambaParameter
from samba_onnx.tensor.samba_tensor import SambaTensor

LOGGER: Final = logging.getLogger(__name__)

BUFFERS: Final[dict[str, SambaTensor]] = {}
"""Buffers of all converted modules by name; they share memory with the modules' own."""

_NAME: Final = "_samba_name"


def from_torch_model_(model: nn.Module, parent_module_prefix: str | None = None) -> None:
    """Convert a module in place.

    Its parameters become SambaParameters in the same memory, tied ones stay tied. Buffers stay
    torch tensors and are registered by name. A parameter's name is the path to it, joined by
    ``__`` and led by the lower-case name of the model's class; every submodule gets its path as
    ``name`` unless it has an attribute of that name already. Parameters of submodules in
    evaluation mode no longer require gradients.

    Convert before making optimizers: they refer to the parameters.

    Args:
        model: The module.
        parent_module_prefix: Prefix of all names, joined to them by ``__``; None for none.

    Raises:
        UsageError: ``model`` is no module, or has parameters without a shape yet.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"from_torch_model_ was given {type(model).__name__}; give a module")
    for name, parameter in model.named_parameters():
        if nn.parameter.is_lazy(parameter):
            raise UsageError(
                f"parameter {name!r} has no shape yet: run the model once, then convert"
            )
    root = root_name(model, parent_module_prefix)
    trained = {
        id(parameter)
        for module in model.modules()
        if module.training
        for parameter in module.parameters(recurse=False)
    }
    if not all(module.training for module in model.modules()):
        LOGGER.warning("Model running in inference. Setting requires_grad of all params to False")
    parameters: dict[int, SambaParameter] = {}
    for path, module in model.named_modules():
        name = symbol_name(root, path)
        _set_name(module, name)
        _convert_parameters(module, name, trained, parameters)
        for key, buffer in module.named_buffers(recurse=False):
            symbol = symbol_name(name, key)
            BUFFERS[symbol] = from_torch_tensor(buffer, name=symbol)


def _set_name(module: nn.Module, name: str) -> None:
    """Give a module its path as ``name``, unless it has a ``name`` that is not from here."""
    ours = vars(module).get(_NAME)
    if vars(module).get("name") == ours if ours else not hasattr(module, "name"):
        setattr(module, "name", name)  # noqa: B010  a module's type knows no such attribute
        setattr(module, _NAME, name)


def _convert_parameters(
    module: nn.Module, name: str, trained: set[int], parameters: dict[int, SambaParameter]
) -> None:
    """Replace the parameters of one module, without those of its submodules.

    Args:
        module: The module.
        name: Its name, which the names of its parameters begin with.
        trained: Identities of the parameters that a module in training mode has.
        parameters: SambaParameters by the identity of the parameter that they replace, and by
            their own; entered here, so that tied parameters stay tied.
    """
    for key, parameter in list(module.named_parameters(recurse=False, remove_duplicate=False)):
        if id(parameter) not in parameters:
            requires_grad = parameter.requires_grad and id(parameter) in trained
            replacement = _samba_parameter(parameter, requires_grad)
            replacement.sn_name = symbol_name(name, key)
            parameters[id(parameter)] = parameters[id(replacement)] = replacement
        # By attribute: recurrent modules keep a second list of their parameters up to date so.
        setattr(module, key, parameters[id(parameter)])


def _samba_parameter(parameter: nn.Parameter, requires_grad: bool) -> SambaParameter:
    """Return a parameter as a SambaParameter in the same memory, with its gradient and attributes."""
    if isinstance(parameter, SambaParameter):
        parameter.requires_grad = requires_grad
        return parameter
    if parameter.is_meta:
        result = SambaParameter(shape=parameter.shape, dtype=parameter.dtype, requires_grad=False)
    else:
        result = SambaParameter(parameter, requires_grad=False)
    result.requires_grad = requires_grad
    if parameter.grad is not None:
        result.grad = parameter.grad
    share_hooks(parameter, result)
    # Attributes that a program has set on the parameter stay with it.
    result.__dict__ |= {k: v for k, v in vars(parameter).items() if k not in vars(result)}
    return result
