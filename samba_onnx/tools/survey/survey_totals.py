"""From the reports on many models to one survey of them."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections import Counter
from collections.abc import Sequence

from samba_onnx.report.change_reports import ChangeReport
from samba_onnx.report.report import Report
from samba_onnx.report.units import count_text
from samba_onnx.tools.survey.survey_report import (
    SurveyChange,
    SurveyEntry,
    SurveyFallback,
    SurveyFigures,
    SurveyReport,
    SurveyTarget,
)

DONE, FAILED = "done", "failed"


class Survey:
    """Takes in reports one after the other, and keeps of each what a survey says of it."""

    def __init__(self, targets: Sequence[str]) -> None:
        """Begin with no model.

        Args:
            targets: Targets that models are analyzed for, as they were named.
        """
        self._targets = tuple(targets)
        self._entries: list[SurveyEntry] = []
        self._nodes: Counter[tuple[str, str, str]] = Counter()
        self._sentences: dict[tuple[str, str, str], str] = {}
        self._models: dict[tuple[str, str, str], dict[str, None]] = {}
        self._changes: dict[tuple[str, str, str], list[tuple[str, ChangeReport]]] = {}

    def add(self, model: str, target: str, file: str, report: Report) -> None:
        """Take in the report on a model.

        Args:
            model: As it was named.
            target: As it was named.
            file: Where the report is.
            report: The report.
        """
        # A few numbers of each: a survey may be of hundreds of models, whose reports are in files.
        figures = figures_of(report)
        self._entries.append(SurveyEntry(model, target, DONE, "", file, figures))
        for fallback in report.fallbacks:
            for node in fallback.nodes:
                key = (target, node.operator, fallback.code)
                self._nodes[key] += 1
                # Sentences name the shapes and types of one model: the first stands for those of its kind.
                self._sentences.setdefault(key, node.reason)
                # A dictionary for a set, which would not keep the order in which models were named.
                self._models.setdefault(key, {})[model] = None
        for change in report.changes:
            key = (target, change.subject, change.code)
            self._changes.setdefault(key, []).append((model, change))

    def fail(self, model: str, target: str, file: str, error: str) -> None:
        """Take in that a model could not be analyzed.

        Args:
            model: As it was named.
            target: As it was named.
            file: Where that is recorded.
            error: Why, in one line.
        """
        self._entries.append(SurveyEntry(model, target, FAILED, error, file, None))

    def report(self) -> SurveyReport:
        """Return the survey of all that was taken in."""
        targets = tuple(self._target(target) for target in self._targets)
        fallbacks = [
            SurveyFallback(*key, self._sentences[key], tuple(self._models[key]), nodes)
            for key, nodes in self._nodes.items()
        ]
        # An operator that many models share is worth more than one that a single model has often.
        fallbacks.sort(key=lambda row: (-len(row.models), -row.nodes, row.operator))
        changes = [_change(key, parts) for key, parts in self._changes.items()]
        changes.sort(key=lambda row: (-row.seconds_saved, -row.nodes, row.operator))
        return SurveyReport(
            headline=_headline(self._entries, targets),
            targets=targets,
            entries=tuple(self._entries),
            fallbacks=tuple(fallbacks),
            changes=tuple(changes),
        )

    def _target(self, target: str) -> SurveyTarget:
        """Add up the models on one target."""
        entries = [entry for entry in self._entries if entry.target == target]
        figures = [entry.figures for entry in entries if entry.figures is not None]
        return SurveyTarget(
            target=target,
            analyzed=len(figures),
            failed=len(entries) - len(figures),
            whole=sum(not figure.cpu_nodes for figure in figures),
            nodes=sum(figure.nodes for figure in figures),
            rdu_nodes=sum(figure.rdu_nodes for figure in figures),
            rdu_flops=sum(figure.rdu_flops for figure in figures),
            cpu_flops=sum(figure.cpu_flops for figure in figures),
            transfers=sum(figure.transfers for figure in figures),
            bytes=sum(figure.bytes for figure in figures),
            modelled_seconds=sum(figure.modelled_seconds for figure in figures),
        )


def figures_of(report: Report) -> SurveyFigures:
    """Return what a survey says of one report.

    Args:
        report: On one model and target.
    """
    coverage, time = report.coverage, report.modelled_time
    bound: float | None = None
    # All of it runs on the RDU: this is the bound, of which a report says nothing then.
    if not coverage.cpu_nodes:
        bound = time.total_seconds
    elif len(report.bounds) == len(report.graphs) == 1:  # else the time is that of one graph
        bound = report.bounds[0].seconds
    return SurveyFigures(
        nodes=coverage.nodes,
        rdu_nodes=coverage.rdu_nodes,
        cpu_nodes=coverage.cpu_nodes,
        rdu_flops=coverage.rdu_flops,
        cpu_flops=coverage.cpu_flops,
        fallbacks=coverage.cpu_places,
        transfers=sum(total.transfers for total in report.transfers_per_run),
        bytes=sum(total.bytes for total in report.transfers_per_run),
        modelled_seconds=time.total_seconds,
        bound_seconds=bound,
        unmodelled_cpu_nodes=time.unmodelled_cpu_nodes,
    )


def _change(key: tuple[str, str, str], parts: Sequence[tuple[str, ChangeReport]]) -> SurveyChange:
    """Add up what one change saves in each model."""
    # The model that saves most comes first, and its advice is the one that is given.
    ordered = sorted(parts, key=lambda part: -part[1].seconds_saved)
    target, operator, code = key
    return SurveyChange(
        target=target,
        operator=operator,
        code=code,
        models=tuple(dict.fromkeys(model for model, _ in ordered)),
        nodes=sum(len(change.nodes) for _, change in ordered),
        transfers_saved=sum(change.transfers_saved for _, change in ordered),
        bytes_saved=sum(change.bytes_saved for _, change in ordered),
        seconds_saved=sum(change.seconds_saved for _, change in ordered),
        advice=next((change.advice for _, change in ordered if change.advice), ""),
    )


def _headline(entries: Sequence[SurveyEntry], targets: Sequence[SurveyTarget]) -> str:
    """Return the line, as ``3 models: 2 of 3 run whole on sn40l; 1 failed``."""
    models = len({entry.model for entry in entries})
    parts = [f"{row.whole:,} of {row.analyzed:,} run whole on {row.target}" for row in targets]
    failed = sum(row.failed for row in targets)
    if failed:
        parts.append(f"{count_text(failed, 'analysis', 'analyses')} failed")
    return f"{count_text(models, 'model')}: {', '.join(parts)}"


def csv_text(report: SurveyReport) -> str:
    """Return one line for each model and target, after a line with the names of the columns.

    Args:
        report: The survey.

    Returns:
        CSV as RFC 4180 has it: lines end with CR LF, figures that are not known are empty.
    """
    names = [field.name for field in dataclasses.fields(SurveyFigures)]
    text = io.StringIO()
    lines = csv.writer(text)
    lines.writerow(("model", "target", "state", "error", "file", *names))
    for entry in report.entries:
        figures = [getattr(entry.figures, name, None) for name in names]
        lines.writerow((entry.model, entry.target, entry.state, entry.error, entry.file, *figures))
    return text.getvalue()
