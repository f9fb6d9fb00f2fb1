"""Batches of a DataLoader as named SambaTensors, loaded in the background: SambaFlow's ``sambaloader``."""

from __future__ import annotations

import logging
import queue
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from torch import Tensor

from samba_onnx.errors import DataLoaderError, UsageError
from samba_onnx.tensor import SambaTensor, from_torch_tensor

__all__ = ["DataLoaderException", "SambaLoader"]

DataLoaderException = DataLoaderError
"""SambaFlow's name."""

_log = logging.getLogger(__name__)
_PATIENCE: Final = 0.1
"""Seconds after which a thread with a full queue looks whether anybody still wants its batches."""
_MOST_FAILURES: Final = 100
"""So many batches in a row may fail where failures are ignored: a loader that only fails has no end."""


class SambaLoader:
    """Iterates over a DataLoader, in a thread of its own, and names the tensors of every batch.

    Every ``iter()`` is an epoch with a thread of its own, which ends with the epoch, or when its
    iterator is closed or forgotten. ``next()`` of the loader itself goes through one epoch after the
    other. (SambaFlow API reference, ``SambaLoader``, new in 1.19.)

    Example:
        >>> loader = SambaLoader(DataLoader(dataset, batch_size=32), ["image", "label"])
        >>> for image, label in loader:
        ...     loss, _ = samba.session.run((image, label), model.output_tensors)
    """

    def __init__(
        self,
        dataloader: Iterable[Any],
        names: Sequence[str],
        maxsize: int = 10,
        function_hook: Callable[[Any], Any] | None = None,
        return_original_batch: bool = False,
        ignore_dataloader_exception: bool = False,
        timeout: float | None = 900.0,
    ) -> None:
        """Start nothing yet.

        Args:
            dataloader: A ``torch.utils.data.DataLoader``, or anything else that can be iterated over.
            names: Names of the tensors of a batch, in their order; those of the compiled inputs.
            maxsize: So many batches are loaded ahead.
            function_hook: Called with every batch, in the background; what it returns is named in the
                place of the batch: a tensor, a sequence of tensors, or a mapping with tensors by
                name. The batch itself when None.
            return_original_batch: Whether every item is a pair of the named tensors and the batch as
                the DataLoader gave it.
            ignore_dataloader_exception: Whether batches that the DataLoader fails to load are left
                out, each with a warning in the log.
            timeout: Seconds to wait for a batch; None for as long as it takes.

        Raises:
            UsageError: ``names`` is empty, a text or has a name twice, or ``maxsize`` is not positive.
        """
        if isinstance(names, str) or not names or len(set(names)) < len(names):
            raise UsageError(
                f"names are {names!r}: give a list of the names of a batch's tensors, each once"
            )
        if maxsize < 1:
            raise UsageError(f"maxsize is {maxsize}: at least 1 batch has to fit")
        self._dataloader = dataloader
        self._order = _Order(tuple(names), function_hook, return_original_batch)
        self._maxsize = maxsize
        self._ignores = ignore_dataloader_exception
        self._timeout = timeout
        self._epoch: _Epoch | None = None

    def __len__(self) -> int:
        """Return the number of batches of an epoch.

        Raises:
            TypeError: The DataLoader does not know it.
        """
        return len(self._dataloader)  # type: ignore[arg-type]  # raises what the loader's users know

    def __iter__(self) -> Iterator[Any]:
        """Begin an epoch.

        Returns:
            An iterator over tuples of named SambaTensors, which share the memory of the batch's
            tensors; over pairs of such a tuple and the batch with ``return_original_batch``. It raises
            what the DataLoader or ``function_hook`` raised, with its own class; ``UsageError`` for a
            batch that the names do not fit; ``DataLoaderError`` when no batch came in time.
        """
        return _Epoch(self._dataloader, self._order, self._maxsize, self._ignores, self._timeout)

    def __next__(self) -> Any:
        """Return the next item of the loader's own epoch, and begin one if there is none.

        Raises:
            StopIteration: The epoch is over; the next call begins another.
        """
        if self._epoch is None:
            self._epoch = _Epoch(
                self._dataloader, self._order, self._maxsize, self._ignores, self._timeout
            )
        try:
            return next(self._epoch)
        except BaseException:
            self._epoch = None
            raise


