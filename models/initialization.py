"""Seeded random weights under which a network still computes something.

Freshly built networks hide errors: with the usual small weights the outputs of a deep network
hardly depend on its input, so that a wrong operator goes unnoticed. Here weights keep the scale of
what flows through them, no bias is zero, no norm is the identity, and batch norms hold the
statistics of real activations.
"""

import torch
from torch import Tensor, nn

__all__ = ["calibrate_batch_norms", "scale_output", "spread_weights"]

_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d)


def spread_weights(module: nn.Module, seed: int, *, gain: float = 1.0) -> None:
    """Replace every parameter by seeded random values of a sensible scale.

    Matrices and kernels have a standard deviation of ``gain / sqrt(fan_in)``, norms a weight
    between 0.5 and 1.5, embeddings a standard deviation of 0.5 and biases one of 0.1. A parameter
    that several modules share is drawn once.

    Args:
        module: Changed in place.
        seed: The same seed gives the same weights.
        gain: 1 keeps the variance through linear layers, sqrt(2) through layers with ReLU.
    """
    generator = torch.Generator().manual_seed(seed)
    seen: set[int] = set()
    with torch.no_grad():
        for owner in module.modules():
            for name, parameter in owner.named_parameters(recurse=False):
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    _fill(owner, name, parameter, gain, generator)


def _fill(
    owner: nn.Module, name: str, parameter: Tensor, gain: float, generator: torch.Generator
) -> None:
    if "Norm" in type(owner).__name__ and name == "weight":
        parameter.uniform_(0.5, 1.5, generator=generator)
    elif isinstance(owner, nn.Embedding):
        parameter.normal_(0.0, 0.5, generator=generator)
    elif "bias" in name:
        parameter.normal_(0.0, 0.1, generator=generator)
    elif "weight" in name and parameter.ndim > 1:
        parameter.normal_(0.0, gain / _fan_in(owner, parameter) ** 0.5, generator=generator)
    else:  # class tokens and learned positions
        parameter.normal_(0.0, 0.5, generator=generator)


def _fan_in(owner: nn.Module, weight: Tensor) -> float:
    """The number of products that are summed into one output value."""
    if isinstance(owner, _TRANSPOSED):
        strides = torch.Size(owner.stride).numel()
        return weight.shape[0] * weight.shape[2:].numel() / strides
    if type(owner).__name__ == "Conv1D":  # GPT-2's linear layer holds its matrix as (in, out)
        return weight.shape[0]
    return weight.shape[1:].numel()


def calibrate_batch_norms(module: nn.Module, shape: tuple[int, ...], seed: int) -> None:
    """Set the running statistics of every batch norm to those of random activations.

    Args:
        module: Changed in place; left in evaluation mode.
        shape: The shape of the batch that is drawn; the batch should be larger than 1.
        seed: The same seed gives the same statistics.
    """
    norms = [one for one in module.modules() if isinstance(one, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain average over the batches seen
    module.train()
    batch = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        module(batch)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        # A channel that a ReLU has silenced would be blown up by its tiny variance.
        norm.running_var.clamp_(min=0.1 * float(norm.running_var.mean()))
    module.eval()


def scale_output(module: nn.Module, inputs: dict[str, Tensor], last: nn.Module) -> None:
    """Scale the last layer so that the first output has a standard deviation of 1.

    Args:
        module: The whole model.
        inputs: What it is run on.
        last: The layer whose weight and bias are divided; the output must be linear in them.
    """
    with torch.no_grad():
        output = module(**inputs)
        first = output if isinstance(output, Tensor) else output[0]
        for parameter in last.parameters(recurse=False):
            parameter.div_(first.std())
