"""The reference sample: seeded inputs and what the original model answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from samba_onnx.errors import PefFormatError
from samba_onnx.facts.dtypes import ELEMENT_TYPES, tensor_element
from samba_onnx.pef.manifest import Manifest
from samba_onnx.pef.weights import (
    StoredTensor,
    WeightEntry,
    encode_tensors,
    read_tensors,
)
from samba_onnx.safety.files import printable

if TYPE_CHECKING:
    import numpy as np

__all__ = ["can_be_sample", "check_reference", "encode_reference"]

WIDE: Final = "tensor(float)"
"""The type of what the original model answers in float32."""


def can_be_sample(values: Mapping[str, Any]) -> bool:
    """Return whether all values are arrays of numbers, which a sample can hold."""
    import numpy as np

    # Numbers only: safetensors has no texts, and sequences are no arrays.
    types = _types()
    return all(isinstance(v, np.ndarray) and v.dtype in types for v in values.values())


def _types() -> dict[np.dtype, str]:
    """Return ONNX's type by numpy's dtype."""
    return {element.numpy: element.text for element in ELEMENT_TYPES.values()}


def encode_reference(runs: Sequence[Mapping[str, Sequence[np.ndarray]]]) -> bytes:
    """Return member ``reference.safetensors``.

    Args:
        runs: For each run the arrays of ``input``, ``output`` and, if there are any, ``wide``, in
            the order in which the manifest's record names them.

    Raises:
        UsageError: An array is no array of numbers.
    """
    types = _types()
    named = [
        # By places and not by names, since names of a model may be anything and these are keys of a
        # header.
        (f"{number}.{part}.{place}", array)
        for number, run in enumerate(runs)
        for part, arrays in run.items()
        for place, array in enumerate(arrays)
    ]
    return encode_tensors(
        WeightEntry(name, types.get(array.dtype, str(array.dtype)), array.shape, array)
        for name, array in named
    )


def check_reference(manifest: Manifest, content: memoryview | None) -> dict[str, StoredTensor]:
    """Check that the member of the sample holds what the manifest says.

    Args:
        manifest: Its ``reference`` and symbols.
        content: The member; None without a sample.

    Returns:
        The tensors by their names in the member.

    Raises:
        PefFormatError: A tensor is missing, unexpected, or not of its symbol's type and shape.
    """
    sample = manifest.reference
    if sample is None or content is None:
        return {}
    parts = {"input": sample.inputs, "output": sample.outputs, "wide": sample.wide}
    symbol_names = {
        f"{run}.{part}.{place}": (name, part)
        for run in range(sample.runs)
        for part, names in parts.items()
        for place, name in enumerate(names)
    }
    symbols = {symbol.name: symbol for symbol in manifest.symbols}
    # The member must hold these tensors and no others; its layout is computed again.
    tensors = read_tensors(content, list(symbol_names))
    for key, (name, part) in symbol_names.items():
        kind = WIDE if part == "wide" else symbols[name].type
        if not _fits(tensors[key], kind, symbols[name].whole_shape):
            tensor = tensors[key]
            raise PefFormatError(
                f"the reference sample's {printable(name)} is {tensor.type} {list(tensor.shape)}, "
                f"its symbol is {kind} {symbols[name].whole_shape}"
            )
    return tensors


def _fits(tensor: StoredTensor, kind: str, shape: tuple[int | str | None, ...] | None) -> bool:
    """Return whether a sample's tensor is one that a symbol allows."""
    # Elements are compared, not texts, as a type may be spelt in several ways.
    if tensor_element(kind) is not tensor_element(tensor.type):
        return False
    return shape is None or (
        len(shape) == len(tensor.shape)
        and all(
            # Dynamic dimensions may have had any size when the sample was made.
            want == have or not isinstance(want, int)
            for want, have in zip(shape, tensor.shape, strict=True)
        )
    )
