"""The device side alone: one object copies for all tensors of a connection."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch

from samba_onnx.errors import InputError, NoDeviceError, UsageError
from samba_onnx.tensor.device import DeviceConnection
from samba_onnx.tensor.device_side import DeviceSide
from tests.tensor.memory_store import MemoryStore


@dataclass
class Host:
    """The host's part of a tensor named ``w``."""

    data: torch.Tensor = field(default_factory=lambda: torch.ones(2))
    grad: torch.Tensor | None = None
    requires_grad: bool = True
    has_data: bool = True
    sn_region_name: str = "w"
    sn_grad_name: str = "w__grad"
    name: str = "w"
    materialized: int = 0

    @property
    def shape(self) -> torch.Size:
        return self.data.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.data.dtype

    def materialize_(self) -> None:
        self.materialized += 1


def _side(**places: torch.Tensor) -> tuple[DeviceSide, MemoryStore]:
    connection, store = DeviceConnection(), MemoryStore(**places)
    connection.attach(store)
    return DeviceSide(connection), store


def test_values_and_gradients_are_copied_by_the_tensor_s_names() -> None:
    side, store = _side(w=torch.zeros(2), w__grad=torch.full((2,), 3.0))
    tensor = Host()
    side.write(tensor, torch.full((2,), 5.0))
    assert side.read(tensor).tolist() == [5.0, 5.0]
    assert side.read_gradient(tensor).tolist() == [3.0, 3.0]
    side.write_gradient(tensor, torch.zeros(2))
    assert store.transfers == [
        ("write", "w"),
        ("read", "w"),
        ("read", "w__grad"),
        ("write", "w__grad"),
    ]


def test_an_upload_makes_values_only_when_there_is_a_place_for_them() -> None:
    tensor = Host(grad=torch.full((2,), 3.0))
    with pytest.raises(NoDeviceError, match="no program is loaded"):
        DeviceSide(DeviceConnection()).upload(tensor)
    assert tensor.materialized == 0
    side, store = _side(w=torch.zeros(2))
    side.upload(tensor)
    assert tensor.materialized == 1
    assert store.transfers == [("write", "w")]
    side, store = _side(w=torch.zeros(2), w__grad=torch.zeros(2))
    side.upload(tensor)
    assert store.places["w__grad"].tolist() == [3.0, 3.0]


@pytest.mark.parametrize("inplace", [False, True])
def test_a_download_writes_into_memory_that_is_there_or_brings_its_own(inplace: bool) -> None:
    side, _ = _side(w=torch.full((2,), 5.0), w__grad=torch.full((2,), 3.0))
    values, gradient = torch.ones(2), torch.ones(2)
    tensor = Host(values, gradient)
    side.download(tensor, inplace)
    assert tensor.data.tolist() == [5.0, 5.0]
    assert tensor.grad is not None
    assert tensor.grad.tolist() == [3.0, 3.0]
    assert (tensor.data is values) == inplace
    assert (tensor.grad is gradient) == inplace


def test_what_does_not_fit_is_refused_before_a_transfer() -> None:
    side, store = _side(w=torch.zeros(2))
    with pytest.raises(InputError, match=r"sn_data of tensor 'w' was given shape \(3,\)"):
        side.write(Host(), torch.ones(3))
    with pytest.raises(UsageError, match="sn_data was given float; assign a"):
        side.write(Host(), 1.0)  # type: ignore[arg-type]
    with pytest.raises(NoDeviceError, match="it was compiled without"):
        side.read_gradient(Host())
    with pytest.raises(NoDeviceError, match="it does not require gradients"):
        side.read_gradient(Host(requires_grad=False))
    assert store.transfers == []
