"""Operators that the known networks do not have, by kind; each module is trained as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F  # noqa: N812  # what torch's users call it
from torch import Tensor, nn

from tests.training.trajectory import Case, sgd


class Branches(nn.Module):
    """Sends what it is given through every branch, and adds up the squares of what they make."""

    def __init__(self, **branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleDict(branches)

    def total(self, given: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        made = tuple(branch(given[name.split("_")[0]]) for name, branch in self.branches.items())
        # A cosine keeps signs and positions apart, which a mere sum of squares would not.
        losses = [(value * torch.cos(value + 1.0)).mean() + value.square().mean() for value in made]
        target = torch.zeros(())
        return F.l1_loss(torch.stack(losses).sum(), target.to(losses[0].dtype)), *made


class Maps(Branches):
    """Branches over vectors, images and volumes."""

    def forward(self, line: Tensor, plane: Tensor, space: Tensor) -> tuple[Tensor, ...]:
        line, plane, space = self.before(line, plane, space)
        return self.total({"line": line, "plane": plane, "space": space})

    def before(self, *given: Tensor) -> tuple[Tensor, ...]:
        return given


class LearnedMaps(Maps):
    """The same behind parameters, for branches that have none."""

    def __init__(self, **branches: nn.Module) -> None:
        super().__init__(**branches)
        self.line = nn.Parameter(torch.randn(2, 4, 12) * 0.1)
        self.plane = nn.Parameter(torch.randn(2, 4, 8, 10) * 0.1)
        self.space = nn.Parameter(torch.randn(2, 4, 4, 6, 8) * 0.1)

    def before(self, *given: Tensor) -> tuple[Tensor, ...]:
        learned = (self.line, self.plane, self.space)
        return tuple(one + other for one, other in zip(given, learned, strict=True))


def maps() -> dict[str, Tensor]:
    return {
        "line": torch.randn(2, 4, 12),
        "plane": torch.randn(2, 4, 8, 10),
        "space": torch.randn(2, 4, 4, 6, 8),
    }


def convolutions() -> nn.Module:
    return Maps(
        line_plain=nn.Conv1d(4, 6, 3),
        line_grouped=nn.Conv1d(4, 8, 3, stride=2, padding=2, dilation=2, groups=2),
        line_transposed=nn.ConvTranspose1d(4, 3, 4, stride=3, padding=1, output_padding=1),
        plane_depthwise=nn.Conv2d(4, 8, 3, padding=1, groups=4),
        plane_dilated=nn.Conv2d(4, 5, (3, 2), dilation=(2, 3), padding=(1, 2), bias=False),
        plane_same=nn.Conv2d(4, 4, 3, padding="same", padding_mode="reflect"),
        plane_circular=nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"),
        plane_transposed=nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, groups=2, dilation=2),
        space_plain=nn.Conv3d(4, 5, 3, padding=1),
        space_grouped=nn.Conv3d(4, 4, (1, 3, 3), stride=(1, 2, 2), groups=4),
        space_transposed=nn.ConvTranspose3d(4, 2, 2, stride=2),
    )


def poolings() -> nn.Module:
    return LearnedMaps(
        line_max=nn.MaxPool1d(3, 2, 1),
        line_average=nn.AvgPool1d(4, 2, 1),
        line_adaptive=nn.AdaptiveAvgPool1d(5),
        line_largest=nn.AdaptiveMaxPool1d(3),
        line_power=nn.LPPool1d(2, 3),
        plane_max=nn.MaxPool2d(3, 2, 1, dilation=2),
        plane_ceiling=nn.MaxPool2d(3, 2, ceil_mode=True),
        plane_average=nn.AvgPool2d(3, 2, 1, count_include_pad=False),
        plane_divisor=nn.AvgPool2d(2, divisor_override=3),
        plane_adaptive=nn.AdaptiveAvgPool2d((3, 4)),
        plane_largest=nn.AdaptiveMaxPool2d((3, 4)),
        plane_power=nn.LPPool2d(2, 2),
        space_max=nn.MaxPool3d(2),
        space_average=nn.AvgPool3d(2, ceil_mode=True),
        space_adaptive=nn.AdaptiveAvgPool3d((2, 3, 4)),
        space_largest=nn.AdaptiveMaxPool3d((2, 3, 4)),
    )


def normalisations() -> nn.Module:
    return LearnedMaps(
        line_batch=nn.BatchNorm1d(4),
        plane_batch=nn.BatchNorm2d(4, momentum=0.3),
        plane_plain=nn.BatchNorm2d(4, affine=False),
        plane_batch_only=nn.BatchNorm2d(4, track_running_stats=False),
        space_batch=nn.BatchNorm3d(4),
        line_instance=nn.InstanceNorm1d(4, affine=True),
        plane_instance=nn.InstanceNorm2d(4, track_running_stats=True),
        space_instance=nn.InstanceNorm3d(4),
        line_layer=nn.LayerNorm(12),
        plane_layer=nn.LayerNorm((8, 10), elementwise_affine=False),
        plane_group=nn.GroupNorm(2, 4),
        line_root=nn.RMSNorm(12),
        plane_local=nn.LocalResponseNorm(3),
    )


class Resized(nn.Module):
    """``interpolate`` with fixed arguments."""

    def __init__(self, **arguments: object) -> None:
        super().__init__()
        self.arguments = arguments

    def forward(self, maps: Tensor) -> Tensor:
        resized: Tensor = F.interpolate(maps, **self.arguments)  # type: ignore[arg-type]
        return resized


def interpolations() -> nn.Module:
    return LearnedMaps(
        line_nearest=Resized(scale_factor=2),
        line_linear=Resized(size=7, mode="linear"),
        plane_nearest=Resized(size=(5, 13)),
        plane_exact=Resized(scale_factor=2, mode="nearest-exact"),
        plane_bilinear=Resized(scale_factor=1.5, mode="bilinear"),
        plane_aligned=Resized(size=(11, 7), mode="bilinear", align_corners=True),
        plane_bicubic=Resized(scale_factor=2, mode="bicubic"),
        plane_area=Resized(size=(4, 5), mode="area"),
        space_trilinear=Resized(scale_factor=2, mode="trilinear"),
        plane_shuffled=nn.PixelShuffle(2),
        plane_padded=nn.ReflectionPad2d(2),
        plane_replicated=nn.ReplicationPad2d((1, 2, 0, 1)),
    )


class Positions(nn.Module):
    """Embeddings, bags of them, and operators that take values by position or put them there."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 6, padding_idx=0)
        self.summed = nn.EmbeddingBag(20, 6, mode="sum")
        self.averaged = nn.EmbeddingBag(20, 6, mode="mean")
        self.largest = nn.EmbeddingBag(20, 6, mode="max")
        self.table = nn.Parameter(torch.randn(9, 6))

    def forward(self, tokens: Tensor, rows: Tensor, weights: Tensor) -> tuple[Tensor, ...]:
        words = self.words(tokens)
        bags = self.summed(tokens, per_sample_weights=weights), self.averaged(tokens)
        picked = self.table[rows], self.table.index_select(0, rows), self.table[rows, 2:5]
        wide = rows.unsqueeze(1).expand(-1, 6)
        put = (
            torch.zeros_like(self.table).scatter(0, wide, self.table[: len(rows)]),
            self.table.scatter_add(0, wide, self.table[2 : 2 + len(rows)]),
            self.table.scatter_reduce(0, wide, self.table[: len(rows)], "amax"),
            self.table.index_add(0, rows, self.table[: len(rows)], alpha=0.5),
            self.table.index_copy(0, torch.arange(3), self.table[4:7]),
            torch.index_put(self.table, (rows,), self.table[: len(rows)], accumulate=True),
            self.table.masked_fill(self.table > 0.5, 0.25),
            torch.gather(self.table, 0, wide),
            torch.take_along_dim(self.table, rows.unsqueeze(1), dim=0),
            self.table.roll(2, 0).flip(1),
            self.table.select_scatter(self.table[0] * 2, 0, 3),
            self.table.slice_scatter(self.table[:2] * 3, 0, 1, 3),
        )
        made = (words.mean(1), *bags, self.largest(tokens), *picked, *put)
        losses = torch.stack([(value * torch.cos(value)).mean() for value in made])
        return F.mse_loss(losses, torch.ones_like(losses)), *made


