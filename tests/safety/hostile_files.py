"""Files that are no whole ONNX model at all."""

from __future__ import annotations

import os
import random
import socket
import zipfile
from collections.abc import Callable
from pathlib import Path

from tests.safety.small_models import relu, weight, with_weight

Entry = tuple[str, str, Callable[[Path], Path]]


def _bytes(content: bytes) -> Callable[[Path], Path]:
    def make(room: Path) -> Path:
        path = room / "model.onnx"
        path.write_bytes(content)
        return path

    return make


def _folder(room: Path) -> Path:
    (room / "model.onnx").mkdir()
    return room / "model.onnx"


def _missing(room: Path) -> Path:
    return room / "model.onnx"


def _fifo(room: Path) -> Path:
    os.mkfifo(room / "model.onnx")
    return room / "model.onnx"


def _socket(room: Path) -> Path:
    # By a relative path: a socket's own may have 107 characters only.
    here = Path.cwd()
    os.chdir(room)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("model.onnx")
    finally:
        os.chdir(here)
    return room / "model.onnx"


def _dangling(room: Path) -> Path:
    (room / "model.onnx").symlink_to("nothing-there")
    return room / "model.onnx"


def _loop(room: Path) -> Path:
    (room / "model.onnx").symlink_to("model.onnx")
    return room / "model.onnx"


def _device(room: Path) -> Path:
    (room / "model.onnx").symlink_to("/dev/zero")
    return room / "model.onnx"


def _nul_in_path(room: Path) -> Path:
    return room / "mod\0el.onnx"


def _through_file(room: Path) -> Path:
    (room / "file").write_bytes(b"x")
    return room / "file" / "model.onnx"


def _hole(room: Path) -> Path:
    path = room / "model.onnx"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    return path


def _hole_after_model(room: Path) -> Path:
    path = room / "model.onnx"
    with path.open("wb") as file:
        file.write(relu().SerializeToString())
        file.truncate(1 << 40)
    return path


def _zip(*names: str) -> Callable[[Path], Path]:
    def make(room: Path) -> Path:
        path = room / "model.onnx"
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, b"content")
        return path

    return make


