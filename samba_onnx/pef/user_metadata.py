"""The user's values in the metadata of a PEF, which keeps texts: each comes back as what it was.

A text stands for itself, unless it reads as JSON, as ``"4"`` does: it is quoted then. All else is
JSON, so that tuples come back as lists. What JSON does not have is kept as its text, as sets are.
"""

from __future__ import annotations

import json
from typing import Any


def write_value(value: Any) -> str:
    """Return a value as the metadata of a PEF keeps it.

    Args:
        value: Any; what JSON does not have, also deep inside, is replaced by its ``str``.
    """
    # A text that reads as JSON would come back as a number or list.
    if isinstance(value, str) and not _is_json(value):
        return value
    try:
        return json.dumps(value, default=str)
    except (TypeError, ValueError, RecursionError):  # keys that are no texts; cycles
        # Through write_value again, as the text may read as JSON.
        return write_value(str(value))


def read_value(text: str) -> Any:
    """Return the value that the metadata of a PEF has under a key.

    Args:
        text: What ``write_value`` returned, or any other text, which is returned as it is.
    """
    return json.loads(text) if _is_json(text) else text


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
