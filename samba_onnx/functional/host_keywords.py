"""Keywords that an operator has on the host only: refused while a graph for the RDU is traced."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Mapping
from typing import Any, Final

from samba_onnx.errors import UsageError
from samba_onnx.functional.table import FunctionRow

# Of the context, so that tracing in one thread refuses nothing in others.
_FOR_DEVICE: Final = contextvars.ContextVar("_FOR_DEVICE", default=False)


@contextlib.contextmanager
def device_limits() -> Iterator[None]:
    """Within it, keywords that the RDU does not have are refused, as while tracing a graph."""
    token = _FOR_DEVICE.set(True)
    try:
        yield
    finally:
        _FOR_DEVICE.reset(token)


def check_keywords(row: FunctionRow, keywords: Mapping[str, Any]) -> None:
    """Refuse keywords that the RDU does not have, within ``device_limits``.

    Args:
        row: The row of the operator that is called.
        keywords: The keyword arguments of the call. One whose value is None is as good as left out.

    Raises:
        UsageError: A keyword works on the host only.
    """
    if not row.cpu_only or not keywords or not _FOR_DEVICE.get():
        return
    # Sorted, so that of several keywords the same one is named each time.
    for name in sorted(row.cpu_only & keywords.keys()):
        if keywords[name] is not None:
            raise UsageError(
                f"{row.name}({name}=...) works on the host only: leave {name} out in a graph "
                "for the RDU"
            )
