"""Models whose external data is missing, elsewhere or not what it claims."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import onnx
from onnx import TensorProto

from tests.safety.small_models import with_weight

Entry = tuple[str, str, Callable[[Path], onnx.ModelProto]]
BYTES = 24


def external(location: str | None, kind: int = TensorProto.FLOAT, **pairs: str) -> onnx.ModelProto:
    """A model with a 2x3 float initializer at ``location``."""
    tensor = TensorProto(name="w", dims=[2, 3], data_type=kind)
    tensor.data_location = TensorProto.EXTERNAL
    if location is not None:
        tensor.external_data.add(key="location", value=location)
    for key, text in pairs.items():
        tensor.external_data.add(key=key.rstrip("_"), value=text)
    return with_weight(tensor)


def _plain(location: str | None, size: int = BYTES, **pairs: str) -> Callable[..., onnx.ModelProto]:
    """The file ``w.bin`` is there, whatever the model says."""

    def make(room: Path) -> onnx.ModelProto:
        (room / "w.bin").write_bytes(bytes(size))
        return external(location, **pairs)

    return make


def _linked(room: Path) -> onnx.ModelProto:
    (room / "w.bin").symlink_to(room.parent / "secret.bin")
    return external("w.bin")


def _linked_inside(room: Path) -> onnx.ModelProto:
    (room / "real.bin").write_bytes(bytes(BYTES))
    (room / "w.bin").symlink_to("real.bin")
    return external("w.bin")


def _linked_folder(room: Path) -> onnx.ModelProto:
    (room / "sub").symlink_to(room.parent)
    return external("sub/secret.bin")


def _hard_link(room: Path) -> onnx.ModelProto:
    os.link(room.parent / "secret.bin", room / "w.bin")
    return external("w.bin")


def _folder(room: Path) -> onnx.ModelProto:
    (room / "w.bin").mkdir()
    return external("w.bin")


def _fifo(room: Path) -> onnx.ModelProto:
    os.mkfifo(room / "w.bin")
    return external("w.bin")


def _absolute(room: Path) -> onnx.ModelProto:
    return external(str(room.parent / "secret.bin"))


def _inside_absolute(room: Path) -> onnx.ModelProto:
    (room / "w.bin").write_bytes(bytes(BYTES))
    return external(str(room / "w.bin"))


def _of_strings(room: Path) -> onnx.ModelProto:
    (room / "w.bin").write_bytes(bytes(BYTES))
    return external("w.bin", TensorProto.STRING)


def _and_inline(room: Path) -> onnx.ModelProto:
    (room / "w.bin").write_bytes(bytes(BYTES))
    proto = external("w.bin")
    proto.graph.initializer[0].raw_data = bytes(BYTES)
    return proto


def _in_attribute(room: Path) -> onnx.ModelProto:
    proto = external("../secret.bin")
    tensor = proto.graph.initializer.pop()
    constant = proto.graph.node.add(op_type="Constant", output=["w"], name="constant")
    attribute = constant.attribute.add(name="value", type=onnx.AttributeProto.TENSOR)
    attribute.t.CopyFrom(tensor)
    proto.graph.node.reverse()
    return proto


EXTERNAL: tuple[Entry, ...] = (
    ("external_missing", "no such file", lambda room: external("nothing.bin")),
    ("external_parent", "a parent folder", lambda room: external("../secret.bin")),
    ("external_parent_inside", "down and up", lambda room: external("sub/../../secret.bin")),
    ("external_parent_only", "two dots", lambda room: external("..")),
    ("external_dot", "the folder itself", lambda room: external(".")),
    ("external_slash", "the root", lambda room: external("/")),
    ("external_absolute", "an absolute path", _absolute),
    ("external_absolute_inside", "an absolute path into the folder", _inside_absolute),
    ("external_device", "a device", lambda room: external("/dev/zero")),
    ("external_passwd", "the system's files", lambda room: external("/etc/passwd")),
    ("external_link", "a symbolic link out of the folder", _linked),
    ("external_link_inside", "a symbolic link within the folder", _linked_inside),
    ("external_linked_folder", "a folder that is a symbolic link", _linked_folder),
    ("external_hard_link", "a hard link to a file elsewhere", _hard_link),
    ("external_folder", "a folder", _folder),
    ("external_fifo", "a pipe", _fifo),
    ("external_nul", "NUL in the path", _plain("w.bin\0.txt")),
    ("external_backslash", "a Windows path", _plain("..\\secret.bin")),
    ("external_url", "a URL", lambda room: external("https://example.com/w.bin")),
    ("external_file_url", "a file URL", lambda room: external("file:///etc/passwd")),
    ("external_memory", "a tag that means an address", lambda r: external("*/_ORT_MEM_ADDR_/*")),
    ("external_long", "a name of 5000 characters", lambda room: external("w" * 5000)),
    ("external_empty", "an empty path", _plain("")),
    ("external_no_location", "no path", _plain(None)),
    ("external_twice", "two paths", _plain("w.bin", location_="../secret.bin")),
    ("external_trailing_slash", "a file used as a folder", _plain("w.bin/")),
    ("external_below_file", "below a file", _plain("w.bin/w.bin")),
    ("external_short", "a file with fewer bytes", _plain("w.bin", BYTES - 1)),
    ("external_no_bytes", "a file without bytes", _plain("w.bin", 0)),
    ("external_length", "a length that is not the shape's", _plain("w.bin", length="12")),
    ("external_length_negative", "a negative length", _plain("w.bin", length="-24")),
    ("external_offset", "an offset beyond the end", _plain("w.bin", offset="8")),
    ("external_offset_negative", "a negative offset", _plain("w.bin", offset="-4")),
    ("external_offset_text", "an offset that is no number", _plain("w.bin", offset="0x10")),
    ("external_offset_giant", "an offset of 40 digits", _plain("w.bin", offset="9" * 40)),
    ("external_offset_wraps", "an offset near 2^63", _plain("w.bin", offset=str(2**63 - 8))),
    ("external_strings", "strings in a file", _of_strings),
    ("external_and_inline", "data in two places", _and_inline),
    ("external_in_attribute", "a constant in a parent folder", _in_attribute),
)