def positions() -> dict[str, Tensor]:
    return {
        "tokens": torch.randint(0, 20, (3, 5)),
        "rows": torch.randperm(9)[:4],
        "weights": torch.rand(3, 5),
    }


class Sequences(nn.Module):
    """Attention with masks, scans, sorted values, and products by their letters."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, norm_first=True)
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))
        self.table = nn.Parameter(torch.randn(4, 5, 6))

    def forward(self, states: Tensor, mask: Tensor, padding: Tensor) -> tuple[Tensor, ...]:
        attended, _ = self.attention(
            states, states, states, key_padding_mask=padding, need_weights=False
        )
        layered = self.layer(states, src_key_padding_mask=padding)
        heads = [
            layer(states).unflatten(-1, (2, 4)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        ]
        plain = F.scaled_dot_product_attention(*heads, attn_mask=mask)
        causal = F.scaled_dot_product_attention(*heads, is_causal=True)
        table = self.table
        ordered, _ = table.sort(dim=1, descending=True)
        best, _ = table.topk(3, dim=2)
        made = (
            attended,
            layered,
            plain,
            causal,
            table.cumsum(1),
            torch.cumprod(table, 2),
            torch.logcumsumexp(table, 0),
            table.cummax(1).values,
            ordered,
            best,
            table.max(1).values,
            table.min(2).values,
            table.amax((0, 2)),
            torch.einsum("abc,dbc->adb", table, table.cos()),
            torch.einsum("abc,abd->cd", table, table[..., :4]),
            torch.baddbmm(table[:, :, :5], table, table.transpose(1, 2)),
            torch.logsumexp(table, 1),
            table.var((1, 2)),
            table.std(0),
            table.norm(dim=2),
            torch.linalg.vector_norm(table, 3, dim=1),
            table.prod(1),
            table.softmax(1),
            torch.outer(table[0, 0], table[1, 1]),
            torch.triu(table) + torch.tril(table, -1) * 2,
            table.unfold(1, 2, 1).mean(-1),
            torch.diagonal(table, dim1=1, dim2=2),
            table.repeat(1, 2, 1).chunk(2, 2)[1],
            table.repeat_interleave(2, 0),
        )
        losses = torch.stack([(value * torch.cos(value)).mean() for value in made])
        return F.smooth_l1_loss(losses, torch.zeros_like(losses), beta=0.5), *made


def sequences() -> dict[str, Tensor]:
    return {
        "states": torch.randn(2, 5, 8),
        "mask": torch.rand(5, 5) + torch.eye(5) > 0.4,
        "padding": torch.tensor([[False] * 5, [False] * 3 + [True] * 2]),
    }


_LOSSES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "smooth": F.smooth_l1_loss,
    "huber": lambda made, wanted: F.huber_loss(made, wanted, delta=0.3),
    "binary": lambda made, wanted: F.binary_cross_entropy(made.sigmoid(), wanted),
    "logits": lambda made, wanted: F.binary_cross_entropy_with_logits(
        made, wanted, pos_weight=torch.full((6,), 2.0, dtype=made.dtype)
    ),
    "divergence": lambda made, wanted: F.kl_div(
        made.log_softmax(-1), wanted.softmax(-1), reduction="batchmean"
    ),
    "poisson": F.poisson_nll_loss,
    "margin": lambda made, wanted: F.soft_margin_loss(made, wanted.sign()),
    "cosine": lambda made, wanted: F.cosine_embedding_loss(
        made, wanted, torch.ones(len(made), dtype=made.dtype)
    ),
    "triplet": lambda made, wanted: F.triplet_margin_loss(made, wanted, wanted.flip(0)),
    "classes": lambda made, wanted: F.cross_entropy(
        made, wanted.argmax(-1), label_smoothing=0.1, ignore_index=3
    ),
    "probabilities": lambda made, wanted: F.cross_entropy(made, wanted.softmax(-1)),
    "nll": lambda made, wanted: F.nll_loss(
        made.log_softmax(-1),
        wanted.argmax(-1),
        weight=torch.arange(1, 7, dtype=made.dtype) / 6,
        reduction="sum",
    ),
    "margins": lambda made, wanted: F.multi_margin_loss(made, wanted.argmax(-1)),
}


class Losses(nn.Module):
    """One loss of every kind, all outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 6)

    def forward(self, x: Tensor, wanted: Tensor) -> tuple[Tensor, ...]:
        made = self.linear(x)
        return tuple(loss(made, wanted) for loss in _LOSSES.values())


