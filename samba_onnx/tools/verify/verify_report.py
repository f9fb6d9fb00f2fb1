"""What ``samba-port verify`` says: how far the emulator's numbers are from the expected ones."""

from __future__ import annotations

from samba_onnx.facts.defaults import DEFAULT_ENGINE
from samba_onnx.report.report_records import SCHEMA_VERSION, record


@record
class OutputErrorReport:
    """The comparison of one output."""

    name: str
    """Its name; of an element of a sequence ``name[0]``, ``name[1]``, ..."""
    dtype: str
    """Its numpy dtype, as ``float32``."""
    shape: tuple[int, ...]
    """Its shape."""
    max_absolute_error: float | None
    """Largest error; null where types or shapes differ, so that there is none."""
    max_relative_error: float | None
    """Largest error divided by the largest expected magnitude; null as above."""
    tolerance: str
    """The tolerance that was used, in words: ``equal``, or what an element may be off."""
    of_allowed: float | None
    """Largest error of an element as a fraction of what is allowed there: 1 just passes; null where
    nothing is allowed and there is an error."""
    run: str
    """The run that these figures are from, that in which the output is worst."""
    mismatched: int
    """Elements beyond the tolerance."""
    elements: int
    """All elements."""
    passed: bool
    """Whether every element is within the tolerance, in all runs."""
    steps: float | None = None
    """How many steps of quantisation an element is at most from that of the original, in all runs that round;
    null for outputs that are no quantised numbers, of which the original is not known, or that are not finite."""


@record
class VerificationReport:
    """Whether a PEF computes what it should."""

    headline: str
    """The answer in one line."""
    passed: bool
    """Whether every output is within the tolerance."""
    against: str
    """``original`` (the model itself), ``torch`` (the module itself, run by eager torch) or ``sample`` (the
    reference inside the PEF)."""
    rtol: float
    """Relative tolerance of outputs in float32, float64 and complex numbers."""
    atol: float
    """Absolute tolerance of the same, per unit of the largest expected magnitude."""
    runs: tuple[str, ...]
    """All runs that were compared: the seed of their inputs, and how the device kept weights."""
    outputs: tuple[OutputErrorReport, ...]
    """One per output."""
    engine: str = DEFAULT_ENGINE
    """What executed the PEF and the original: ``onnxruntime`` or ``reference``."""
    advice: str = ""
    """How to find out whose fault it is; empty when all outputs are within the tolerance."""
    other_version: str = ""
    """Says that the model is another version of the one that the PEF was converted from, with the first digits
    of both SHA-256; empty where it is the same, and where the PEF does not know."""
    departure: str = ""
    """Says which kernels of the engine were not used for the original, as they are wrong on this machine, and for
    how many operators; empty where all were."""
    schema_version: int = SCHEMA_VERSION
    """Version of this document's form."""
