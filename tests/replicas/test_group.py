"""Replicas as torch.distributed has them; a group of one is enough for what is said here."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from samba_onnx.errors import UsageError
from samba_onnx.replicas.group import PendingMean, Replicas


@pytest.fixture
def group() -> None:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)


def test_there_must_be_a_group() -> None:
    assert not Replicas.exist()
    with pytest.raises(UsageError, match="launch the program with torchrun or mpirun"):
        Replicas()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_means_are_taken_where_the_numbers_lie(group: None, dtype: type) -> None:
    memory = np.arange(8).astype(dtype)
    before = memory.copy()
    Replicas().start(memory[2:6], "numbers").wait()
    np.testing.assert_array_equal(memory, before)


def test_sums_are_divided_where_a_backend_takes_no_means() -> None:
    class Work:
        def wait(self) -> None:
            tensor.mul_(3)

    import torch

    tensor = torch.tensor([1.0, -2.0])
    PendingMean(Work(), tensor, 4).wait()
    assert tensor.tolist() == [0.75, -1.5]


def test_a_group_is_known_as_long_as_it_is_the_same(group: None) -> None:
    first = Replicas.current(None)
    assert (first.rank, first.size) == (0, 1)
    assert Replicas.current(first) is first
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    assert Replicas.current(first) is not first


def test_objects_and_arrays_of_the_first_one(group: None) -> None:
    replicas = Replicas()
    array = np.array([1.5, 2.5], ml_dtypes.bfloat16)
    replicas.broadcast(array)
    replicas.broadcast(np.empty(0, np.float32))
    assert array.tolist() == [1.5, 2.5]
    assert replicas.from_first({"a": 1}) == {"a": 1}
    assert replicas.of_all("x") == ["x"]
    assert replicas.agree(b"x")
