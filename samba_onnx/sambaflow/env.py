"""``sambaflow.samba.env``: switches of the process.

The device rounds to nearest unless it is asked to round at random: by these functions for the PEF that is
compiled next, by settings, or by ``samba.session.compile``.
"""

from samba_onnx.facts.roundings import Rounding
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
    """Round at random where gradients of the weights of convolutions are summed up in bfloat16."""
    SESSION.switch_rounding(Rounding.CONVOLUTIONS, True)


def enable_addbias_grad_accum_stoc() -> None:
    """Round at random where gradients of biases are summed up in bfloat16."""
    SESSION.switch_rounding(Rounding.BIASES, True)


def disable_sgd_stoc() -> None:
    """Round to nearest what optimizers store, whatever settings say."""
    SESSION.switch_rounding(Rounding.STEPS, False)
