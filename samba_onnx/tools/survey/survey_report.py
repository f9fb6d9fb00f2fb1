"""What ``samba-port survey`` says: many models on several targets, and what would help most of them."""

from __future__ import annotations

from samba_onnx.report.report_records import SCHEMA_VERSION, record


@record
class SurveyFigures:
    """What the report on one model and target comes to."""

    nodes: int
    """Nodes after conversion."""
    rdu_nodes: int
    """Nodes on the RDU."""
    cpu_nodes: int
    """Nodes on the CPU."""
    rdu_flops: int
    """Floating-point operations on the RDU."""
    cpu_flops: int
    """Floating-point operations on the CPU, as far as shapes are known."""
    fallbacks: int
    """Connected groups of CPU nodes in the schedule."""
    transfers: int
    """Transfers of a run."""
    bytes: int
    """Bytes that a run copies."""
    modelled_seconds: float
    """Modelled time of a run."""
    bound_seconds: float | None
    """Modelled time of a run with every node on the RDU; null where it is not known."""
    unmodelled_cpu_nodes: int
    """Nodes on the CPU whose time is not modelled and missing in ``modelled_seconds``."""


@record
class SurveyEntry:
    """One model on one target."""

    model: str
    """The model, as it was named or found in a folder."""
    target: str
    """As it was named."""
    state: str
    """``done`` or ``failed``."""
    error: str
    """Why it failed, in one line; empty where it did not."""
    file: str
    """The report in JSON, or the record of the failure."""
    figures: SurveyFigures | None
    """What the report comes to; null where it failed."""


@record
class SurveyTarget:
    """All models on one target, added up."""

    target: str
    """As it was named."""
    analyzed: int
    """Models with a report."""
    failed: int
    """Models without one."""
    whole: int
    """Models all of whose nodes run on the RDU."""
    nodes: int
    """Nodes of all models."""
    rdu_nodes: int
    """Nodes on the RDU."""
    rdu_flops: int
    """Floating-point operations on the RDU."""
    cpu_flops: int
    """Floating-point operations on the CPU, as far as shapes are known."""
    transfers: int
    """Transfers of a run of each."""
    bytes: int
    """Bytes that a run of each copies."""
    modelled_seconds: float
    """Modelled time of a run of each."""


@record
class SurveyFallback:
    """Nodes of one operator that run on the CPU of one target for one kind of reason."""

    target: str
    """As it was named."""
    operator: str
    """``Op``, or ``domain::Op`` outside the default domain."""
    code: str
    """Short name of the reason, as in reports."""
    reason: str
    """The sentence of the first such node."""
    models: tuple[str, ...]
    """Models that have such nodes."""
    nodes: int
    """Such nodes in all of them."""


@record
class SurveyChange:
    """What runs of all models would save if one target ran what it refuses for one reason.

    The sum of what each saves by itself, one run of each model.
    """

    target: str
    """As it was named."""
    operator: str
    """``Op``, or ``domain::Op`` outside the default domain."""
    code: str
    """Short name of the reason, as in reports."""
    models: tuple[str, ...]
    """Models that have such nodes, the one that saves most first."""
    nodes: int
    """Such nodes in all of them."""
    transfers_saved: int
    """Transfers that would not be made."""
    bytes_saved: int
    """Bytes that would not be copied."""
    seconds_saved: float
    """Modelled seconds by which the runs would be shorter."""
    advice: str
    """What to write instead; empty where nothing is known."""


@record
class SurveyReport:
    """What many models do on several targets."""

    headline: str
    """The answer in one line."""
    targets: tuple[SurveyTarget, ...]
    """In the order in which they were named."""
    entries: tuple[SurveyEntry, ...]
    """By model in the order in which they were named, and by target."""
    fallbacks: tuple[SurveyFallback, ...]
    """Why nodes run on the CPU: what most models share first."""
    changes: tuple[SurveyChange, ...]
    """What to change first: what saves most over all models first."""
    schema_version: int = SCHEMA_VERSION
    """Version of this document's form."""
