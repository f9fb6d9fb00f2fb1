"""Which initializers of a model are its weights."""

from __future__ import annotations

from collections.abc import Collection, Set
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx_ir as ir

from samba_onnx.errors import UsageError
from samba_onnx.facts.families import REARRANGING
from samba_onnx.importing.operators.computations import find
from samba_onnx.safety.files import printable
from samba_onnx.tensor.dtypes import FLOATING

__all__ = ["ARRANGING", "KIND", "WeightSelection", "select", "weight_roles"]

KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
"""Under this key torch's exporter says what an initializer was: PARAMETER, BUFFER, ..."""

_ROLES: dict[str, tuple[int, ...]] = {
    "BatchNormalization": (1, 2),
    "Conv": (1, 2),
    "ConvTranspose": (1, 2),
    "DeformConv": (1, 3),
    "GRU": (1, 2, 3),
    "Gather": (0,),
    "Gemm": (0, 1, 2),
    "GroupNormalization": (1, 2),
    "InstanceNormalization": (1, 2),
    "LSTM": (1, 2, 3, 7),
    "LayerNormalization": (1, 2),
    "MatMul": (0, 1),
    "PRelu": (1,),
    "RMSNormalization": (1,),
    "RNN": (1, 2, 3),
    "SimplifiedLayerNormalization": (1,),
}
"""Where operators take weights."""
_VECTORS = frozenset({"Add", "Div", "Mul", "Sub"})
"""Operators that apply a bias or scale, when it is a vector."""
ARRANGING = REARRANGING | {"Cast"}
"""Operators that a weight may go through and stay one."""
# Mean and variance of BatchNormalization, which are moved and not trained.
_STATISTICS = (3, 4)


@dataclass(frozen=True)
class WeightSelection:
    """Names of the initializers that become trainable."""

    weights: tuple[str, ...]
    named: frozenset[str]
    """Names that the user gave; empty when the compiler chose."""

    def require_read(self, read: Set[str]) -> None:
        """Refuse weights that the user named and the model never reads.

        Raises:
            UsageError: There is one.
        """
        unread = sorted(self.named - read)
        if unread:
            raise UsageError(
                f"the outputs do not depend on {', '.join(map(printable, unread[:5]))}: "
                "do not name it as a weight"
            )


def select(model: ir.Model, original: Set[str], named: Collection[str] | None) -> WeightSelection:
    """Choose the weights of a model.

    1. Those that the user names, and no others.
    2. Where torch's exporter wrote what an initializer was: its parameters.
    3. Else floating-point initializers of the main graph with at least one axis and finite content
       that a node reads as data: no statistics of batch normalisations, no sizes, scales or masks.
    4. In a model with such words of the exporter's, an initializer that lacks them was computed
       by the exporter; it counts where an operator takes weights, like a transposed matrix.

    Args:
        model: Converted, with all constants in its main graph.
        original: Names of initializers in the model as given.
        named: What the user wants to train; None chooses.

    Raises:
        UsageError: A name is no floating-point initializer of the model.
    """
    present = model.graph.initializers
    # Case 1. What the user names is taken even where it looks like a mask or a statistic.
    if named is not None:
        for name in named:
            _require_trainable(name, present.get(name))
        return WeightSelection(
            tuple(name for name in present if name in set(named)), frozenset(named)
        )
    # Case 4 is told from case 3 by any initializer that still has the exporter's word.
    described = any(KIND in present[name].metadata_props for name in original if name in present)
    chosen = [
        name
        for name, value in present.items()
        if name in original and _is_weight(value, described=described)
    ]
    return WeightSelection(tuple(chosen), frozenset())


def _require_trainable(name: str, value: ir.Value | None) -> None:
    if isinstance(name, str) and value is not None and value.const_value is not None:
        if value.const_value.dtype in FLOATING:
            return
        raise UsageError(
            f"{printable(name)} holds {value.const_value.dtype.name}; only floating-point "
            "initializers can be trained"
        )
    raise UsageError(
        f"the model has no initializer {printable(name)!r}; see onnx.load(path).graph.initializer "
        "for their names"
    )


def _is_weight(value: ir.Value, *, described: bool) -> bool:
    tensor = value.const_value
    if tensor is None or tensor.dtype not in FLOATING:
        return False
    kind = value.metadata_props.get(KIND)
    # Case 2. The exporter knows what the module declared; no guess is better.
    if kind is not None:
        return kind == "PARAMETER"
    # Case 3. A scalar is a factor of the formula, and known operands decide shapes.
    if len(tensor.shape) == 0 or tensor.size == 0 or is_known_operand(value):
        return False
    if any(
        use.node.op_type == "BatchNormalization" and use.idx in _STATISTICS for use in value.uses()
    ):
        return False
    # Case 4. Constants that the exporter folded lack its word, and so do weights that it
    # transposed: only the place at which they are read tells them apart.
    if described and not weight_roles(value):
        return False
    return _is_finite(tensor)


def _is_finite(tensor: ir.TensorProtocol) -> bool:
    """Return whether there is neither infinity nor the lowest number, as masks have them."""
    content = tensor.numpy()
    # Masks are often filled with the lowest number of the type, where infinity would make NaN.
    lowest = float(ml_dtypes.finfo(content.dtype).min)  # type: ignore[no-untyped-call]
    return bool(np.isfinite(content).all() and (content != lowest).all())


def is_known_operand(value: ir.Value) -> bool:
    """Return whether all readers must know the value beforehand, such as the scales of a Resize."""
    uses = value.uses()
    if not uses or value.is_graph_output():
        return False
    for use in uses:
        node = use.node
        entry = find(node.domain, node.op_type)
        if entry is not None and use.idx in entry.known | entry.flexible and use.idx > 0:
            continue
        # A constant that is first cast or reshaped may still end as a size: its readers' readers
        # decide.
        constant = all(item is None or item.is_initializer() for item in node.inputs)
        if not constant or not all(is_known_operand(output) for output in node.outputs):
            return False
    return True


def weight_roles(value: ir.Value) -> list[tuple[ir.Node, int]]:
    """Return the nodes and positions at which a value is read as a weight, scale or bias."""
    readers: list[tuple[ir.Node, int]] = []
    # A bias is a vector; the same operator with a matrix is arithmetic of activations.
    rank = 0 if value.shape is None else len(value.shape)
    for use in value.uses():
        node = use.node
        if node.domain == "" and node.op_type in ARRANGING:
            readers += weight_roles(node.outputs[0])
        elif use.idx in _ROLES.get(node.op_type, ()) or (node.op_type in _VECTORS and rank <= 1):
            readers.append((node, use.idx))
    return readers
