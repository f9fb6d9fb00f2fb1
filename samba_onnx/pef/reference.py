"""The reference sample: a seeded input and what the original model answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from samba_onnx.errors import PefFormatError
from samba_onnx.facts.dtypes import ELEMENT_TYPES, tensor_element
from samba_onnx.pef.manifest import Manifest, Symbol
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


def can_be_sample(values: Mapping[str, Any]) -> bool:
    """Return whether all values are arrays of numbers, which a sample can hold."""
    import numpy as np

    types = _types()
    return all(isinstance(v, np.ndarray) and v.dtype in types for v in values.values())


def _types() -> dict[np.dtype, str]:
    """Return ONNX's type by numpy's dtype."""
    return {element.numpy: element.text for element in ELEMENT_TYPES.values()}


def encode_reference(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> bytes:
    """Return member ``reference.safetensors``.

    Args:
        inputs: In the order of ``ReferenceSample.inputs``.
        outputs: In the order of ``ReferenceSample.outputs``.

    Raises:
        UsageError: An array is no array of numbers.
    """
    types = _types()
    named = [(f"input.{n}", array) for n, array in enumerate(inputs)]
    named += [(f"output.{n}", array) for n, array in enumerate(outputs)]
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
    symbol_names = {f"input.{n}": name for n, name in enumerate(sample.inputs)}
    symbol_names |= {f"output.{n}": name for n, name in enumerate(sample.outputs)}
    symbols = {symbol.name: symbol for symbol in manifest.symbols}
    tensors = read_tensors(content, list(symbol_names))
    for key, name in symbol_names.items():
        if not _fits(tensors[key], symbols[name]):
            tensor = tensors[key]
            raise PefFormatError(
                f"the reference sample's {printable(name)} is {tensor.type} {list(tensor.shape)}, "
                f"its symbol is {symbols[name].type} {symbols[name].shape}"
            )
    return tensors


def _fits(tensor: StoredTensor, symbol: Symbol) -> bool:
    """Return whether a sample's tensor is one that the symbol allows."""
    if tensor_element(symbol.type) is not tensor_element(tensor.type):
        return False
    return symbol.shape is None or (
        len(symbol.shape) == len(tensor.shape)
        and all(
            want == have or not isinstance(want, int)
            for want, have in zip(symbol.shape, tensor.shape, strict=True)
        )
    )
