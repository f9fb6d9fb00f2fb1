"""What ``samba-port compare`` says: every value of the original beside the same value of the PEF."""

from __future__ import annotations

from samba_onnx.report.report_records import SCHEMA_VERSION, record


@record
class ValueErrorReport:
    """The comparison of one value."""

    name: str
    """Its name, which original and PEF share; of a layer of a PyTorch module that of the value that the
    layer returns."""
    operator: str
    """What computes it in the original: ``Op``, ``domain::Op``, or an ATen operator."""
    node: str
    """Name of the node that computes it in the original; of a PyTorch module the path of the layer."""
    location: str
    """``file.py:line`` of the user's own model; empty when the model does not carry it."""
    stage: int
    """Id of the section or fallback that computes it in the PEF."""
    dtype: str
    """Its numpy dtype in the original, as ``float32``."""
    pef_dtype: str
    """Its numpy dtype in the PEF, which computes float16 and quantised integers in floats that the target
    has; compared are the numbers."""
    shape: tuple[int, ...]
    """Its shape."""
    identical: bool
    """Whether all bits are equal."""
    max_absolute_error: float | None
    """Largest error; null where types or shapes differ, so that there is none."""
    max_relative_error: float | None
    """Largest error divided by the largest expected magnitude; null as above."""
    mean_absolute_error: float | None
    """Mean of the errors; null as above, and for what is no array of numbers."""
    cosine: float | None
    """Cosine of the angle between the two as vectors; null as above, and for a value of zeros."""
    tolerance: str
    """The tolerance that was used, in words; ``equal`` for integers."""
    of_allowed: float | None
    """Largest error of an element as a fraction of what is allowed there: 1 just passes; null where
    nothing is allowed and there is an error."""
    mismatched: int
    """Elements beyond the tolerance."""
    elements: int
    """All elements."""
    passed: bool
    """Whether every element is within the tolerance."""
    operands_agree: bool
    """Whether what its node reads is within the tolerance, as far as it was compared: if so, an error
    begins here."""


@record
class ValueComparisonReport:
    """Which values of a PEF are those of the original, and the first that is not."""

    headline: str
    """The answer in one line."""
    passed: bool
    """Whether every value that was compared is within the tolerance."""
    graph: str
    """Name of the graph of the PEF."""
    inputs: str
    """What both sides were run on."""
    total: int
    """Values that the original computes and reads or returns; those inside subgraphs and functions not
    counted."""
    compared: int
    """How many of them the PEF has, too."""
    gone: dict[str, int]
    """How many of the others there are by the operator that computes them in the original: folded, fused or removed."""
    own: int
    """Values that only the PEF has."""
    first: ValueErrorReport | None
    """The first value beyond the tolerance, in the order of the original; null if all are within."""
    advice: str
    """What to do next; empty when all values are within the tolerance."""
    values: tuple[ValueErrorReport, ...]
    """All that were compared, in the order of the original."""
    schema_version: int = SCHEMA_VERSION
    """Version of this document's form."""