class Activations(nn.Module):
    """Every activation behind a linear layer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds = nn.ModuleList(
            [
                *(nn.ReLU(), nn.ReLU6(), nn.LeakyReLU(0.1), nn.PReLU(6), nn.ELU(0.7), nn.SELU()),
                *(nn.CELU(0.6), nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.Mish(), nn.Softplus(2)),
                *(nn.Sigmoid(), nn.LogSigmoid(), nn.Tanh(), nn.Hardtanh(), nn.Hardsigmoid()),
                *(nn.Hardswish(), nn.Softsign(), nn.Tanhshrink(), nn.Hardshrink(0.2)),
                *(nn.Softshrink(0.2), nn.Threshold(0.1, 0.3), nn.GLU(), nn.LogSoftmax(-1)),
            ]
        )
        self.linears = nn.ModuleList(nn.Linear(5, 6) for _ in self.kinds)

    def forward(self, x: Tensor, wanted: Tensor) -> tuple[Tensor, ...]:
        made = [kind(linear(x)) for kind, linear in zip(self.kinds, self.linears, strict=True)]
        total = torch.stack([(one * torch.cos(one)).mean() for one in made])
        return F.mse_loss(total, wanted.flatten()[: len(made)]), *made


def pairs() -> dict[str, Tensor]:
    return {"x": torch.randn(5, 5), "wanted": torch.rand(5, 6)}


CASES = (
    Case("convolutions", convolutions, maps, sgd),
    Case("poolings", poolings, maps, sgd),
    Case("normalisations", normalisations, maps, sgd),
    Case("interpolations", interpolations, maps, sgd),
    Case("positions", Positions, positions, sgd),
    Case("sequences", Sequences, sequences, sgd),
    Case("losses", Losses, pairs, sgd, losses=len(_LOSSES)),
    Case("activations", Activations, pairs, sgd),
)
