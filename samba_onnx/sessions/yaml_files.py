"""Files of YAML that users write."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from samba_onnx.errors import UsageError

__all__ = ["read_mapping"]


def read_mapping(path: str | os.PathLike[str], remedy: str) -> dict[Any, Any]:
    """Read a file that holds one mapping.

    Args:
        path: A file of YAML or JSON.
        remedy: What the file should hold, as in ``give lines such as 'batch: 1'``.

    Returns:
        The mapping, of whatever YAML has for keys and values.

    Raises:
        UsageError: The file cannot be read, or is no mapping.
    """
    path = Path(path)
    try:
        # safe_load: the file is a user's, and full YAML can make any Python object.
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"{path} cannot be read as YAML: {error}; {remedy}", path=path) from None
    if not isinstance(content, dict):
        raise UsageError(f"{path} holds {type(content).__name__}, no mapping; {remedy}", path=path)
    return content
