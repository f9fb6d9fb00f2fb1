"""Complex numbers inside of a module, as pairs of real values."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from samba_onnx.errors import ModelError
from samba_onnx.export.programs.inference import inference_program
from tests.export.exporting import check
from tests.export.training_models import trained

CASES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "transform of two axes": lambda x, y: torch.fft.fftn(x, dim=(0, 1)).real,
    "imaginary part": lambda x, y: torch.fft.fft(x + y, dim=-2).imag,
    "longer": lambda x, y: torch.view_as_real(torch.fft.fft(x, n=9)),
    "inverse": lambda x, y: torch.fft.ifft(torch.complex(x, y), dim=0).real,
    "there and back": lambda x, y: torch.fft.irfft(torch.fft.rfft(x * y), n=6),
    "odd, back": lambda x, y: torch.fft.irfft(torch.fft.rfft(x, n=5, norm="ortho"), n=5),
    "planes": lambda x, y: torch.fft.irfft2(torch.fft.rfft2(x, norm="forward") * y[0, 0]),
    "rotation": lambda x, y: torch.view_as_real(
        torch.view_as_complex(x.reshape(4, 3, 2)) * torch.polar(y[:, :3].abs(), y[:, 3:])
    ).flatten(1),
    "length": lambda x, y: torch.complex(x, y).abs(),
    "conjugate": lambda x, y: (torch.complex(x, y).conj() * torch.complex(y, x)).imag,
    "number": lambda x, y: torch.view_as_real(torch.complex(x, y) * (2 - 1j) * 0.5),
    "arrangement": lambda x, y: torch.view_as_real(
        torch.cat([torch.complex(x, y).t(), torch.complex(y, x)[:, :4].unsqueeze(0)[0]], 0)[1:]
    ),
    "numbers added": lambda x, y: torch.view_as_real(1 - (torch.complex(x, y) + 2j + 3)),
    "integers": lambda x, y: torch.view_as_real(torch.complex(x, y) + (x > 0).long()),
    "longer in the middle": lambda x, y: torch.fft.fft2(torch.complex(x, y), s=(6, 4)).real,
    "framed": lambda x, y: torch.view_as_real(
        nn.functional.pad(torch.complex(x, y), (1, 2), value=3.0)
    ),
    "direction": lambda x, y: torch.view_as_real(torch.complex(x.relu(), y.relu()).sgn()),
    "quotients": lambda x, y: torch.view_as_real(
        torch.complex(x, y) / torch.complex(y, x) / x / 3 / (2 - 1j)
    ),
    "real over complex": lambda x, y: (x / torch.complex(y, x)).imag,
    "integers, back": lambda x, y: torch.fft.irfft((x * 9).long(), dim=-1),
    "choice": lambda x, y: torch.view_as_real(torch.where(x > 0, torch.complex(x, y), 1.0)),
    "sums": lambda x, y: (torch.complex(x, y) + x - torch.complex(y, y)).sum(0).abs(),
}


class Computation(nn.Module):
    """Computes with two real tensors."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return self.function(first, second)


@pytest.mark.parametrize("name", CASES)
def test_real_results_are_those_of_torch(name: str) -> None:
    torch.manual_seed(3)
    check(Computation(CASES[name]), (torch.randn(4, 6), torch.randn(4, 6)))


def test_complex_outputs_are_refused() -> None:
    module = Computation(torch.complex)
    with pytest.raises(ModelError, match="returns complex numbers"):
        inference_program(module, (torch.randn(2), torch.randn(2)))


def test_what_is_not_known_of_complex_numbers_is_refused() -> None:
    module = Computation(lambda x, y: torch.complex(x, y).tan().real)
    with pytest.raises(ModelError, match="tan"):
        inference_program(module, (torch.randn(2), torch.randn(2)))


class Spectrum(nn.Module):
    """Holds complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("factors", torch.randn(3, dtype=torch.complex64))

    def forward(self, value: Tensor) -> Tensor:
        product: Tensor = value * self.factors
        return product.abs()


def test_complex_buffers_are_refused() -> None:
    with pytest.raises(ModelError, match=r"view_as_complex"):
        inference_program(Spectrum(), (torch.randn(3),))


class Mixing(nn.Module):
    """Learns with complex numbers between its layers, as rotations and transforms."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.second = nn.Linear(6, 4)
        self.last = nn.Linear(8, 3)

    def forward(self, value: Tensor) -> Tensor:
        pairs = torch.view_as_complex(self.first(value).reshape(4, 4, 2))
        turned = pairs * torch.polar(value[:, :4].abs(), self.second(value))
        mixed = torch.fft.fft2(torch.view_as_real(turned).flatten(1)).real
        return self.last(torch.tanh(mixed)).square().mean()


def test_gradients_pass_through_complex_numbers() -> None:
    torch.manual_seed(5)
    trained(Mixing(), (torch.randn(4, 6),))


class Spectrogram(nn.Module):
    """Learns through overlapping frames of a signal, directions and padded planes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 16)
        self.last = nn.Linear(4, 4)

    def forward(self, value: Tensor) -> Tensor:
        frames = torch.stft(self.first(value), 8, hop_length=2, return_complex=True)
        rows = self.last(value[:, :4])
        planes = torch.fft.ifft2(torch.complex(rows, value[:, 2:]), s=(3, 7))
        turned = torch.polar(rows, rows.cos()).sgn()
        return frames.abs().mean() + planes.real.square().sum() + (turned * turned).imag.sum()


def test_gradients_pass_through_frames_and_directions() -> None:
    torch.manual_seed(6)
    trained(Spectrogram(), (torch.randn(4, 6),))
