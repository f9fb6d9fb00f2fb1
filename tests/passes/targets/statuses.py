"""How well the support of a row's data types is known."""

from __future__ import annotations

from samba_onnx.passes.targets import OperatorRow, Status
from samba_onnx.passes.targets.rows import DTYPE_NAMES


def with_status(row: OperatorRow, status: Status) -> tuple[str, ...]:
    """Return the names of the row's data types that have a status."""
    return tuple(DTYPE_NAMES[dtype] for dtype, have in row.types.items() if have is status)
