"""A SambaLoader gives what its DataLoader gives, with names, from a thread that ends with the epoch."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from samba_onnx.errors import DataLoaderError, UsageError
from samba_onnx.sambaloader import DataLoaderException, SambaLoader
from samba_onnx.tensor import SambaTensor

IMAGES, LABELS = torch.arange(70.0).reshape(7, 10), torch.arange(7)


def loader(**options: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(IMAGES, LABELS), batch_size=2, **options)


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "SambaLoader"]


@pytest.fixture(autouse=True, scope="module")
def _collections_are_cheap() -> None:
    """Leave what other tests keep alive out of them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    gc.collect()
    assert not threads()


@pytest.mark.parametrize("workers", [0, 1])
def test_every_epoch_gives_the_batches_with_names(workers: int) -> None:
    batches = SambaLoader(loader(num_workers=workers), ["image", "label"])
    assert len(batches) == 4
    for _ in range(2):
        epoch = list(batches)
        assert [[tensor.sn_name for tensor in batch] for batch in epoch] == [["image", "label"]] * 4
        assert all(type(tensor) is SambaTensor for batch in epoch for tensor in batch)
        assert torch.equal(torch.cat([image for image, _ in epoch]), IMAGES)
        assert torch.equal(torch.cat([label for _, label in epoch]), LABELS)


def test_batches_are_in_the_order_of_the_loaders_own_shuffle() -> None:
    def shuffled() -> DataLoader[Any]:
        return loader(shuffle=True, generator=torch.Generator().manual_seed(3))

    ours = [label.tolist() for _, label in SambaLoader(shuffled(), ["image", "label"])]
    assert ours == [label.tolist() for _, label in shuffled()]


def test_a_batch_can_be_one_tensor_or_have_names_of_its_own() -> None:
    (batch,) = SambaLoader([torch.ones(2)], ["x"])
    assert [tensor.sn_name for tensor in batch] == ["x"]
    mapping = {"b": torch.zeros(1), "a": torch.ones(1), "notes": "any"}
    ((first, second),) = SambaLoader([mapping], ["a", "b"])
    assert (first.sn_name, first.item(), second.sn_name, second.item()) == ("a", 1, "b", 0)


def test_a_hook_chooses_what_is_named_and_the_batch_can_come_along() -> None:
    names: set[str] = set()

    def images(batch: list[Tensor]) -> list[Tensor]:
        names.add(threading.current_thread().name)
        return [batch[0] * 2]

    pairs = list(SambaLoader(loader(), ["image"], 3, images, True))
    assert names == {"SambaLoader"}
    for (image,), (original, label) in pairs:
        assert torch.equal(image, original * 2)
        assert type(label) is Tensor


class Counting(Dataset[Tensor]):
    """Numbers, of which it tells how many were asked for."""

    def __init__(self) -> None:
        self.asked = 0
        self.enough = threading.Event()

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> Tensor:
        self.asked += 1
        if self.asked == 6:
            self.enough.set()
        return torch.tensor(float(index))


def test_only_so_many_batches_are_loaded_ahead() -> None:
    numbers = Counting()
    epoch = iter(SambaLoader(DataLoader(numbers), ["x"], maxsize=4))
    assert [next(epoch)[0].item()] == [0]
    assert numbers.enough.wait(600)  # one taken, four in the queue, one in hand
    thread = threads()[0]
    thread.join(0.3)
    assert thread.is_alive()
    assert numbers.asked == 6
    del epoch
    assert numbers.asked == 6


@pytest.mark.parametrize("taken", [0, 1])
def test_an_epoch_that_is_left_ends_its_thread(taken: int) -> None:
    batches = SambaLoader(loader(), ["image", "label"], maxsize=1)
    epoch = iter(batches)
    for _ in range(taken):
        next(epoch)
    assert len(threads()) == 1
    del epoch
    assert not threads()
    for image, _ in batches:
        assert torch.equal(image, IMAGES[:2])  # the next one begins anew
        break


def test_next_of_the_loader_goes_through_epoch_after_epoch() -> None:
    batches = SambaLoader(loader(), ["image", "label"])
    for _ in range(2):
        assert [next(batches)[1].tolist() for _ in range(4)] == [[0, 1], [2, 3], [4, 5], [6]]
        with pytest.raises(StopIteration):
            next(batches)


class BrokenError(Exception):
    """What only this dataset raises."""


class Broken(Dataset[Tensor]):
    """Has a number that cannot be loaded."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Tensor:
        if index == 2:
            raise BrokenError("number 2")
        return torch.tensor(index)


def test_what_the_dataloader_raises_is_raised_where_the_batch_is_asked_for() -> None:
    epoch = iter(SambaLoader(DataLoader(Broken()), ["x"]))
    assert [next(epoch)[0].item(), next(epoch)[0].item()] == [0, 1]
    with pytest.raises(BrokenError, match="number 2"):
        next(epoch)
    with pytest.raises(StopIteration):
        next(epoch)


def test_what_the_hook_raises_is_raised_even_where_failures_are_ignored() -> None:
    def broken(batch: Any) -> Any:
        raise BrokenError(str(batch))

    with pytest.raises(BrokenError):
        list(SambaLoader(loader(), ["x"], function_hook=broken, ignore_dataloader_exception=True))


def test_failures_can_be_ignored(caplog: pytest.LogCaptureFixture) -> None:
    batches = SambaLoader(DataLoader(Broken()), ["x"], ignore_dataloader_exception=True)
    with caplog.at_level(logging.WARNING):
        assert [x.item() for (x,) in batches] == [0, 1, 3]
    assert "BrokenError: number 2" in caplog.text


def test_a_loader_that_only_fails_has_an_end() -> None:
    class Failing:
        def __iter__(self) -> Failing:
            return self

        def __next__(self) -> Any:
            raise BrokenError

    with pytest.raises(BrokenError):
        list(SambaLoader(Failing(), ["x"], ignore_dataloader_exception=True))


def test_a_loader_that_hangs_is_told_of_and_not_waited_for() -> None:
    hangs, goes_on = threading.Event(), threading.Event()

    def hanging() -> Iterator[Tensor]:
        yield torch.ones(1)
        hangs.set()
        goes_on.wait()

    epoch = iter(SambaLoader(hanging(), ["x"], timeout=0.2))
    assert hangs.wait(600)  # the first batch is there, however busy the machine is
    next(epoch)
    thread = threads()[0]
    with pytest.raises(DataLoaderException, match=r"no batch for 0.2 s"):
        next(epoch)
    with pytest.raises(StopIteration):
        next(epoch)
    del epoch  # does not wait for the thread
    assert thread.is_alive()
    goes_on.set()
    thread.join()
    assert DataLoaderException is DataLoaderError


@pytest.mark.parametrize(
    ("batch", "names", "words"),
    [
        ([torch.ones(1)], ["a", "b"], "of Tensor, but there are to be 2 tensors, a, b"),
        ([torch.ones(1), "path"], ["a", "b"], "of Tensor, str"),
        ([], ["a"], "of nothing"),
        ({"x": torch.ones(1)}, ["y"], "has x, but no y"),
    ],
)
def test_batches_that_the_names_do_not_fit(batch: Any, names: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        list(SambaLoader([batch], names))


@pytest.mark.parametrize("names", ["image", [], ["a", "a"]])
def test_names_that_cannot_be(names: Any) -> None:
    with pytest.raises(UsageError, match="each once"):
        SambaLoader([], names)


def test_a_queue_of_nothing() -> None:
    with pytest.raises(UsageError, match="maxsize is 0"):
        SambaLoader([], ["x"], maxsize=0)
