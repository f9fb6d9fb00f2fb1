"""What a translation of a user's own is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from samba_onnx.export.operators import registry
from samba_onnx.export.translation.builder import Operand
from samba_onnx.export.translation.inferred import infer_and_emit


@dataclass(frozen=True)
class TranslationContext(registry.Context):
    """Where a translation writes to, and what it has to return."""

    def op(
        self, op_type: str, *operands: Operand | Sequence[int] | None, **attributes: Any
    ) -> ir.Value:
        """Append a node of ONNX with one result, whose type and shape onnx infers.

        Args:
            op_type: An operator of ONNX's default domain.
            *operands: Its inputs: values; numbers, which become constants of the first value's type;
                lists of integers, as shapes and axes; None for one that is left out.
            **attributes: Its attributes.

        Raises:
            ModelError: It does not take these inputs, or the shape of its result depends on values.
        """
        return infer_and_emit(self.build, op_type, operands, attributes, 1)[0]

    def ops(
        self,
        op_type: str,
        *operands: Operand | Sequence[int] | None,
        outputs: int,
        **attributes: Any,
    ) -> list[ir.Value]:
        """Append a node with several results; otherwise as :meth:`op`.

        Args:
            op_type: An operator of ONNX's default domain.
            *operands: Its inputs.
            outputs: How many results it has.
            **attributes: Its attributes.

        Raises:
            ModelError: As for :meth:`op`.
        """
        return infer_and_emit(self.build, op_type, operands, attributes, outputs)
