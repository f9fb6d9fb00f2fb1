"""Inputs of a model that a PEF has as constants, with their values."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from samba_onnx.facts.dtypes import tensor_element

if TYPE_CHECKING:
    import numpy as np

__all__ = ["MOST_BYTES", "FixedInput", "fixed_arrays"]

MOST_BYTES: Final = 1 << 20
"""Content of one fixed input at most. It lies in the manifest, which every look at a PEF reads; what is larger
is a weight."""


@dataclass(frozen=True)
class FixedInput:
    """An input of the model that was fixed as a constant when it was converted: a run does not take it."""

    name: str
    """Its name in the model."""
    type: str
    """ONNX's text form, as ``tensor(int64)``."""
    shape: tuple[int, ...]
    """Sizes of the constant."""
    content: str
    """Its elements in base64: row by row, little endian, those of fewer than 8 bits in a byte each."""

    @classmethod
    def of(cls, name: str, kind: str, array: np.ndarray) -> FixedInput:
        """Return the record of an input.

        Args:
            name: Its name in the model.
            kind: ONNX's text form of its type.
            array: Its value, of numpy's type for that.
        """
        # The file is little endian on every machine.
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        content = base64.b64encode(little.tobytes()).decode("ascii")
        return cls(name, kind, tuple(array.shape), content)

    def problem(self) -> str:
        """Return what is wrong with the record, in the middle of a sentence; nothing for a good one."""
        element = tensor_element(self.type)
        if element is None:
            return f"has type {self.type}"
        if any(size < 0 for size in self.shape):
            return f"has shape {list(self.shape)}"
        try:
            # `validate`, as base64 otherwise skips characters, and one content had many texts.
            size = len(base64.b64decode(self.content.encode("ascii"), validate=True))
        except (binascii.Error, UnicodeEncodeError):
            return "has content that is no base64"
        # In numpy each element of fewer than 8 bits takes a byte of its own.
        expected = math.prod(self.shape) * max(element.bits // 8, 1)
        if size != expected or size > MOST_BYTES:
            return f"has {size} bytes of content in place of {min(expected, MOST_BYTES)}"
        return ""

    def array(self) -> np.ndarray:
        """Return the value, of numpy's type for it."""
        import numpy as np  # here: looking into a PEF needs no arrays, and pays for none

        element = tensor_element(self.type)
        assert element is not None  # was checked when the PEF was opened
        little = element.numpy.newbyteorder("<")
        # frombuffer is read-only over the text's bytes; astype makes the copy that a caller may
        # keep.
        content = np.frombuffer(base64.b64decode(self.content), little)
        return content.astype(element.numpy).reshape(self.shape)


def fixed_arrays(inputs: Iterable[FixedInput]) -> dict[str, np.ndarray]:
    """Return the values of fixed inputs by the names of the model's inputs.

    Args:
        inputs: As the manifest of a PEF has them.
    """
    return {fixed.name: fixed.array() for fixed in inputs}
