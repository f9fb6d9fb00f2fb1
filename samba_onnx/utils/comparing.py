"""Comparing what the device and the host computed."""

from __future__ import annotations

import torch

from samba_onnx.tensor import to_torch

THRESHOLD = 3e-3
"""Largest absolute difference that passes unless another is given."""


def assert_close(
    a: torch.Tensor,
    b: torch.Tensor,
    name: str = "",
    threshold: float = THRESHOLD,
    rtol: float = 0.0,
    visualize: bool = False,
) -> None:
    """Compare two tensors.

    Args:
        a: What was expected, of any shape and dtype; a torch tensor or a SambaTensor.
        b: What was computed, of the same shape.
        name: What messages call it.
        threshold: Largest absolute difference that passes.
        rtol: Largest difference per unit of the expected value that passes besides.
        visualize: Accepted, without effect.

    Raises:
        AssertionError: A difference is larger or not a number, or shapes differ.
    """
    del visualize
    one, other = (to_torch(tensor).detach() for tensor in (a, b))
    torch.testing.assert_close(
        other.double(),
        one.double(),
        rtol=rtol,
        atol=threshold,
        msg=lambda text: f"{name or 'tensor'} differs from what was expected. {text}",
    )
