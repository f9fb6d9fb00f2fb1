"""Modules made of ONNX models, whose weights optimizers can be given."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias

import onnx
from torch import nn
from torch.optim import Optimizer

from samba_onnx.errors import FoldedWeightsWarning, PefFormatError, UsageError
from samba_onnx.facts.names import in_a_list
from samba_onnx.importing import Loss, OnnxModule, module_from_onnx
from samba_onnx.importing.original import Original, Source, named_tensors
from samba_onnx.loading import load_model
from samba_onnx.safety.files import printable
from samba_onnx.sessions.onnx_models import is_onnx
from samba_onnx.tensor import SambaParameter, from_torch_model_

LossLike: TypeAlias = Loss | Mapping[str, Any] | str
"""A loss, its fields by name, or its kind alone."""
Losses: TypeAlias = LossLike | Sequence[LossLike] | None

DEFAULT_LABEL: Final = "label"
"""Input of a loss that does not name its label."""

_OWNER: Final = "_onnx_module"
"""Attribute of a parameter: optimizers hold parameters, and models are known by them."""
_VARIANTS: Final = "_with_losses"


def from_onnx(
    model: Source, *, weights: Collection[str] | None = None, losses: Losses = None
) -> OnnxModule:
    """Return a module that computes what an ONNX model computes, and that can be trained.

    Its parameters are SambaParameters that have the names of the initializers; give them to an
    optimizer of ``samba.optim``. ``samba.session.compile`` and ``samba.utils.trace_graph`` take
    the module like any other, or the ONNX model itself together with such an optimizer.
    ``samba.session.to_onnx`` writes the trained weights back.

    Args:
        model: A path, or a model in memory with its data inside; it is not changed.
        weights: Names of the initializers that become parameters; by default those that the
            exporter of torch marked as parameters, else all that are floating point, have at least
            one axis, and are no statistics, sizes or masks.
        losses: Losses to build on outputs, one or several: ``Loss`` records of
            ``samba_onnx.importing``, dicts of their fields, or kinds (``cross_entropy``, ``mse``,
            ``bce_with_logits``, ``l1``, ``nll``). Without ``output`` a loss is built on the only
            output that there is; without ``label`` its label is the input ``label``.

    Returns:
        A module in training mode. It returns the losses, then the model's outputs.

    Raises:
        ModelError: The model cannot be loaded, or an operator has no counterpart in torch.
        UsageError: A name of a weight is wrong, or a loss has no meaning.

    Warns:
        FoldedWeightsWarning: The model was optimised for inference, and trains differently.

    Example:
        >>> module = samba.from_onnx("model.onnx", losses="cross_entropy")  # doctest: +SKIP
        >>> optimizer = samba.optim.AdamW(module.parameters())  # doctest: +SKIP
    """
    module = module_from_onnx(model, weights=weights, losses=losses_of(losses, model))
    _check_labels(module)
    from_torch_model_(module)
    for attribute, name in module.onnx_names.items():
        parameter = getattr(module, attribute)
        if isinstance(parameter, SambaParameter):
            parameter.sn_name = name
            setattr(parameter, _OWNER, module)
    return module


def losses_of(losses: Losses, model: Source) -> tuple[Loss, ...]:
    """Return losses as records.

    Args:
        losses: What a user gave; None for no losses.
        model: Whose outputs they are built on.

    Raises:
        UsageError: One has no meaning.
    """
    if losses is None:
        return ()
    listed = [losses] if isinstance(losses, (Loss, str, Mapping)) else list(losses)
    return tuple(_loss(one, model) for one in listed)


def _loss(loss: object, model: Source) -> Loss:
    if isinstance(loss, Loss):
        return loss
    fields: dict[str, Any] = {"kind": loss} if isinstance(loss, str) else {}
    if isinstance(loss, Mapping):
        fields = {str(key): value for key, value in loss.items()}
    known = {field.name for field in dataclasses.fields(Loss)}
    if "kind" not in fields or not set(fields) <= known:
        raise UsageError(
            f"a loss is {printable(str(loss))}; give its kind, as 'cross_entropy', or a dict with "
            f"kind and any of {', '.join(sorted(known - {'kind'}))}"
        )
    # A kind alone is to be enough for the usual model, which has one output and one loss.
    fields.setdefault("label", DEFAULT_LABEL)
    if "output" not in fields:
        fields["output"] = _only_output(model, str(fields["kind"]))
    try:
        return Loss(**fields)
    except TypeError as error:
        raise UsageError(f"a loss cannot be {printable(str(loss))}: {error}") from None


def _only_output(model: Source, kind: str) -> str:
    outputs = [value.name or "" for value in load_model(model).model.graph.outputs]
    if len(outputs) != 1:
        raise UsageError(
            f"loss {printable(kind)!r} does not say on which output it is built, and the model has "
            f"{', '.join(map(printable, outputs))}: give a dict, as "
            f"{{'kind': {printable(kind)!r}, 'output': {printable(outputs[0])!r}}}"
        )
    return outputs[0]


def _check_labels(module: OnnxModule) -> None:
    for loss in module.losses:
        if loss.label in module.onnx_names.values():
            raise UsageError(
                f"label {printable(loss.label)!r} is an initializer of the model already: choose "
                "another name"
            )


def trained_module(
    model: Any,
    optimizers: Sequence[Optimizer],
    weights: Collection[str] | None,
    losses: Losses,
    recorded: object = None,
) -> Any:
    """Return what is compiled or traced in the place of what a user gave.

    Args:
        model: A torch module, an ONNX model or the path to one.
        optimizers: Optimizers that are compiled with the module.
        weights: Names of the initializers to train, as for ``from_onnx``; None takes those that the
            optimizers have.
        losses: Losses by name, as for ``from_onnx``; None takes those of the module whose
            parameters the optimizers have.
        recorded: What ``onnx_record`` returned for the module that was compiled; counts where
            nothing else says which weights and losses there are.

    Returns:
        A torch module and an ONNX model without optimizers and losses are themselves. Any other
        ONNX model is the module that ``from_onnx`` made of it, which the optimizers know.

    Raises:
        UsageError: The optimizers are of no such module, or of another model's; or weights or
            losses are given with a module.
        ModelError: The model cannot be trained.
        PefFormatError: ``recorded`` is nothing of the kind.
    """
    is_onnx(model)
    if isinstance(model, nn.Module):
        if weights is not None or losses is not None:
            raise UsageError(
                f"weights and losses were given with a module, {type(model).__name__}: give them to "
                "samba.from_onnx, or compute losses in forward"
            )
        return model
    if not optimizers:
        if recorded is not None and weights is None and losses is None:
            weights, losses = _parsed(recorded)
        if weights is None and losses is None:
            return model
        return from_onnx(model, weights=weights, losses=losses)
    return _optimized_module(model, optimizers, weights, losses, recorded)


def _optimized_module(
    model: Any,
    optimizers: Sequence[Optimizer],
    weights: Collection[str] | None,
    losses: Losses,
    recorded: object,
) -> OnnxModule:
    """Return the module that optimizers know, with the losses that are asked for."""
    owner = _owner(optimizers)
    if not same_model(owner, model):
        raise UsageError(
            "the optimizer has the weights of another ONNX model than this one: give the model "
            "that samba.from_onnx was given"
        )
    _check_weights(owner, weights)
    if losses is None:
        losses = owner.losses or (() if recorded is None else _parsed(recorded)[1])
    records = losses_of(losses, model)
    return owner if records == owner.losses else _with_losses(owner, model, records)


def _owner(optimizers: Sequence[Optimizer]) -> OnnxModule:
    parameters = [
        p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]
    ]
    owners: dict[int, OnnxModule | None] = {}
    for parameter in parameters:
        owner = getattr(parameter, _OWNER, None)
        owners[id(owner)] = owner
    owner = next(iter(owners.values()), None)
    if len(owners) != 1 or owner is None:
        raise UsageError(
            "an ONNX model was given with an optimizer of other parameters: make the module with "
            "module = samba.from_onnx(model), and the optimizer of module.parameters()"
        )
    return owner


def _check_weights(owner: OnnxModule, weights: Collection[str] | None) -> None:
    trained = set(owner.trained_names)
    named = trained if weights is None else set(in_a_list(weights))
    if named != trained:
        raise UsageError(
            f"weights are {', '.join(map(printable, sorted(named)))}, but the optimizer's module "
            f"was made with {', '.join(map(printable, sorted(trained)))}: give weights to "
            "samba.from_onnx"
        )


def _with_losses(owner: OnnxModule, model: Source, losses: tuple[Loss, ...]) -> OnnxModule:
    """Return a module with the owner's weights and other losses, always the same one."""
    # Kept on the owner, so that a compilation and a trace with the same losses get one module.
    variants: dict[tuple[Loss, ...], OnnxModule] = vars(owner).setdefault(_VARIANTS, {})
    if losses not in variants:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FoldedWeightsWarning)  # said when the owner was made
            variant = module_from_onnx(model, weights=owner.trained_names, losses=losses)
        _check_labels(variant)
        # Shared, not copied: the optimizer trains the owner's parameters.
        for attribute in variant.onnx_names:
            setattr(variant, attribute, getattr(owner, attribute))
        variants[losses] = variant
    return variants[losses].train(owner.training)


def same_model(module: OnnxModule, model: Source) -> bool:
    """Return whether a module was made of an ONNX model, whatever the weights.

    Args:
        module: As ``from_onnx`` returns it.
        model: A path, or a model in memory.
    """
    weights = module.original.held
    # Weights are left out: training changes them, and the model stays the same.
    return _bare(Original.of(model, weights)) == _bare(module.original)


def _bare(original: Original) -> onnx.ModelProto:
    """The model without any trace of where weights were kept."""
    model = onnx.ModelProto()
    # A copy: fields are cleared below, which the module's own skeleton must keep.
    model.CopyFrom(original.skeleton)
    tensors = named_tensors(model)
    for name in original.held & tensors.keys():
        for field in ("raw_data", "external_data", "data_location"):
            tensors[name].ClearField(field)
    return model


def _parsed(recorded: object) -> tuple[list[str], tuple[Loss, ...]]:
    """Weights and losses of a PEF."""
    try:
        fields: Any = recorded
        return [str(name) for name in fields["weights"]], tuple(Loss(**f) for f in fields["losses"])
    except (TypeError, KeyError, UsageError) as error:
        raise PefFormatError(
            f"the PEF's record of losses cannot be read ({error}); compile it again"
        ) from None
