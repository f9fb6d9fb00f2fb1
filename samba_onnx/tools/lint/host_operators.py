"""The functions of torch behind ONNX operators that targets do not run.

Why one does not run is a row of the target, which is where it is decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from samba_onnx.tools.lint.names import words

FUNCTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "acos": "Acos",
        "affine_grid": "AffineGrid",
        "arccos": "Acos",
        "arcsin": "Asin",
        "arctan": "Atan",
        "asin": "Asin",
        "atan": "Atan",
        "bitwise_left_shift": "BitShift",
        "bitwise_right_shift": "BitShift",
        "bitwise_xor": "BitwiseXor",
        "cumprod": "CumProd",
        "det": "Det",
        "fmod": "Mod",
        "fold": "Col2Im",
        "grid_sample": "GridSample",
        "interpolate": "Resize",
        "local_response_norm": "LRN",
        "max_unpool2d": "MaxUnpool",
        "remainder": "Mod",
        "stft": "STFT",
        "upsample": "Upsample",
    }
)
"""ONNX operators by the functions and methods of torch that are written as them."""

LAYERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Fold": "Col2Im",
        "GRU": "GRU",
        "LPPool1d": "LpPool",
        "LPPool2d": "LpPool",
        "LSTM": "LSTM",
        "LocalResponseNorm": "LRN",
        "MaxUnpool1d": "MaxUnpool",
        "MaxUnpool2d": "MaxUnpool",
        "MaxUnpool3d": "MaxUnpool",
        "RNN": "RNN",
        "Upsample": "Resize",
        "UpsamplingBilinear2d": "Resize",
        "UpsamplingNearest2d": "Resize",
    }
)
"""ONNX operators by the layers of ``torch.nn`` that are written as them."""

FOURIER: Final = "DFT"
"""The ONNX operator of all that is in ``torch.fft``."""

RANDOM: Final = words(
    "bernoulli multinomial normal poisson rand rand_like randint randint_like randn randn_like "
    "randperm"
)
"""Functions of torch that draw random numbers."""

RANDOM_METHODS: Final = words(
    "bernoulli bernoulli_ exponential_ multinomial normal_ random_ uniform_"
)
"""Methods of tensors that draw random numbers."""

DATA_SIZED: Final = words("argwhere masked_select nonzero unique unique_consecutive")
"""Functions and methods whose results are as large as the values say."""

READS: Final = words("item numpy tolist")
"""Methods that take values of a tensor to Python."""

DEVICES: Final = frozenset({"cuda", "mps", "xpu"})
"""Names of devices that a program for the RDU does not move anything to."""
