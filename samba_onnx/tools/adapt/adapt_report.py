"""What ``samba-port adapt`` says."""

from __future__ import annotations

from samba_onnx.report.report_records import SCHEMA_VERSION, record
from samba_onnx.tools.adapt.edits import ProgramChange
from samba_onnx.tools.adapt.open_points import OpenPoint


@record
class CheckTolerance:
    """By how much two numbers may differ, and why."""

    losses: float
    """What the loss of a step may be off by, as a share of it, or of 1 if it is smaller."""
    weights: float
    """What a number of a weight or buffer may be off by, as a share of its tensor's largest."""
    why: str
    """Why this much."""


@record
class CheckedTensor:
    """A weight or buffer after the last step."""

    name: str
    """Its name in the program."""
    error: float
    """The largest difference, as a share of the tensor's largest number."""
    ignored: int
    """Numbers that say nothing, because their gradients were nothing but rounding."""


@record
class Check:
    """Original and adapted program, side by side."""

    agrees: bool
    """Whether all losses and tensors are within the tolerance."""
    steps: int
    """Steps of the optimizer that both made."""
    losses: tuple[float, ...]
    """The loss of each backward pass of the original."""
    adapted_losses: tuple[float, ...]
    """The same of the adapted program."""
    loss_error: float
    """The largest difference of losses, as a share."""
    tensors: tuple[CheckedTensor, ...]
    """Weights and buffers after the last step, the worst first."""
    first_difference: str
    """The first step or tensor that differs; empty if none does."""
    dropouts: int
    """Dropouts that were switched off in both programs, whose masks are others by design."""
    without_last_batches: bool
    """Whether the original left out smaller last batches for this comparison, as the adapted program does."""
    printed_lines: int
    """Lines that the original printed up to the last step."""
    printed_differences: tuple[str, ...]
    """Lines that the adapted program printed otherwise, beyond rounding."""
    tolerance: CheckTolerance
    """What may differ."""


@record
class StepReport:
    """What the RDU makes of the adapted program's step."""

    headline: str
    """The report of the PEF in one line: time, fallbacks, transfers."""
    rdu_nodes: int
    """Operators on the RDU."""
    cpu_nodes: int
    """Operators that fall back to the host."""
    reasons: tuple[str, ...]
    """Why operators fall back."""


@record
class FileReport:
    """A file of the program."""

    path: str
    """The file."""
    is_changed: bool
    """Whether anything of it was changed."""


@record
class LintRemark:
    """What ``samba-port lint`` says of a line of the adapted program."""

    path: str
    """The file."""
    line: int
    """Number of the line, from 1."""
    rule: str
    """The rule."""
    severity: str
    """``error``, ``warning`` or ``note``."""
    message: str
    """What stands there."""


@record
class AdaptReport:
    """A program of plain PyTorch, written for SambaFlow."""

    headline: str
    """The answer in one sentence."""
    program: str
    """The program that was given."""
    is_sambaflow: bool
    """Whether it was written for SambaFlow: it is left alone then, but for ``--from sambaflow``."""
    is_complete: bool
    """Whether the adapted program runs without a hand's touch."""
    output: str
    """The file or folder, and the patch, that were written; empty if none was."""
    files: tuple[FileReport, ...]
    """The files of the program, the one that is executed first."""
    changes: tuple[ProgramChange, ...]
    """What was changed, by line."""
    open_points: tuple[OpenPoint, ...]
    """What a person has to look at, by line."""
    diff: str
    """The difference of both programs."""
    lint: tuple[LintRemark, ...]
    """What the linter says of the adapted program."""
    check: Check | None
    """The comparison of both programs; null without ``--check``."""
    compiled: StepReport | None
    """What became of the step on the RDU; null without ``--check``."""
    schema_version: int = SCHEMA_VERSION
    """Version of this document."""
