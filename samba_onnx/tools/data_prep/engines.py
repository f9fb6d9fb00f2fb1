"""What runs the preparation of several files, and hands back each as it ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from samba_onnx.tools.data_prep.file_preparation import FileResult, FileTask, prepare_file
from samba_onnx.tools.data_prep.preparation_options import EngineKind, PreparationOptions
from samba_onnx.tools.data_prep.reporting import Reporter
from samba_onnx.tools.data_prep.tokenizer_record import TokenizerRecord


@dataclass(frozen=True)
class Job:
    """Several files with all that is needed to prepare each."""

    tasks: tuple[FileTask, ...]
    options: PreparationOptions
    record: TokenizerRecord
    workers: int


class PreparationEngine(Protocol):
    """What runs a job."""

    def run(self, job: Job, reporter: Reporter) -> Iterator[tuple[FileTask, FileResult]]:
        """Yield the result of every file, in whatever order they end.

        Args:
            job: The files.
            reporter: Hears of progress.

        Raises:
            SambaError: A file cannot be prepared. Those that are yielded before are finished.
        """


def make_engine(kind: EngineKind) -> PreparationEngine:
    """Return an engine.

    Args:
        kind: Which one.

    Raises:
        UsageError: Its library is not installed.
    """
    if kind is EngineKind.RAY:
        # Whoever prepares files on one machine need not have Ray.
        from samba_onnx.tools.data_prep.ray_engine import RayEngine

        return RayEngine()
    return LocalEngine()


class LocalEngine:
    """Runs a job in processes of this machine; in this process, if one worker is enough."""

    def run(self, job: Job, reporter: Reporter) -> Iterator[tuple[FileTask, FileResult]]:
        """Yield the result of every file."""
        workers = min(job.workers, len(job.tasks))
        if workers <= 1:
            yield from run_here(job.tasks, job, reporter)
            return
        from samba_onnx.tools.data_prep.worker_processes import run_in_processes

        yield from run_in_processes(job, workers, reporter)


def run_here(
    tasks: Sequence[FileTask], job: Job, reporter: Reporter
) -> Iterator[tuple[FileTask, FileResult]]:
    """Prepare files one after the other in this process.

    Args:
        tasks: The files.
        job: What they have in common.
        reporter: Hears of progress.

    Yields:
        Each file with its result.

    Raises:
        SambaError: A file cannot be prepared.
    """
    for task in tasks:
        yield task, prepare_file(task, job.options, job.record, reporter.advance)
