"""Sound: spectrograms, dilated and learnt filters, alignments, and the separation of speakers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from tests.training_programs.machines import Machine, Weights, adam, sgd


def tone(frequency: float, samples: int = 256) -> np.ndarray:
    """A sine with some overtones, as numpy has it."""
    t = np.arange(samples) / samples
    return (np.sin(2 * np.pi * frequency * t) + 0.3 * np.sin(6 * np.pi * frequency * t)).astype("f")


def mel_filters(bins: int, filters: int) -> Tensor:
    edges = np.linspace(0, np.log1p(bins), filters + 2)
    edges = np.expm1(edges)
    grid = np.arange(bins)[:, None]
    up = (grid - edges[:-2]) / (edges[1:-1] - edges[:-2])
    down = (edges[2:] - grid) / (edges[2:] - edges[1:-1])
    return torch.from_numpy(np.clip(np.minimum(up, down), 0, None)).float()


def keyword_spotting(on: Machine) -> Weights:
    """``torch.stft`` in ``forward``, mel filters, a logarithm, and convolutions over time."""

    class Spotter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("window", torch.hann_window(32))
            self.register_buffer("mel", mel_filters(17, 8))
            self.net = nn.Sequential(
                nn.Conv1d(8, 12, 3, padding=1), nn.GELU(), nn.AdaptiveAvgPool1d(1), nn.Flatten()
            )
            self.head = nn.Linear(12, 3)

        def forward(self, wave: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
            spectrum = torch.stft(wave, 32, 16, window=self.window, return_complex=True)
            power = spectrum.real**2 + spectrum.imag**2
            mel = (power.transpose(1, 2) @ self.mel).clamp(min=1e-3).log()
            logits = self.head(self.net(mel.transpose(1, 2)))
            return functional.cross_entropy(logits, label), logits

    def batches() -> Iterator[dict[str, Tensor]]:
        while True:
            label = torch.randint(3, (6,))
            wave = np.stack([tone(5 + 9 * int(k)) for k in label])
            yield {"wave": torch.from_numpy(wave) + 0.1 * torch.randn(6, 256), "label": label}

    stream = batches()
    trainer = on.trainer(Spotter(), next(stream), sgd(0.05))
    for batch in itertools.islice(stream, 20):
        on.note(trainer.step(batch)[0])
    return trainer.weights()


class Gated(nn.Module):
    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.pad = dilation
        self.filter = nn.Conv1d(width, width, 2, dilation=dilation)
        self.gate = nn.Conv1d(width, width, 2, dilation=dilation)
        self.skip, self.back = nn.Conv1d(width, width, 1), nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = functional.pad(x, (self.pad, 0))
        z = torch.tanh(self.filter(y)) * torch.sigmoid(self.gate(y))
        return x + self.back(z), self.skip(z)


def wavenet(on: Machine) -> Weights:
    """Eight-bit mu-law samples, dilated causal convolutions, and skips summed by Python's ``sum``."""

    class WaveNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(32, 8)
            self.blocks = nn.ModuleList(Gated(8, 2**i) for i in range(4))
            self.post = nn.Sequential(nn.ReLU(), nn.Conv1d(8, 32, 1))

        def forward(self, samples: Tensor) -> Tensor:
            x = self.embed(samples[:, :-1]).transpose(1, 2)
            skips = []
            for block in self.blocks:
                x, skip = block(x)
                skips.append(skip)
            return functional.cross_entropy(self.post(sum(skips)), samples[:, 1:])

    def mu_law(wave: np.ndarray) -> np.ndarray:
        squeezed = np.sign(wave) * np.log1p(31 * np.abs(wave)) / np.log1p(31)
        return np.clip((squeezed + 1) / 2 * 31, 0, 31).astype(np.int64)

    def batch(step: int) -> dict[str, Tensor]:
        waves = [mu_law(tone(3 + step % 4 + k, 48) / 1.3) for k in range(3)]
        return {"samples": torch.from_numpy(np.stack(waves))}

    trainer = on.trainer(WaveNet(), batch(0), adam(0.01))
    for step in range(20):
        on.note(trainer.step(batch(step))[0])
    return trainer.weights()


