"""Signs that a model was optimised for inference, and would not train as it was written."""

from __future__ import annotations

import re
import warnings
from collections.abc import Set

import numpy as np
import onnx_ir as ir

from samba_onnx.errors import FoldedWeightsWarning
from samba_onnx.importing.preparation import Prepared
from samba_onnx.importing.selection import ARRANGING, KIND, weight_roles
from samba_onnx.safety.files import printable

__all__ = ["folded_weights", "merged_weights", "warn_if_folded"]

_ADVICE = "export it with torch.onnx.export(..., optimize=False) to train what was written"


def warn_if_folded(prepared: Prepared) -> None:
    """Warn when weights look merged with each other, or folded into those before them.

    Args:
        prepared: A model whose weights were chosen.

    Warns:
        FoldedWeightsWarning: With the names.
    """
    merged, folded = merged_weights(prepared), folded_weights(prepared)
    if merged:
        warnings.warn(
            f"{_some(merged)} {'is' if len(merged) == 1 else 'are'} read by layers that have nothing "
            "else in common: equal initial values were probably merged when the model was exported, "
            f"and these layers train as if they were tied; {_ADVICE}",
            FoldedWeightsWarning,
            stacklevel=3,
        )
    if folded:
        warnings.warn(
            f"batch normalisations were probably folded into {_some(folded)} when the model was "
            f"exported: these layers train without them; {_ADVICE}",
            FoldedWeightsWarning,
            stacklevel=3,
        )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(map(printable, names[:3])) + more


def merged_weights(prepared: Prepared) -> list[str]:
    """Return names of scales and biases that unrelated layers share.

    Layers are related when they share their other weights too, as a layer that is applied twice
    does; content that is all the same number is no sign of a relation.
    """
    names = []
    initializers = {*prepared.weights, *prepared.constants}
    for value, tensor in prepared.weights.items():
        # Exporters merge equal initial values, and only vectors of ones or zeros start out equal.
        if len(tensor.shape) > 1:
            continue
        roles = weight_roles(value)
        if len(roles) < 2:
            continue
        layers = {
            (node.op_type, place, _partners(node, value, initializers)) for node, place in roles
        }
        # With all numbers alike, sharing of the partners proves nothing: they may be merged, too.
        if len(layers) > 1 or _is_uniform(tensor):
            names.append(value.name or "")
    return names


def _partners(node: ir.Node, value: ir.Value, initializers: Set[ir.Value]) -> frozenset[str]:
    """Return the other weights of a layer; for a bias that is added, those of the product."""
    values = [other for other in node.inputs if other is not None and other is not value]
    for other in list(values):
        maker = other.producer()
        # The bias of a linear layer reads the product, and the layer is known by the product's
        # weight.
        if maker is not None and node.op_type == "Add" and maker.op_type == "MatMul":
            values += [item for item in maker.inputs if item is not None]
    sources = [_source(other) for other in values]
    return frozenset(source.name or "" for source in sources if source in initializers)


def _source(value: ir.Value) -> ir.Value:
    """Return the initializer behind Transposes and the like."""
    maker = value.producer()
    while maker is not None and maker.op_type in ARRANGING and maker.inputs:
        first = maker.inputs[0]
        if first is None:
            break
        value, maker = first, first.producer()
    return value


def _is_uniform(tensor: ir.TensorProtocol) -> bool:
    content = tensor.numpy().reshape(-1)
    return content.size > 1 and bool(np.all(content == content[0]))


def folded_weights(prepared: Prepared) -> list[str]:
    """Return names of convolution weights that exporters of torch fold batch norms into."""
    names: dict[str, None] = {}
    for node in prepared.model.graph:
        # Only these carry a bias that a folded normalisation could have gone into.
        if node.op_type not in ("Conv", "ConvTranspose", "Gemm") or len(node.inputs) < 3:
            continue
        weight, bias = node.inputs[1], node.inputs[2]
        if weight is None or bias is None or weight not in prepared.weights:
            continue
        name, second = weight.name or "", bias.name or ""
        # TorchScript renames a weight that it folded; the newer exporter adds a bias with this
        # name, which the module never had and which lacks its word for parameters.
        script = re.fullmatch(r"onnx::Conv(Transpose)?_\d+", name) is not None
        if script or (second == f"{name}_bias" and KIND not in bias.metadata_props):
            names[name] = None
    return list(names)
