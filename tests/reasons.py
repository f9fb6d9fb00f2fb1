"""Why hostile files are refused: each for its own reason, not for whatever is looked at first.

The reasons stand in a JSON file beside the files' makers: for each the class of the error and a part of
its message, in which ``#`` stands for a number and ``FILE`` for the path.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path


@functools.cache
def reasons(table: Path) -> dict[str, str]:
    """Return the reasons of a table by the names of the files.

    Args:
        table: The JSON file.
    """
    content: dict[str, str] = json.loads(table.read_text(encoding="utf-8"))
    return content


def plain(message: str, path: Path) -> str:
    """Return a message without what differs from run to run.

    Args:
        message: The message of an error.
        path: The hostile file.
    """
    return re.sub(r"\d+", "#", message.replace(str(path), "FILE"))


def wrong_reason(table: Path, name: str, error: Exception, path: Path) -> str | None:
    """Return how the reason of a refusal differs from the one that there should be.

    Args:
        table: The JSON file.
        name: The name of the hostile file.
        error: What was raised.
        path: The hostile file.
    """
    kind, _, part = reasons(table)[name].partition(": ")
    message = plain(str(error), path)
    if type(error).__name__ == kind and part in message:
        return None
    return f"refused by {type(error).__name__}: {message!r}, expected {kind}: {part!r}"
