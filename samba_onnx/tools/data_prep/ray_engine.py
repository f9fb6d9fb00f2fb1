"""Files are prepared on a Ray cluster, as a Ray Data job.

Its machines read and write the same folders, as a network file system shows them to all.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Generator, Iterator
from typing import Any

from samba_onnx.errors import ExecutionError, SambaError
from samba_onnx.safety.ray_cluster import connect
from samba_onnx.tools.data_prep.engines import Job
from samba_onnx.tools.data_prep.file_preparation import FileResult, FileTask, prepare_file
from samba_onnx.tools.data_prep.libraries import library
from samba_onnx.tools.data_prep.reporting import Reporter


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
        # Closed, whatever happens: a job that is left in the middle would go on in threads of this process.
        with contextlib.closing(self._outcomes(job)) as outcomes:
            for number, result in outcomes:
                task = job.tasks[number]
                if isinstance(result, SambaError):
                    raise result
                if isinstance(result, str):
                    raise ExecutionError(f"{task.source}: a worker of the cluster failed: {result}")
                reporter.advance(task.source.stat().st_size, result.metrics.articles)
                yield task, result

    def _outcomes(self, job: Job) -> Generator[tuple[int, FileResult | SambaError | str]]:
        """Yield the number of every file, with its result or error, as Ray finishes them.

        The job lives as long as this generator: nothing else refers to it, and Ray ends a job with its data set.
        """
        connect(self._ray)
        self._data.DataContext.get_current().enable_progress_bars = False
        # Of plans and of what is deprecated, line by line; errors are raised.
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        rows = [{"number": number} for number in range(len(job.tasks))]
        # As many workers as there is room for: a pool of a fixed size waits until the cluster has all of them.
        pool = self._data.ActorPoolStrategy(min_size=1, max_size=min(job.workers, len(rows)))
        outcomes = self._data.from_items(rows, override_num_blocks=len(rows)).map(
            _Worker, fn_constructor_args=(job,), compute=pool
        )
        for outcome in outcomes.iter_rows():
            yield outcome["number"], outcome["result"]


class _Worker:
    """Prepares files in a process of the cluster."""

    def __init__(self, job: Job) -> None:
        """Keep what all files have in common.

        Args:
            job: The job.
        """
        self._job = job

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
