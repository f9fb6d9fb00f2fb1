"""Files are prepared on a Ray cluster, as a Ray Data job.

Its machines read and write the same folders, as a network file system shows them to all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from samba_onnx.data_prep.engines import Job
from samba_onnx.data_prep.file_preparation import FileResult, FileTask, prepare_file
from samba_onnx.data_prep.libraries import library
from samba_onnx.data_prep.reporting import Reporter
from samba_onnx.errors import ExecutionError, SambaError


class RayEngine:
    """Runs a job on the cluster that Ray is connected to, or on one of this machine."""

    def __init__(self) -> None:
        """Load Ray.

        Raises:
            UsageError: It is not installed.
        """
        self._ray = library("ray", "ray")
        self._data = library("ray.data", "ray")

    def run(self, job: Job, reporter: Reporter) -> Iterator[tuple[FileTask, FileResult]]:
        """Yield the result of every file."""
        if not self._ray.is_initialized():
            # The cluster of RAY_ADDRESS if that is set, else a new one here.
            self._ray.init(logging_level="error", log_to_driver=False)
        self._data.DataContext.get_current().enable_progress_bars = False
        rows = [{"number": number} for number in range(len(job.tasks))]
        shared = self._ray.put(job)
        outcomes = self._data.from_items(rows, override_num_blocks=len(rows)).map(
            _Worker, fn_constructor_args=(shared,), concurrency=min(job.workers, len(rows))
        )
        for outcome in outcomes.iter_rows():
            task, result = job.tasks[outcome["number"]], outcome["result"]
            if isinstance(result, SambaError):
                raise result
            if isinstance(result, str):
                raise ExecutionError(f"{task.source}: a worker of the cluster failed: {result}")
            reporter.advance(task.source.stat().st_size, result.metrics.articles)
            yield task, result


class _Worker:
    """Prepares files in a process of the cluster."""

    def __init__(self, job: Any) -> None:
        """Fetch what all files have in common.

        Args:
            job: The job, or a reference to it.
        """
        ray = library("ray", "ray")
        self._job: Job = ray.get(job) if isinstance(job, ray.ObjectRef) else job

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Prepare a file; an error is a result, too, or Ray would try again."""
        task = self._job.tasks[row["number"]]
        result: FileResult | SambaError | str
        try:
            result = prepare_file(task, self._job.options, self._job.record, _ignore)
        except SambaError as error:
            result = error
        except Exception as error:  # handed over in words: its class may not be known elsewhere
            result = repr(error)
        return {"number": row["number"], "result": result}


def _ignore(size: int, articles: int) -> None:
    """Tell nobody: the driver hears of whole files."""
