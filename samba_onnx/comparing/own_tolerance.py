"""What the outputs of a sample may be off, by what its model loses itself."""

from __future__ import annotations

import numpy as np

from samba_onnx.comparing.element_errors import distance
from samba_onnx.facts.tolerances import OUTPUT, TIMES_OWN_DISTANCE
from samba_onnx.safety.sampling import SampleRun

__all__ = ["own_tolerance"]


def own_tolerance(run: SampleRun) -> float:
    """Return what an element of float32 may be off as a part of the largest one, by the original's own error.

    Args:
        run: What the original answered, and what to inputs that nobody can tell from those.

    Returns:
        That of the type; more where the original is itself further off.
    """
    absolute = OUTPUT.absolute
    for other in run.others:
        for name, expected in run.outputs[0].items():
            if expected.dtype not in (np.float32, np.float64) or not expected.size:
                continue
            right = expected.astype(np.float64)
            errors, magnitude = distance(other[name].astype(np.float64), right, right)
            largest, known = float(magnitude.max()), np.isfinite(errors)
            if largest and known.any():
                beyond = TIMES_OWN_DISTANCE * errors[known] - OUTPUT.relative * magnitude[known]
                absolute = max(absolute, float(beyond.max()) / largest)
    return absolute
