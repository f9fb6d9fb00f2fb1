"""Whether a conversion keeps to the limits that its user stated, as the JSON document says it."""

from __future__ import annotations

from samba_onnx.report.report_records import record


@record
class LimitReport:
    """One limit, and what became of it."""

    option: str
    """Option that stated it, as ``--max-fallbacks``."""
    figure: str
    """What is limited, as ``fallbacks``; of ``--baseline`` a figure that the two reports have."""
    unit: str
    """Unit of both numbers: ``places``, ``bytes``, ``percent``, ``s``, or what is counted."""
    allowed: float
    """The most that is allowed, or the least of what should be large; of ``--baseline`` what it has."""
    value: float
    """What the conversion came to."""
    passed: bool
    """Whether the conversion keeps to it."""
    sentence: str
    """What is wrong; empty where nothing is."""
