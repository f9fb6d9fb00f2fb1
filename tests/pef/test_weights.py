"""Tensors in safetensors layout: where they lie, how they are copied, what other readers see."""

from __future__ import annotations

import json
import struct
import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest
from safetensors import safe_open

from samba_onnx.errors import ModelFileError, PefFormatError, UsageError
from samba_onnx.facts.dtypes import ELEMENT_TYPES
from samba_onnx.pef import FileRegion, WeightEntry, lay_out_weights
from samba_onnx.pef.packing import pack, packed_bytes, unpack
from samba_onnx.pef.sources import Source
from samba_onnx.pef.weights import (
    LARGE,
    WeightsLayout,
    encode_tensors,
    lay_out_tensors,
    read_tensors,
)
from tests.versions import needs


def _written(layout: WeightsLayout) -> bytes:
    return b"".join(bytes(chunk) for chunk in layout.chunks())


def _entry(name: str, array: np.ndarray, kind: str = "float") -> WeightEntry:
    return WeightEntry(name, f"tensor({kind})", array.shape, array)


def test_safetensors_reads_every_tensor(tmp_path: Path) -> None:
    arrays = {
        "scalar": np.full((), 3, np.float32),
        "large": np.arange(LARGE // 4 + 1, dtype=np.float32),
        "odd": np.arange(5, dtype=np.uint8),
        "empty": np.zeros((0, 3), np.float64),
        "grid": np.arange(12, dtype=np.int64).reshape(3, 4),
        "truth": np.array([True, False, True]),
    }
    kinds = dict.fromkeys(arrays, "float") | {
        "odd": "uint8", "empty": "double", "grid": "int64", "truth": "bool"
    }  # fmt: skip
    path = tmp_path / "w.safetensors"
    path.write_bytes(encode_tensors(_entry(n, a, kinds[n]) for n, a in arrays.items()))
    with safe_open(path, "np") as file:
        read = {n: file.get_tensor(n) for n in file.keys() if not n.startswith("__padding__")}  # noqa: SIM118
    assert read.keys() == arrays.keys()
    for name, array in arrays.items():
        assert read[name].dtype == array.dtype
        np.testing.assert_array_equal(read[name], array)


def test_offsets_are_aligned_and_point_at_the_content() -> None:
    arrays = {f"t{n}": np.full(n * n + 1, n, np.uint8) for n in range(20)}
    arrays["large"] = np.full(LARGE, 77, np.uint8)
    layout = lay_out_weights(_entry(n, a, "uint8") for n, a in arrays.items())
    content = _written(layout)
    assert len(content) == layout.size
    for name, array in arrays.items():
        where = layout.stored[name]
        assert where.offset % (4096 if array.size >= LARGE else 64) == 0
        assert content[where.offset : where.offset + where.bytes] == array.tobytes()


@pytest.mark.parametrize("element", ELEMENT_TYPES.values(), ids=ELEMENT_TYPES.keys())
def test_every_element_type_survives(element: object, tmp_path: Path) -> None:
    kind = ELEMENT_TYPES[element.name]  # type: ignore[attr-defined]
    generator = np.random.default_rng(0)
    bits = generator.integers(0, 2 if kind.name == "bool" else 256, 42 * 16, dtype=np.uint8)
    if kind.packs:
        array = unpack(bits[: packed_bytes(kind, (3, 7))], kind, (3, 7))
    else:
        array = bits.view(kind.numpy)[:21].reshape(3, 7)
    content = encode_tensors([WeightEntry("t", f"tensor({kind.name})", (3, 7), array)])
    (tensor,) = read_tensors(memoryview(content), ["t"]).values()
    assert (tensor.type, tensor.shape) == (f"tensor({kind.name})", (3, 7))
    assert tensor.bytes == packed_bytes(kind, (3, 7))
    held = content[tensor.offset : tensor.offset + tensor.bytes]
    expected = pack(array, kind).tobytes() if kind.packs else array.tobytes()
    assert held == expected
    path = tmp_path / "t.safetensors"
    path.write_bytes(content)
    with safe_open(path, "np") as file:  # opening checks every dtype and size in the header
        assert list(file.keys()) == ["t"]


@pytest.mark.parametrize(
    "name",
    [
        *("int4", "uint4", "float4e2m1"),
        *(pytest.param(name, marks=needs("onnx", "1.20")) for name in ("int2", "uint2")),
    ],
)
@pytest.mark.parametrize("count", [1, 2, 3, 8, 13])
def test_packing_is_that_of_onnx(name: str, count: int) -> None:
    element = ELEMENT_TYPES[name]
    codes = np.arange(count, dtype=np.uint8) % 2**element.bits
    array = unpack(pack(codes, element), element, (count,))
    tensor = onnx.numpy_helper.from_array(array)
    assert onnx.helper.tensor_dtype_to_string(tensor.data_type).endswith(name.upper())
    assert tensor.raw_data == pack(array, element).tobytes()
    back = unpack(np.frombuffer(tensor.raw_data, np.uint8), element, (count,))
    np.testing.assert_array_equal(back.view(np.uint8), array.view(np.uint8))


def test_types_without_a_name_in_safetensors_are_described() -> None:
    array = np.array([[1, -2, 3]], ml_dtypes.int4)
    content = encode_tensors([WeightEntry("q", "tensor(int4)", (1, 3), array)])
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + length])
    assert header["__metadata__"] == {"q": "tensor(int4) [1, 3]"}
    assert header["q"] == {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}


