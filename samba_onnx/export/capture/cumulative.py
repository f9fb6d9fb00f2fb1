"""Batch normalisation by cumulative averages, without the number that torch takes out of a buffer.

With ``momentum=None``, torch's module turns its count of batches into a number of Python, which would be
the same in every step of what is compiled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from samba_onnx.export.capture.replacing import replaced


@contextlib.contextmanager
def cumulative_averages() -> Iterator[None]:
    """Let modules of batch normalisation compute the share of each batch in tensors."""
    with contextlib.ExitStack() as stack:
        for kind in (_BatchNorm, nn.SyncBatchNorm):
            stack.enter_context(replaced(kind, "forward", _either(kind.forward)))
        yield


def _either(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def forward(module: _BatchNorm, input: Tensor) -> Tensor:
        count = module.num_batches_tracked
        averages = module.training and module.track_running_stats and module.momentum is None
        if not averages or count is None:
            return original(module, input)
        module._check_input_dim(input)  # type: ignore[no-untyped-call]
        return _normalised(module, input, count)

    return forward


def _normalised(module: _BatchNorm, value: Tensor, count: Tensor) -> Tensor:
    """Normalise a batch, and give it the same share in the running statistics as those before it."""
    assert module.running_mean is not None
    assert module.running_var is not None
    mean, variance = torch.zeros_like(module.running_mean), torch.zeros_like(module.running_var)
    # With a momentum of one, the statistics are those of the batch.
    result = functional.batch_norm(
        value, mean, variance, module.weight, module.bias, True, 1.0, module.eps
    )
    with torch.no_grad():
        count.add_(1)
        pairs = ((module.running_mean, mean), (module.running_var, variance))
        for statistic, batch in pairs:
            share = 1.0 / count.to(statistic.dtype)
            statistic.copy_(share * batch + (1.0 - share) * statistic)
    return result
