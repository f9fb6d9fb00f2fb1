"""A network of much that an RDU lacks, for what rules of legalisation bring together."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["ReflectingUnet", "build"]

SIZE = 32


class ReflectingUnet(nn.Module):
    """A U-Net with five reflecting pads, two einsums, two resizes, an LSTM over its rows and a grid sample."""

    def __init__(self) -> None:
        super().__init__()
        sizes = ((3, 16), (16, 32), (32, 32), (64, 16), (32, 8))
        self.blocks = nn.ModuleList(
            nn.Conv2d(*channels, 3, padding=1, padding_mode="reflect") for channels in sizes
        )
        self.rows = nn.LSTM(8 * SIZE, 8 * SIZE, batch_first=True)
        self.last = nn.Conv2d(8, 3, 1)
        turn = torch.tensor([[[0.9, -0.1, 0.05], [0.1, 0.9, -0.05]]])
        grid = functional.affine_grid(turn, [1, 3, SIZE, SIZE], align_corners=False)
        self.register_buffer("grid", grid)
        self.grid: Tensor

    def forward(self, image: Tensor) -> Tensor:
        """Map an image (1, 3, 32, 32) to one of its shape."""
        down, middle, deep, up, fine = self.blocks
        first = torch.relu(down(image))
        second = torch.relu(middle(functional.max_pool2d(first, 2)))
        bottom = torch.relu(deep(functional.max_pool2d(second, 2)))
        alike = torch.einsum("bchw,bdhw->bcd", bottom, bottom).softmax(-1)
        bottom = torch.einsum("bcd,bdhw->bchw", alike, bottom)
        wider = functional.interpolate(bottom, scale_factor=2, mode="bilinear")
        wider = torch.relu(up(torch.cat([wider, second], 1)))
        widest = functional.interpolate(wider, scale_factor=2, mode="bilinear")
        widest = torch.relu(fine(torch.cat([widest, first], 1)))
        rows = widest.permute(0, 2, 1, 3).flatten(2)
        swept, _ = self.rows(rows)
        pixels = swept.unflatten(2, (8, SIZE)).permute(0, 2, 1, 3)
        return functional.grid_sample(self.last(pixels), self.grid, align_corners=False)


def build() -> tuple[ReflectingUnet, tuple[Tensor]]:
    """Return the network with seeded weights, and an image."""
    torch.manual_seed(0)
    return ReflectingUnet().eval(), (torch.randn(1, 3, SIZE, SIZE),)
