"""The manifest as canonical JSON: the same records give the same bytes, and nothing else reads."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING

from samba_onnx.errors import InternalError, PefFormatError, PefVersionError
from samba_onnx.runtime.pef.manifest import FORMAT_VERSION, Manifest

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

__all__ = ["MANIFEST_LIMIT", "decode_manifest", "encode_manifest"]

MANIFEST_LIMIT = 256 << 20
"""Largest manifest that is read; one of a million symbols takes about 200 MB."""


@functools.cache
def _adapter() -> TypeAdapter[tuple[Manifest]]:
    """Return the validator; built once per process, in about 0.1 s."""
    from pydantic import ConfigDict, TypeAdapter

    # A configuration can be given from outside only to a type that is no dataclass itself;
    # the records inside the tuple inherit it.
    config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    return TypeAdapter(tuple[Manifest], config=config)


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
    from pydantic import ValidationError

    try:
        (normal,) = _adapter().validate_json(b"[" + _dump(manifest) + b"]")
        return _dump(normal)
    except ValidationError as error:
        raise InternalError(f"the manifest cannot be written: {_first(error)}") from None
    except (TypeError, ValueError) as error:
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
    from pydantic import ValidationError

    if len(text) > MANIFEST_LIMIT:
        raise PefFormatError(f"the manifest has {len(text)} bytes, more than {MANIFEST_LIMIT}")
    try:
        (manifest,) = _adapter().validate_json(b"[" + text + b"]")
        canonical = _dump(manifest)
    except ValidationError as error:
        _refuse_newer(text)
        raise PefFormatError(f"the manifest is malformed: {_first(error)}") from None
    except ValueError as error:
        raise PefFormatError(f"the manifest is malformed: {error}") from None
    if manifest.format_version != FORMAT_VERSION:
        raise version_error(manifest.format_version)
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


def _dump(manifest: Manifest) -> bytes:
    """Return sorted, compact JSON of the records as they are."""
    (tree,) = _adapter().dump_python((manifest,), mode="json", warnings="none")
    text = json.dumps(
        tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def _first(error: ValidationError) -> str:
    """Return the first problem that pydantic found, on one line."""
    problem = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(step) for step in problem["loc"][1:]) or "top level"
    return f"{place[:200]!r}: {problem['msg'][:200]!r}"


def _refuse_newer(text: bytes) -> None:
    """Raise the version error for a manifest that is malformed because it is newer."""
    try:
        version = json.loads(text)["format_version"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise version_error(version)