def _truncated() -> list[Entry]:
    whole = with_weight(weight((64, 64))).SerializeToString()
    offsets = [1, 3, 9, 14, 20, 40, len(whole) // 2, len(whole) - 30, len(whole) - 1]
    return [(f"truncated_{n}", f"cut after {n} bytes", _bytes(whole[:n])) for n in offsets]


def _random() -> list[Entry]:
    entries: list[Entry] = []
    for seed in range(12):
        noise = random.Random(seed).randbytes(10 + 40 * seed * seed)
        entries.append((f"random_{seed}", "random bytes", _bytes(noise)))
    return entries


def _corrupt() -> list[Entry]:
    """Flip bytes that hold structure: every length and tag on the way to the graph's name."""
    whole = with_weight(weight((4, 4))).SerializeToString()
    entries: list[Entry] = []
    for position in (2, 3, 4, 6):
        spoiled = bytearray(whole)
        spoiled[position] ^= 0xFF
        entries.append((f"corrupt_{position}", "a flipped byte", _bytes(bytes(spoiled))))
    return entries


def _wrapped(field: int, content: bytes) -> bytes:
    """Return a length-delimited field."""
    size = len(content)
    length = bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([field, *length, size]) + content


def _nested_graphs(levels: int) -> bytes:
    """A model whose graph has a node whose attribute has a graph whose node ..."""
    graph = b""
    for _ in range(levels):
        graph = _wrapped(0x0A, _wrapped(0x2A, _wrapped(0x32, graph)))
    return b"\x08\x0a" + _wrapped(0x3A, graph)


def _nested_unknown(levels: int) -> bytes:
    content = b""
    for _ in range(levels):
        content = _wrapped(0x3A, content)
    return content


_SAFETENSORS = (2).to_bytes(8, "little") + b"{}"

FILES: tuple[Entry, ...] = (
    ("empty", "no bytes", _bytes(b"")),
    ("text", "prose", _bytes(b"This is not a model, but it is a sentence.\n" * 20)),
    ("one_word", "a word", _bytes(b"hello")),
    ("html", "an error page", _bytes(b"<!DOCTYPE html><html><body>404</body></html>")),
    ("json", "a JSON model", _bytes(b'{"irVersion": "10", "graph": {}}')),
    ("textproto", "a text protobuf", _bytes(b'ir_version: 10\ngraph { name: "g" }\n')),
    ("onnxtxt", "onnx's own text form", _bytes(b'<ir_version: 10, opset_import: ["":21]>\n')),
    ("lfs", "a Git LFS pointer", _bytes(b"version https://git-lfs.github.com/spec/v1\noid x\n")),
    ("utf16", "text of another encoding", _bytes("ir_version: 10".encode("utf-16"))),
    ("zeros", "zero bytes", _bytes(bytes(5000))),
    ("gguf", "a GGUF file", _bytes(b"GGUF\x03\0\0\0" + bytes(100))),
    ("hdf5", "an HDF5 file", _bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))),
    ("npy", "a numpy file", _bytes(b"\x93NUMPY\x01\0" + bytes(100))),
    ("tflite", "a TensorFlow Lite file", _bytes(b"\x1c\0\0\0TFL3" + bytes(100))),
    ("ort", "an ORT file", _bytes(b"\x1c\0\0\0ORTM" + bytes(100))),
    ("elf", "a program", _bytes(b"\x7fELF\x02\x01\x01" + bytes(100))),
    ("gzip", "a gzip archive", _bytes(b"\x1f\x8b\x08" + bytes(100))),
    ("pickle", "a pickle", _bytes(b"\x80\x04\x95\x0a\0\0\0\0\0\0\0")),
    ("evil_pickle", "a pickle that runs code", _bytes(b"\x80\x04cos\nsystem\n(S'true'\ntR.")),
    ("safetensors", "weights only", _bytes(_SAFETENSORS)),
    ("torchscript", "a torch archive", _zip("model/data.pkl", "model/version")),
    ("pef", "a PEF", _zip("weights.safetensors", "manifest.json")),
    ("npz", "a numpy archive", _zip("x.npy")),
    ("zip", "an archive", _zip("model.onnx")),
    ("folder", "a folder", _folder),
    ("missing", "nothing there", _missing),
    ("fifo", "a pipe without a writer", _fifo),
    ("socket", "a socket", _socket),
    ("dangling_link", "a link to nothing", _dangling),
    ("link_to_itself", "a link to itself", _loop),
    ("link_to_device", "a link to a device", _device),
    ("nul_in_path", "NUL in the path", _nul_in_path),
    ("file_as_folder", "a file used as a folder", _through_file),
    ("hole", "a terabyte of nothing", _hole),
    ("hole_after_model", "a terabyte of nothing behind a model", _hole_after_model),
    ("deep_messages", "a graph in a node in a graph ...", _bytes(_nested_unknown(3000))),
    ("nested_60", "a graph in an attribute in a node ...", _bytes(_nested_graphs(60))),
    ("nested_5000", "a graph in an attribute in a node ...", _bytes(_nested_graphs(5000))),
    ("group_field", "an obsolete wire type", _bytes(b"\x08\x0a\x0b\x0c")),
    ("endless_number", "a number of 20 bytes", _bytes(b"\x08" + b"\xff" * 20)),
    ("field_zero", "field number 0", _bytes(b"\x08\x0a\x02\x00")),
    ("giant_length", "a length of 2^60", _bytes(b"\x08\x0a\x3a" + b"\xff" * 8 + b"\x0f" + b"x")),
    *_truncated(),
    *_random(),
    *_corrupt(),
)
