"""Comparing the tensors of the device with those of the host."""

from __future__ import annotations

import torch

from samba_onnx.sessions.arguments import tell_idle
from samba_onnx.tensor import to_torch

THRESHOLD = 3e-3
"""Largest absolute difference that passes by default."""


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
        a: The expected tensor, of any shape and dtype; a torch tensor or a SambaTensor.
        b: The computed tensor, of the same shape and of any dtype.
        name: What messages call the computed tensor.
        threshold: Largest absolute difference of an element that passes.
        rtol: Difference that passes in addition, per unit of the expected element.
        visualize: Without effect, which is said once.

    Raises:
        AssertionError: A difference is larger or not a number, or shapes differ.
    """
    if visualize:
        tell_idle("visualize")
    # In double precision: tensors of bfloat16 and float32 are to be compared with each other.
    expected, computed = (to_torch(tensor).detach().double() for tensor in (a, b))
    torch.testing.assert_close(
        computed,
        expected,
        rtol=rtol,
        atol=threshold,
        msg=lambda text: f"{name or 'tensor'} differs from what was expected. {text}",
    )
