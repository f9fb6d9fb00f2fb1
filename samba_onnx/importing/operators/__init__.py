"""Importing this package fills the table of operators."""

from samba_onnx.importing.operators import (  # noqa: F401
    activations,
    attention,
    axis_reductions,
    convolutions,
    elementwise,
    indexing,
    losses,
    matrix,
    normalisation,
    pooling,
    quantisation,
    randomness,
    recurrent,
    resizing,
    sampling,
    sequences,
    shapes,
    signals,
)
