"""Device memory: room, alignment, sharing, and elements that numpy lacks."""

from __future__ import annotations

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from samba_onnx.errors import ExecutionError, InternalError, OutOfDeviceMemoryError
from samba_onnx.facts.dtypes import ELEMENT_TYPES
from samba_onnx.pef.manifest import Region, Symbol
from samba_onnx.pef.target_summary import Tier
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.runtime.elements import from_items, to_items
from samba_onnx.runtime.memory import ALIGNMENT, DeviceMemory, TierUsage, release_free_memory

TIERS = (Tier("hbm", 1000, 1.0), Tier("ddr", 500, 1.0))


def symbol(name: str, region: str, kind: str = "tensor(float)", shape: object = (4,)) -> Symbol:
    return Symbol(name, SymbolKind.ACTIVATION, kind, shape, region)  # type: ignore[arg-type]


def test_usage_by_tier() -> None:
    regions = [Region("a", 600, "hbm"), Region("b", 100, "ddr"), Region("c", 400, "hbm")]
    memory = DeviceMemory(TIERS, regions)
    assert memory.usage() == (TierUsage("hbm", 1000, 1000), TierUsage("ddr", 100, 500))
    assert [usage.free for usage in memory.usage()] == [0, 400]


def test_overflow_is_refused_in_order() -> None:
    regions = [Region("a", 600, "hbm"), Region("b", 401, "hbm"), Region("c", 1, "hbm")]
    with pytest.raises(
        OutOfDeviceMemoryError, match=r"region 'b' \(symbol 's'\) needs 401 bytes, but 400"
    ):
        DeviceMemory(TIERS, regions, [symbol("s", "b")])
    with pytest.raises(
        OutOfDeviceMemoryError, match=r"tier 'sram', which the target does not have"
    ):
        DeviceMemory(TIERS, [Region("a", 1, "sram")])


def test_tensors_are_aligned_and_share_their_region() -> None:
    regions = [Region("r", 16, "hbm"), Region("q", 3, "hbm")]
    symbols = [
        symbol("a", "r"),
        symbol("b", "r", "tensor(int32)", (2, 2)),
        symbol("c", "q", "tensor(bool)", (3,)),
    ]
    memory = DeviceMemory(TIERS, regions, symbols)
    for name in "abc":
        assert memory.tensor(name)._items.ctypes.data % ALIGNMENT == 0
    memory.tensor("a").store(np.ones(4, np.float32))
    assert memory.tensor("b").load().tolist() == [[0x3F800000] * 2] * 2
    assert memory.tensor("a") is memory.tensor("a")


def test_only_the_stated_shape_and_type_are_stored() -> None:
    memory = DeviceMemory(TIERS, [Region("r", 16, "hbm")], [symbol("a", "r")])
    memory.tensor("a").store(np.ones(4, np.float32))
    # Both would go in by numpy's rules.
    for shape in ((1,), (1, 4)):
        with pytest.raises(ExecutionError, match=r"has shape \[1.*the model states \[4\]"):
            memory.tensor("a").store(np.zeros(shape, np.float32))
    # By numpy's rules this would be rounded.
    with pytest.raises(TypeError, match="float64"):
        memory.tensor("a").store(np.zeros(4, np.float64))
    assert memory.tensor("a").load().tolist() == [1, 1, 1, 1]


def test_loads_are_fresh_and_stores_copy() -> None:
    memory = DeviceMemory(TIERS, [Region("r", 16, "hbm")], [symbol("a", "r")])
    given = np.arange(4, dtype=np.float32)
    memory.tensor("a").store(given)
    given[:] = 9
    first = memory.tensor("a").load()
    first[:] = 8
    assert memory.tensor("a").load().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "bad",
    [
        symbol("a", "r", "tensor(string)"),
        symbol("a", "r", "seq(tensor(float))"),
        symbol("a", "r", shape=("N",)),
        symbol("a", "r", shape=None),
        symbol("a", "r", shape=(5,)),
        symbol("a", "elsewhere"),
    ],
)
def test_values_that_cannot_live_on_the_device(bad: Symbol) -> None:
    memory = DeviceMemory(TIERS, [Region("r", 16, "hbm")], [bad])
    with pytest.raises(InternalError, match="please report"):
        memory.tensor("a")


