"""Seeded random weights under which a network still computes something.

Freshly built networks hide errors: with the usual small weights the outputs of a deep network
hardly depend on its input, so that a wrong operator goes unnoticed. Here weights keep the scale of
what flows through them, no bias is zero, no norm is the identity, and batch norms hold the
statistics of real activations.
"""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

__all__ = ["calibrate_batch_norms", "scale_output", "spread_weights"]

_CENTRED = 16
"""From this fan-in on, the weights of one output sum to zero.

Activations behind ReLU or GELU have a positive mean; without this it adds up over the layers to a
constant that drowns whatever depends on the input.
"""

# Distances between seeds: with one seed for all, the first layer's weights would equal the inputs.
_WEIGHTS = 1_000_003
_BATCHES = 2_000_003

_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d)


def spread_weights(module: nn.Module, seed: int, *, gain: float = 1.0) -> None:
    """Replace every parameter by seeded random values of a sensible scale.

    Matrices and kernels have a standard deviation of ``gain / sqrt(fan_in)``, norms a weight
    between 0.5 and 1.5, embeddings a standard deviation of 0.5 and biases one of 0.1; those of batch
    norms lie around 0.5. A parameter that several modules share is drawn once.

    Args:
        module: Changed in place.
        seed: The same seed gives the same weights.
        gain: 1 keeps the variance through linear layers, sqrt(2) through layers with ReLU.
    """
    generator = torch.Generator().manual_seed(seed + _WEIGHTS)
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
    elif isinstance(owner, _BatchNorm):
        # With biases around zero, fifty layers of ReLU amplify a rounding error tenfold more.
        parameter.normal_(0.5, 0.2, generator=generator)
    elif isinstance(owner, nn.Embedding):
        parameter.normal_(0.0, 0.5, generator=generator)
    elif "bias" in name:
        parameter.normal_(0.0, 0.1, generator=generator)
    elif "weight" in name and parameter.ndim > 1:
        fan_in = _fan_in(owner, parameter)
        parameter.normal_(0.0, gain / fan_in**0.5, generator=generator)
        if fan_in >= _CENTRED:
            dimensions = 0 if _is_transposed(owner) else tuple(range(1, parameter.ndim))
            parameter.sub_(parameter.mean(dimensions, keepdim=True))
    else:  # class tokens and learned positions
        parameter.normal_(0.0, 0.5, generator=generator)


def _is_transposed(owner: nn.Module) -> bool:
    """Whether the first dimension of a weight is its input; so it is in GPT-2's linear layer."""
    return isinstance(owner, _TRANSPOSED) or type(owner).__name__ == "Conv1D"


def _fan_in(owner: nn.Module, weight: Tensor) -> int:
    """The number of products that are summed into one output value."""
    if isinstance(owner, _TRANSPOSED):
        return weight.shape[0] * weight.shape[2:].numel() // torch.Size(owner.stride).numel()
    return weight.shape[0] if _is_transposed(owner) else weight.shape[1:].numel()


def calibrate_batch_norms(module: nn.Module, shape: tuple[int, ...], seed: int) -> None:
    """Set the running statistics of every batch norm to those of random activations.

    Args:
        module: Changed in place; left in evaluation mode.
        shape: The shape of the batch that is drawn; the batch should be larger than 1.
        seed: The same seed gives the same statistics.
    """
    norms = [one for one in module.modules() if isinstance(one, _BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain average over the batches seen
    module.train()
    batch = torch.randn(shape, generator=torch.Generator().manual_seed(seed + _BATCHES))
    with torch.no_grad():
        module(batch)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        if norm.running_var is not None:
            # A channel that a ReLU has silenced would be blown up by its tiny variance.
            norm.running_var.clamp_(min=0.1 * norm.running_var.mean())
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
