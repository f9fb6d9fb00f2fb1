"""A device for tests: a dictionary that counts its transfers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from samba_onnx.errors import InputError
from samba_onnx.tensor import DEVICE


class MemoryStore:
    """Device memory by place; nothing outside refers to it."""

    def __init__(self, **places: torch.Tensor) -> None:
        self.places = {place: tensor.clone() for place, tensor in places.items()}
        self.transfers: list[tuple[str, str]] = []
        self.turn: AbstractContextManager[object] = nullcontext()

    def has(self, place: str) -> bool:
        return place in self.places

    def read(self, place: str) -> torch.Tensor:
        self.transfers.append(("read", place))
        return self.places[place].clone()

    def write(self, place: str, tensor: torch.Tensor) -> None:
        assert type(tensor) is torch.Tensor
        if tensor.shape != self.places[place].shape:
            raise InputError(place)
        self.transfers.append(("write", place))
        self.places[place] = tensor.clone()


@contextmanager
def attached(**places: torch.Tensor) -> Iterator[MemoryStore]:
    store = MemoryStore(**places)
    DEVICE.attach(store)
    try:
        yield store
    finally:
        DEVICE.detach()