@pytest.mark.parametrize("name", sorted(ELEMENT_TYPES))
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 0)])
def test_every_element_type_survives_the_device(name: str, shape: tuple[int, ...]) -> None:
    element = ELEMENT_TYPES[name]
    # 0 and 1 are numbers of every type; float8e8m0 has no 0.
    array = np.resize(np.array([1, 0, 1], np.float32), shape)
    if name == "float8e8m0":
        array = array + 1
    given = array.astype(element.numpy)
    size = -(-element.bits * given.size // 8)
    memory = DeviceMemory(
        TIERS, [Region("r", size, "hbm")], [symbol("a", "r", f"tensor({name})", shape)]
    )
    tensor = memory.tensor("a")
    tensor.store(given)
    result = tensor.load()
    assert (result.dtype, result.shape) == (given.dtype, shape)
    np.testing.assert_array_equal(result.astype(np.complex64), array.astype(np.complex64))


def test_strided_arrays_of_foreign_types() -> None:
    element = ELEMENT_TYPES["bfloat16"]
    array = np.arange(6, dtype=np.float32).astype(ml_dtypes.bfloat16).reshape(2, 3).T
    back = from_items(to_items(array, element), element, (3, 2))
    assert back.astype(np.float32).tolist() == [[0, 3], [1, 4], [2, 5]]
    flat = from_items(to_items(array, element).reshape(-1), element, (3, 2))
    assert flat.astype(np.float32).tolist() == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize(
    ("names", "owners"),
    [("", ""), ("pq", " (symbol 'p', 'q')"), ("pqrs", " (symbol 'p', 'q', 'r')")],
)
def test_a_region_that_does_not_fit_is_told_by_what_it_holds(names: str, owners: str) -> None:
    symbols = [symbol(name, "big") for name in names]
    with pytest.raises(OutOfDeviceMemoryError) as caught:
        DeviceMemory(TIERS, [Region("big", 2000, "hbm")], symbols)
    assert str(caught.value).startswith(f"region 'big'{owners} needs 2,000 bytes, but 1,000 ")


@pytest.mark.parametrize(
    ("system", "can_trim", "kept"), [("posix", True, [0]), ("posix", False, []), ("nt", True, [])]
)
def test_free_memory_is_given_back_where_the_system_can(
    monkeypatch: pytest.MonkeyPatch, system: str, can_trim: bool, kept: list[int]
) -> None:
    """All of it; not every C library can, and one that is not POSIX's is not even asked."""
    trims: list[int] = []
    library = SimpleNamespace(malloc_trim=trims.append) if can_trim else SimpleNamespace()
    monkeypatch.setattr("samba_onnx.runtime.memory.os", SimpleNamespace(name=system))
    ctypes = SimpleNamespace(CDLL=lambda _name: library)
    monkeypatch.setattr("samba_onnx.runtime.memory.ctypes", ctypes)
    release_free_memory()
    assert trims == kept


def test_regions_are_aligned_wherever_the_system_puts_them() -> None:
    sizes = range(1, 200)
    names = [f"r{size}" for size in sizes]
    memory = DeviceMemory(
        [Tier("hbm", 1 << 20, 1.0)],
        [Region(name, size, "hbm") for name, size in zip(names, sizes, strict=True)],
        [
            symbol(name, name, "tensor(bool)", (size,))
            for name, size in zip(names, sizes, strict=True)
        ],
    )
    tensors = [memory.tensor(name) for name in names] + [memory.private(name) for name in names]
    assert {tensor.address % ALIGNMENT for tensor in tensors} == {0}
    assert len({tensor.address for tensor in tensors}) == len(tensors)


def test_regions_side_by_side_are_aligned_and_apart() -> None:
    regions = [Region(name, 12, "hbm") for name in "abc"]
    memory = DeviceMemory(TIERS, regions, [symbol(name, name, shape=(3,)) for name in "abc"])
    memory.lay_together("abc", 1)
    for number, name in enumerate("abc"):
        tensor = memory.tensor(name)
        assert tensor._items.ctypes.data % ALIGNMENT == 0
        tensor.store(np.full(3, number, np.float32))
    assert [memory.tensor(name).load().tolist() for name in "abc"] == [[0] * 3, [1] * 3, [2] * 3]
    numbers = memory.stretch("abc", 1)
    assert numbers.shape == (2 * ALIGNMENT // 4 + 3 + 1,)
    assert numbers[ALIGNMENT // 4] == 1
