"""``sambaflow.samba.env``: switches of the process.

The device computes every sum in the model's own types, without stochastic rounding; to ask for that
is a hint, which the PEF that is compiled next lists.
"""

from samba_onnx.sessions import SESSION

__all__ = [
    "disable_sgd_stoc",
    "enable_addbias_grad_accum_stoc",
    "enable_conv_grad_accum_stoc",
    "use_mock_samba_runtime",
]


def use_mock_samba_runtime() -> bool:
    """Return whether runs return made-up numbers. They never do: the emulator computes them."""
    return False


def enable_conv_grad_accum_stoc() -> None:
    """Ask for stochastic rounding where gradients of convolutions are summed up; a hint."""
    SESSION.record_hint("enable_conv_grad_accum_stoc", True)


def enable_addbias_grad_accum_stoc() -> None:
    """Ask for stochastic rounding where gradients of biases are summed up; a hint."""
    SESSION.record_hint("enable_addbias_grad_accum_stoc", True)


def disable_sgd_stoc() -> None:
    """Ask for steps of SGD without stochastic rounding, which is how they always are."""
    SESSION.record_hint("disable_sgd_stoc", True)