def test_names_that_safetensors_reserves_are_kept_apart() -> None:
    names = ["__metadata__", "___metadata__", "__padding__.0", "_one", "plain", "ü\n"]
    entries = [_entry(n, np.full(k + 1, k, np.uint8), "uint8") for k, n in enumerate(names)]
    read = read_tensors(memoryview(encode_tensors(entries)), names)
    assert [read[name].bytes for name in names] == [1, 2, 3, 4, 5, 6]


def test_laying_out_again_changes_nothing() -> None:
    shapes = [(LARGE,), (3,), (0,), (LARGE + 1,), (64,), (0, 2), (), (5,)]
    first = lay_out_tensors([(f"t{n}", "tensor(uint8)", s) for n, s in enumerate(shapes)])
    assert lay_out_tensors([(t.name, t.type, t.shape) for t in first.tensors]) == first


def test_every_source_gives_the_same_bytes(tmp_path: Path) -> None:
    array = np.arange(400_000, dtype=np.float32).reshape(400, 1000)
    path = tmp_path / "data"
    path.write_bytes(b"front" + array.tobytes() + b"behind")
    turned = np.ascontiguousarray(array.T).T
    assert not turned.flags.c_contiguous
    wide = np.asfortranarray(array.reshape(2, -1))
    with path.open("rb") as file:
        sources: dict[str, Source] = {
            "bytes": array.tobytes(),
            "view": memoryview(array.tobytes()),
            "array": array,
            "turned": turned,
            "path": FileRegion(path, 5, array.nbytes),
            "descriptor": FileRegion(file.fileno(), 5, array.nbytes),
            "function": lambda: (row.tobytes() for row in array),
        }
        layout = lay_out_weights(
            [WeightEntry(n, "tensor(float)", (400, 1000), s) for n, s in sources.items()]
            + [WeightEntry("wide", "tensor(float)", (2, 200_000), wide)]
        )
        content = _written(layout)
    for name, where in layout.stored.items():
        assert content[where.offset : where.offset + where.bytes] == array.tobytes(), name


def test_a_region_is_copied_in_small_pieces(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with path.open("wb") as file:
        file.truncate(64 << 20)
    layout = lay_out_weights(
        [WeightEntry("w", "tensor(uint8)", (64 << 20,), FileRegion(path, 0, 64 << 20))]
    )
    tracemalloc.start()
    try:
        assert sum(len(chunk) for chunk in layout.chunks()) == layout.size
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 << 20


def test_a_repeated_name_is_stored_once() -> None:
    tied = _entry("tied", np.ones(3, np.float32))
    assert len(lay_out_weights([tied, tied]).layout.tensors) == 1
    with pytest.raises(UsageError, match="'tied' is"):
        lay_out_weights([tied, _entry("tied", np.ones(4, np.float32))])


def test_sources_of_the_wrong_size_are_refused(tmp_path: Path) -> None:
    def entry(source: Source) -> WeightEntry:
        return WeightEntry("w", "tensor(float)", (2,), source)

    for source in (b"1234567", np.zeros(3, np.float32), FileRegion(tmp_path, 0, 9)):
        with pytest.raises(UsageError, match="needs 8"):
            lay_out_weights([entry(source)])
    with pytest.raises(UsageError, match="float64 cannot be stored"):
        lay_out_weights([entry(np.zeros(2))])
    with pytest.raises(UsageError, match="cannot be the source"):
        lay_out_weights([entry(3.0)])  # type: ignore[arg-type]
    for pieces in ([b"1234"], [b"12345678", b"9"]):
        with pytest.raises(UsageError, match="its source gives"):
            _written(lay_out_weights([entry(lambda pieces=pieces: pieces)]))  # type: ignore[misc]


def test_a_file_that_ends_early_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_bytes(b"1234")
    layout = lay_out_weights([WeightEntry("w", "tensor(float)", (2,), FileRegion(path, 0, 8))])
    with pytest.raises(ModelFileError, match="ends 4 bytes too early"):
        _written(layout)


@pytest.mark.parametrize("kind", ["tensor(string)", "seq(tensor(float))", "float", ""])
def test_types_without_a_fixed_size_are_refused(kind: str) -> None:
    with pytest.raises(UsageError, match="no fixed size"):
        lay_out_tensors([("w", kind, (1,))])


def test_a_header_that_lists_something_else_is_refused() -> None:
    content = memoryview(encode_tensors([_entry("a", np.ones(3, np.float32))]))
    for names in (["b"], [], ["a", "b"]):
        with pytest.raises(PefFormatError):
            read_tensors(content, names)
