"""Whether texts in a model are texts: protobuf hands out bytes where they are not valid UTF-8."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from samba_onnx.errors import InvalidModelError

__all__ = ["check_pairs", "check_text"]


def check_text(texts: Iterable[object], where: str) -> None:
    """Refuse texts that are not valid UTF-8.

    Args:
        texts: Values of string fields.
        where: Their place in the model, for messages.

    Raises:
        InvalidModelError: One of them came as bytes.
    """
    for text in texts:
        # By the class itself, as this is asked of every text of a model.
        if type(text) is not str:
            raise InvalidModelError(f"{where}: a text is not valid UTF-8: the file is corrupt")


def check_pairs(pairs: Iterable[onnx.StringStringEntryProto], where: str) -> None:
    """Refuse key-value pairs whose texts are not valid UTF-8.

    Raises:
        InvalidModelError: A key or a value came as bytes.
    """
    for entry in pairs:
        check_text((entry.key, entry.value), where)
