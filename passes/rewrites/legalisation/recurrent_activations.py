"""The activations of recurrent layers, by the names that ONNX gives them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft

Activation = Callable[[ir.Value], ir.Value]

# In lower case, since names are compared without regard to case, as onnxruntime does.
_PLAIN = {name.lower(): name for name in ("Relu", "Tanh", "Sigmoid", "Softsign", "Softplus")}
_ALPHA = {
    "leakyrelu": ("LeakyRelu", 0.01),
    "thresholdedrelu": ("ThresholdedRelu", None),
    "elu": ("Elu", 1.0),
}
_BOTH = {"affine": (None, None), "scaledtanh": (None, None), "hardsigmoid": (0.2, 0.5)}
"""Defaults of both parameters; None where ONNX states none, or onnxruntime takes another: it must be stated."""


@dataclass
class Activations:
    """Writes the activations of a node, which take their parameters one after the other."""

    draft: Draft

    def __post_init__(self) -> None:
        """Read the parameters alpha and beta, which activations take one after the other."""
        self._alphas = [float(number) for number in self.draft.list_of("activation_alpha")]
        self._betas = [float(number) for number in self.draft.list_of("activation_beta")]

    def all(self, defaults: tuple[str, ...], directions: int) -> list[list[Activation]]:
        """Return the activations of each direction.

        Args:
            defaults: The activations of a direction that states no others.
            directions: How many directions the layer has.

        Raises:
            CannotExpandError: One is not known, or there are too few.
        """
        # ONNX lists the activations of all directions in one attribute, those of the first
        # direction first.
        names = [
            name if isinstance(name, str) else name.decode()
            for name in self.draft.list_of("activations")
        ] or list(defaults) * directions
        # Fewer names than the layer needs would give an activation the parameters of another one.
        if len(names) != len(defaults) * directions:
            raise CannotExpandError(f"it has {len(names)} activations")
        chosen = [self._one(name) for name in names]
        count = len(defaults)
        return [chosen[at : at + count] for at in range(0, len(chosen), count)]

    def _one(self, name: str) -> Activation:
        draft, key = self.draft, name.lower()
        # A plain activation takes no parameter from the lists, so that the next one finds its own.
        if key in _PLAIN:
            return lambda value: draft.op(_PLAIN[key], value)
        if key in _ALPHA:
            operator, default = _ALPHA[key]
            alpha = _next(self._alphas, default, name)
            return lambda value: draft.op(operator, value, alpha=alpha)
        if key not in _BOTH:
            raise CannotExpandError(f"its activation {name!r} is not known")
        alpha = _next(self._alphas, _BOTH[key][0], name)
        beta = _next(self._betas, _BOTH[key][1], name)
        if key == "hardsigmoid":
            return lambda value: draft.op("HardSigmoid", value, alpha=alpha, beta=beta)
        if key == "affine":
            return lambda value: self._scaled(value, alpha, beta)
        return lambda value: self._scaled(draft.op("Tanh", self._scaled(value, beta)), alpha)

    def _scaled(self, value: ir.Value, factor: float, addend: float = 0.0) -> ir.Value:
        """Write a multiple of a value plus a number."""
        draft, like = self.draft, self.draft.operand(0)
        value = draft.op("Mul", value, draft.scalar(factor, like))
        # An addend of zero is left out: a node more would be a section's work for nothing.
        return draft.op("Add", value, draft.scalar(addend, like)) if addend else value


def _next(parameters: list[float], default: float | None, name: str) -> float:
    """Take the next parameter of a layer off its list, or the activation's default where none is left."""
    if parameters:
        return parameters.pop(0)
    if default is None:
        raise CannotExpandError(f"its activation {name!r} has no parameters, and no defaults")
    return default
