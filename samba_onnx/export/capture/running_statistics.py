"""Normalisations whose running statistics torch's exporter does not follow, in operators that it does.

With ``momentum=None``, torch's module of batch normalisation turns its count of batches into a number
of Python, which would be the same in every step of what is compiled. Instance normalisation writes its
statistics without saying so in its schema.
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
def followed_statistics() -> Iterator[None]:
    """Let normalisations keep their running statistics in tensors and by operators that say so."""
    with contextlib.ExitStack() as stack:
        # SyncBatchNorm has a forward of its own.
        for kind in (_BatchNorm, nn.SyncBatchNorm):
            stack.enter_context(replaced(kind, "forward", _either(kind.forward)))
        stack.enter_context(replaced(torch, "instance_norm", _instance_norm(torch.instance_norm)))
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
    # With a momentum of one, these become the statistics of the batch.
    mean, variance = module.running_mean.clone(), module.running_var.clone()
    result = functional.batch_norm(
        value, mean, variance, module.weight, module.bias, True, 1.0, module.eps
    )
    # As in torch, statistics are not differentiated.
    with torch.no_grad():
        count.add_(1)
        pairs = ((module.running_mean, mean), (module.running_var, variance))
        for statistic, batch in pairs:
            # In the statistic's type: a count is an integer.
            share = 1.0 / count.to(statistic.dtype)
            statistic.copy_(share * batch + (1.0 - share) * statistic)
    return result


def _instance_norm(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def instance_norm(
        input: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        use_input_stats: bool,
        momentum: float,
        eps: float,
        cudnn_enabled: bool,
    ) -> Tensor:
        """Compute ``torch.instance_norm`` as torch does: by batch normalisation of all instances."""
        options = (use_input_stats, momentum, eps, cudnn_enabled)
        # Without statistics to write, torch's own operator says all that it does.
        if running_mean is None or running_var is None or not use_input_stats:
            return original(input, weight, bias, running_mean, running_var, *options)
        instances, channels, *places = input.shape
        # Every instance has statistics of its own to begin with, and their means are kept in the
        # end.
        mean, variance = running_mean.repeat(instances), running_var.repeat(instances)
        scale = None if weight is None else weight.repeat(instances)
        shift = None if bias is None else bias.repeat(instances)
        # Instances as channels: one batch of them all is normalised per instance and channel.
        rows = input.reshape(1, instances * channels, *places)
        result = torch.batch_norm(rows, scale, shift, mean, variance, *options)
        with torch.no_grad():
            running_mean.copy_(mean.reshape(instances, channels).mean(0))
            running_var.copy_(variance.reshape(instances, channels).mean(0))
        return result.reshape(input.shape)

    return instance_norm
