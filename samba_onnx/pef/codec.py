"""The manifest as canonical JSON: the same records give the same bytes, and nothing else reads."""

from __future__ import annotations

import json
from typing import Any

from samba_onnx.errors import InternalError, PefFormatError, PefVersionError
from samba_onnx.pef.decoding import MismatchError, from_tree, to_tree
from samba_onnx.pef.manifest import FORMAT_VERSION, Manifest

__all__ = ["MANIFEST_LIMIT", "decode_manifest", "encode_manifest"]

MANIFEST_LIMIT = 256 << 20
"""Largest manifest that is read; one of a million symbols takes about 200 MB."""


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the canonical JSON of a manifest.

    UTF-8, keys sorted, no white space, every field present. Whole numbers given for a field of
    fractions are written as fractions, so that equal records give equal bytes.

    Args:
        manifest: The records; every value must have its declared type.

    Returns:
        The bytes of member ``manifest.json``.

    Raises:
        InternalError: A field holds a value of another type, or one that JSON cannot express.
    """
    try:
        # There and back: a manifest that holds an int where a float belongs would be written as `1`
        # and refused when it is read.
        return _dump(to_tree(from_tree(Manifest, to_tree(manifest), whole=True)))
    except (MismatchError, TypeError, ValueError, OverflowError) as error:
        raise InternalError(f"the manifest cannot be written: {error}") from None


def decode_manifest(text: bytes) -> Manifest:
    """Read a manifest.

    Args:
        text: The bytes of member ``manifest.json``.

    Returns:
        The records. What they say about each other is not yet checked.

    Raises:
        PefVersionError: The format version is newer than this package.
        PefFormatError: The text is not the canonical JSON of a manifest: not JSON, a field is
            missing, unknown or of the wrong type, keys out of order, white space.
    """
    # Before parsing, which takes many times the text's memory.
    if len(text) > MANIFEST_LIMIT:
        raise PefFormatError(f"the manifest has {len(text)} bytes, more than {MANIFEST_LIMIT}")
    try:
        tree = json.loads(text.decode())
    except ValueError as error:
        raise PefFormatError(f"the manifest is malformed: {error}") from None
    except RecursionError:
        raise PefFormatError("the manifest is malformed: it is nested too deeply") from None
    # Before the fields are compared: a newer manifest would be refused as malformed, and the user
    # not be told to update.
    _refuse_newer(tree)
    try:
        manifest: Manifest = from_tree(Manifest, tree)
        canonical = _dump(tree)
    except (MismatchError, ValueError, OverflowError) as error:
        raise PefFormatError(f"the manifest is malformed: {error}") from None
    if manifest.format_version != FORMAT_VERSION:
        raise version_error(manifest.format_version)
    # Two texts for one manifest would make two files of one PEF, and an attacker could change white
    # space.
    if canonical != text:
        raise PefFormatError("the manifest is not in canonical form")
    return manifest


def version_error(version: int) -> PefFormatError | PefVersionError:
    """Return the error for a format version that is not ``FORMAT_VERSION``."""
    if version > FORMAT_VERSION:
        return PefVersionError(
            f"PEF format version {version} is newer than version {FORMAT_VERSION}, the newest "
            "that this samba-onnx reads: install a newer samba-onnx"
        )
    return PefFormatError(f"there is no PEF format version {version}")


def _dump(tree: Any) -> bytes:
    """Return sorted, compact JSON."""
    # NaN and infinity are no JSON.
    text = json.dumps(
        tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def _refuse_newer(tree: Any) -> None:
    """Raise the version error for a manifest that may look different because it is newer."""
    version = tree.get("format_version") if isinstance(tree, dict) else None
    # `type` instead of isinstance, for which True is a number.
    if type(version) is int and version > FORMAT_VERSION:
        raise version_error(version)
