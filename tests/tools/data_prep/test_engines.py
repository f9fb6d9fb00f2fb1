"""Which engine runs a job: processes where several have something to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from samba_onnx.data_prep import PreparationOptions
from samba_onnx.tools.data_prep import engines, worker_processes
from samba_onnx.tools.data_prep.engines import Job, LocalEngine
from samba_onnx.tools.data_prep.file_preparation import FileTask
from samba_onnx.tools.data_prep.reporting import Silence
from samba_onnx.tools.data_prep.tokenizer_record import describe_tokenizer
from tests.tools.data_prep.tokenizers_of_tests import word_like


@pytest.mark.parametrize(
    ("workers", "files", "processes"),
    [(1, 1, None), (1, 3, None), (8, 1, None), (8, 0, None), (2, 2, 2), (8, 2, 2), (2, 8, 2), (3, 8, 3)],
)  # fmt: skip
def test_there_are_as_many_processes_as_files_and_workers(
    workers: int, files: int, processes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def in_processes(job: Job, count: int, reporter: Any) -> Any:
        asked.append(count)
        return ((task, "done") for task in job.tasks)

    monkeypatch.setattr(worker_processes, "run_in_processes", in_processes)
    monkeypatch.setattr(engines, "prepare_file", lambda *_: "done")
    tasks = tuple(FileTask(*[Path(f"{number}")] * 3) for number in range(files))
    record = describe_tokenizer(word_like(), None, "")
    job = Job(tasks, PreparationOptions(), record, workers)
    assert list(LocalEngine().run(job, Silence())) == [(task, "done") for task in tasks]
    assert asked == ([] if processes is None else [processes])
