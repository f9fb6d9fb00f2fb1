"""Recognise files that are something else than a binary ONNX model."""

from __future__ import annotations

__all__ = ["HEAD_BYTES", "describe"]

_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89HDF", "an HDF5 file: export the model it belongs to as ONNX"),
    (0, b"\x93NUMPY", "a numpy array: give the ONNX model; arrays are inputs of `samba-port run`"),
    (0, b"GGUF", "a GGUF file: export the original model as ONNX"),
    (4, b"TFL3", "a TensorFlow Lite model: convert it with tf2onnx"),
    (4, b"ORTM", "a model in onnxruntime's own format: give the ONNX model that it was made from"),
    (0, b"\x7fELF", "a program"),
    (0, b"\x1f\x8b", "a gzip archive: unpack it and give the .onnx file in it"),
    (0, b"BZh", "a bzip2 archive: unpack it and give the .onnx file in it"),
    (0, b"\xfd7zXZ", "an xz archive: unpack it and give the .onnx file in it"),
    (0, b"\x28\xb5\x2f\xfd", "a zstd archive: unpack it and give the .onnx file in it"),
    (0, b"%PDF", "a PDF document"),
    (0, b"\x89PNG", "a picture"),
    (0, b"version https://git-lfs", "a Git LFS pointer, not the model itself: run `git lfs pull`"),
)
HEAD_BYTES = 4096
"""How much of a file's beginning tells its kind."""


def describe(head: bytes) -> str | None:
    """Return why a file's content is surely no binary ONNX model; None if it may be one.

    Args:
        head: The first ``HEAD_BYTES`` bytes, fewer if the file is shorter.
    """
    if not head:
        return "the file is empty, expected an ONNX model"
    kind = _kind(head)
    if kind is None and not head.strip(b"\0"):
        return "the file begins with nothing but zero bytes: it was not written completely"
    return None if kind is None else f"expected an ONNX model, but this looks like {kind}"


def _kind(head: bytes) -> str | None:
    # First, since a PEF, a checkpoint and a plain archive are told apart by what is inside.
    if head.startswith(b"PK\x03\x04"):
        return _zip_kind(head)
    for offset, magic, text in _MAGIC:
        if head.startswith(magic, offset):
            return text
    # Length and brace are all that a safetensors file begins with; a model's first byte is another
    # field.
    if len(head) > 9 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 32:
        return "a safetensors file, which holds weights without a graph: give the ONNX model"
    # Protocols 2 to 5, which begin with their number; older ones begin like text.
    if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05":
        return (
            "a Python pickle (an old torch checkpoint?), which is never opened here: "
            "export the model with torch.onnx.export"
        )
    return _text_kind(head)


def _zip_kind(head: bytes) -> str:
    # The name of the first member stands behind the fixed 30 bytes of its header.
    first = head[30 : 30 + int.from_bytes(head[26:28], "little")]
    if first == b"weights.safetensors":
        return "a PEF: use `samba-port inspect`, `run` or `verify`"
    if b"data.pkl" in head or first.endswith((b"/.format_version", b"/version", b"/constants.pkl")):
        return "a torch checkpoint or TorchScript archive: export the model with torch.onnx.export"
    if first.endswith(b".npy"):
        return "a numpy archive: give the ONNX model; arrays are inputs of `samba-port run`"
    return "a zip archive: unpack it and give the .onnx file in it"


def _text_kind(head: bytes) -> str | None:
    try:
        text = head.decode("utf-8").lstrip("\ufeff \t\r\n")
    except UnicodeDecodeError as error:
        # A character may be cut in two at the end of what was read.
        if error.start < len(head) - 4 or len(head) < HEAD_BYTES:
            return None
        text = head[: error.start].decode("utf-8").lstrip("\ufeff \t\r\n")
    # Text alone is what a person or a web server wrote; a model has bytes that are not printable.
    if not all(character.isprintable() or character in "\t\r\n\f" for character in text):
        return None
    if text.startswith(("<!DOCTYPE", "<!doctype", "<html", "<HTML")):
        return "a web page: the download did not give the model itself"
    if text.startswith(("<ir_version", "<\n", "ir_version:", "{")):
        return (
            "a model in text form: load it with onnx.load or onnx.parser and save it "
            "with onnx.save first"
        )
    return "a text file"
