"""Files are prepared in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait as wait_for
from typing import Any

from samba_onnx.errors import ExecutionError
from samba_onnx.tools.data_prep.engines import Job
from samba_onnx.tools.data_prep.file_preparation import FileResult, FileTask, prepare_file
from samba_onnx.tools.data_prep.reporting import Reporter

POLL_SECONDS = 0.2

_shared: list[Any] = []
"""In a worker: the job, and the counts of bytes and lines that it has in common with the others."""


def run_in_processes(
    job: Job, workers: int, reporter: Reporter
) -> Iterator[tuple[FileTask, FileResult]]:
    """Prepare files side by side.

    Workers are new processes that load the tokenizer's library and nothing else of size. They end
    when this process ends, however it does.

    Args:
        job: The files.
        workers: How many processes.
        reporter: Hears of progress.

    Yields:
        Each file with its result, as it ends.

    Raises:
        SambaError: A file cannot be prepared.
        ExecutionError: A worker died.
    """
    # Not forked: workers would begin with all that this process has loaded.
    context = multiprocessing.get_context("spawn")
    counts = context.Array("q", 2)
    # Processes that the program has started for itself are not ended below.
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, context, _begin, (job, counts))
    try:
        pending = {pool.submit(_prepare, task): task for task in job.tasks}
        told = (0, 0)
        while pending:
            # Not longer, so that progress is told while no file ends.
            done, _ = wait(pending, POLL_SECONDS, FIRST_COMPLETED)
            now = (counts[0], counts[1])
            reporter.advance(now[0] - told[0], now[1] - told[1])
            told = now
            for future in done:
                yield pending.pop(future), _result(future)
        pool.shutdown()
    finally:
        # After an error or a signal nobody waits for what is half done.
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
            process.join()


def _result(future: Future[FileResult]) -> FileResult:
    try:
        return future.result()
    except BrokenProcessPool:
        raise ExecutionError(
            "a worker process died, perhaps because memory ran out: give fewer --num_workers; what "
            "is finished is kept, and the same command goes on from there"
        ) from None


def _begin(job: Job, counts: Any) -> None:
    """Prepare a worker."""
    # One thread each: the processes are as many as the user wants cores to be used.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # Ctrl-C reaches every process of the terminal; the parent ends the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _shared[:] = [job, counts]


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)


def _prepare(task: FileTask) -> FileResult:
    job, counts = _shared

    def progress(size: int, articles: int) -> None:
        with counts.get_lock():
            counts[0] += size
            counts[1] += articles

    return prepare_file(task, job.options, job.record, progress)