@dataclass(frozen=True)
class _Order:
    """What is to become of every batch."""

    names: tuple[str, ...]
    hook: Callable[[Any], Any] | None
    with_batch: bool

    def item(self, batch: Any) -> Any:
        """Return what the loader's user gets of a batch."""
        tensors = self._named(batch if self.hook is None else self.hook(batch))
        return (tensors, batch) if self.with_batch else tensors

    def _named(self, batch: Any) -> tuple[SambaTensor, ...]:
        if isinstance(batch, Tensor):
            batch = (batch,)
        elif isinstance(batch, Mapping):
            missing = [name for name in self.names if name not in batch]
            if missing:
                raise UsageError(
                    f"a batch has {', '.join(map(str, batch))}, but no {', '.join(missing)}: give the "
                    "loader names that it has, or a function_hook that returns the tensors"
                )
            batch = [batch[name] for name in self.names]
        kinds = [type(part).__name__ for part in batch]
        if len(kinds) != len(self.names) or not all(isinstance(part, Tensor) for part in batch):
            raise UsageError(
                f"a batch is of {', '.join(kinds) or 'nothing'}, but there are to be "
                f"{len(self.names)} tensors, {', '.join(self.names)}: name all of them, or give the "
                "loader a function_hook that returns those that are named"
            )
        pairs = zip(batch, self.names, strict=True)
        return tuple(from_torch_tensor(part, name=name, batch_dim=0) for part, name in pairs)


@dataclass(frozen=True)
class _End:
    """The last thing that a thread says."""

    error: BaseException | None = None


class _Epoch(Iterator[Any]):
    """One pass over a DataLoader."""

    def __init__(
        self,
        dataloader: Iterable[Any],
        order: _Order,
        maxsize: int,
        ignores: bool,
        timeout: float | None,
    ) -> None:
        """Start the thread."""
        self._items: queue.Queue[Any] = queue.Queue(maxsize)
        self._timeout = timeout
        self._is_wanted = threading.Event()
        self._is_wanted.set()
        # It knows nothing of this object, which can so be forgotten, and ends the thread then.
        worker = _Worker(self._items, self._is_wanted, order, ignores)
        thread = threading.Thread(
            target=worker.load, args=(dataloader,), name="SambaLoader", daemon=True
        )
        self.close = weakref.finalize(self, _stop, self._is_wanted, thread)
        thread.start()

    def __next__(self) -> Any:
        """Return the next item."""
        if not self.close.alive:
            raise StopIteration
        try:
            item = self._items.get(timeout=self._timeout)
        except queue.Empty:
            self._is_wanted.clear()
            self.close.detach()  # nobody waits for a thread that may never end
            raise DataLoaderError(
                f"the DataLoader has given no batch for {self._timeout:g} s: look what it waits for, "
                "or give the SambaLoader a longer timeout"
            ) from None
        if not isinstance(item, _End):
            return item
        self.close()
        raise item.error or StopIteration


def _stop(is_wanted: threading.Event, thread: threading.Thread) -> None:
    """Let a thread end after the batch that it is loading, and wait for that.

    The next epoch may use the same dataset, which need not bear two threads.
    """
    is_wanted.clear()
    if thread is not threading.current_thread():  # where the collector happened to run
        thread.join()


@dataclass(frozen=True)
class _Worker:
    """What a thread does."""

    items: queue.Queue[Any]
    is_wanted: threading.Event
    order: _Order
    ignores: bool

    def load(self, dataloader: Iterable[Any]) -> None:
        """Load batches until there are no more, or nobody wants them."""
        error: BaseException | None = None
        try:
            for batch in self._batches(dataloader):
                if not self._put(self.order.item(batch)):
                    return
        except BaseException as caught:
            error = caught
        self._put(_End(error))

    def _batches(self, dataloader: Iterable[Any]) -> Iterator[Any]:
        batches, failures = iter(dataloader), 0
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return
            except Exception as error:
                failures += 1
                if not self.ignores or failures > _MOST_FAILURES:
                    raise
                _log.warning("a batch is left out: %s: %s", type(error).__name__, error)
                continue
            failures = 0
            yield batch

    def _put(self, item: Any) -> bool:
        """Hand an item over; False if nobody wants it any more."""
        while self.is_wanted.is_set():
            try:
                self.items.put(item, timeout=_PATIENCE)
            except queue.Full:
                continue
            return True
        return False