def speech_to_text(on: Machine) -> Weights:
    """CTC over a bidirectional GRU, with lengths that every batch has its own."""

    class DeepSpeech(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(5, 8, bidirectional=True, batch_first=True)
            self.fc = nn.Linear(16, 6)
            self.ctc = nn.CTCLoss(zero_infinity=True)

        def forward(self, x: Tensor, y: Tensor, x_len: Tensor, y_len: Tensor) -> tuple:
            logp = self.fc(self.rnn(x)[0]).log_softmax(-1)
            return self.ctc(logp.transpose(0, 1), y, x_len, y_len), logp

    def batch() -> dict[str, Tensor]:
        return {
            "x": torch.randn(4, 14, 5),
            "y": torch.randint(1, 6, (4, 4)),
            "x_len": torch.randint(10, 15, (4,)),
            "y_len": torch.randint(1, 5, (4,)),
        }

    trainer = on.trainer(DeepSpeech(), batch(), sgd(0.1))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def speaker_separation(on: Machine) -> Weights:
    """Conv-TasNet: learnt filters, masks, and a scale-invariant ratio under the better permutation."""

    def si_snr(made: Tensor, true: Tensor) -> Tensor:
        made, true = made - made.mean(-1, keepdim=True), true - true.mean(-1, keepdim=True)
        part = (made * true).sum(-1, keepdim=True) / true.pow(2).sum(-1, keepdim=True) * true
        return 10 * torch.log10(part.pow(2).sum(-1) / (made - part).pow(2).sum(-1))

    class TasNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode = nn.Conv1d(1, 10, 8, stride=4, bias=False)
            self.mask = nn.Sequential(
                nn.GroupNorm(1, 10), nn.Conv1d(10, 16, 1), nn.PReLU(), nn.Conv1d(16, 20, 1)
            )
            self.decode = nn.ConvTranspose1d(10, 1, 8, stride=4, bias=False)

        def forward(self, mix: Tensor, speakers: Tensor) -> Tensor:
            w = self.encode(mix[:, None])
            masks = self.mask(w).unflatten(1, (2, 10)).sigmoid()
            made = self.decode((masks * w[:, None]).flatten(0, 1)).view(mix.size(0), 2, -1)
            straight = si_snr(made, speakers).mean(1)
            crossed = si_snr(made, speakers.flip(1)).mean(1)
            return -torch.maximum(straight, crossed).mean()

    def batch() -> dict[str, Tensor]:
        speakers = torch.stack(
            [torch.from_numpy(np.stack([tone(2 + k, 64), tone(11 - k, 64)])) for k in range(4)]
        )
        speakers = speakers + 0.2 * torch.randn(4, 2, 64)
        return {"mix": speakers.sum(1), "speakers": speakers}

    trainer = on.trainer(TasNet(), batch(), sgd(0.002))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def sinc_filters(on: Machine) -> Weights:
    """SincNet: band passes made of two learnt frequencies each, inside ``forward``."""

    class Sinc(nn.Module):
        def __init__(self, count: int = 6, size: int = 15) -> None:
            super().__init__()
            self.low = nn.Parameter(torch.linspace(0.02, 0.3, count).unsqueeze(1))
            self.band = nn.Parameter(torch.full((count, 1), 0.08))
            self.n = torch.arange(-(size // 2), size // 2 + 1).float().unsqueeze(0)
            self.window = 0.54 + 0.46 * torch.cos(2 * math.pi * self.n / size)
            self.head = nn.Linear(count, 2)

        def forward(self, wave: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
            low = self.low.abs()
            high = low + self.band.abs()
            kernels = 2 * high * torch.sinc(2 * high * self.n) - 2 * low * torch.sinc(
                2 * low * self.n
            )
            y = functional.conv1d(wave[:, None], (kernels * self.window)[:, None])
            logits = self.head((y.pow(2).mean(-1) + 1e-4).log())
            return functional.cross_entropy(logits, label), logits

    label = torch.arange(24) % 2
    waves = torch.from_numpy(np.stack([tone(6 + 17 * int(k), 128) for k in label]))
    data = DataLoader(TensorDataset(waves + 0.3 * torch.randn_like(waves), label), batch_size=6)
    wave, first = next(iter(data))
    trainer = on.trainer(Sinc(), {"wave": wave, "label": first}, sgd(0.01))
    for _ in range(5):
        for wave, label in data:
            on.note(trainer.step({"wave": wave, "label": label})[0])
    return trainer.weights()


def source_filter(on: Machine) -> Weights:
    """A differentiable synthesiser: oscillators by cumulative phases, losses at two resolutions."""

    class DDSP(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(2, 12, batch_first=True)
            self.amplitudes = nn.Linear(12, 4)

        def forward(self, controls: Tensor, wave: Tensor) -> dict[str, Tensor]:
            hidden, _ = self.rnn(controls)
            amplitude = functional.interpolate(
                self.amplitudes(hidden).sigmoid().mT, scale_factor=8.0, mode="linear"
            )
            pitch = controls[..., 0].repeat_interleave(8, dim=1)
            phase = torch.cumsum(pitch, dim=1)[:, None] * torch.arange(1, 5)[:, None]
            made = (amplitude * torch.sin(phase)).sum(1)
            scales = []
            for size in (8, 16):
                a, b = (w.unfold(1, size, size // 2).pow(2).mean(-1) for w in (made, wave))
                scales.append((a - b).abs().mean())
            return {"loss": sum(scales) + (made - wave).pow(2).mean(), "audio": made}

    def batch() -> dict[str, Tensor]:
        pitch = 0.1 + 0.4 * torch.rand(3, 1, 1).expand(3, 8, 1)
        controls = torch.cat([pitch, torch.rand(3, 8, 1)], -1)
        phase = pitch[..., 0].repeat_interleave(8, 1).cumsum(1)
        return {"controls": controls, "wave": torch.sin(phase) + 0.5 * torch.sin(2 * phase)}

    trainer = on.trainer(DDSP(), batch(), sgd(0.1))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


PROGRAMS = [
    keyword_spotting,
    wavenet,
    speech_to_text,
    speaker_separation,
    sinc_filters,
    source_filter,
]
