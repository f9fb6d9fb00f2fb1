"""Real processes: the same files however many there are, and an end without orphans or halves."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from samba_onnx.data_prep import PreparationOptions
from samba_onnx.errors import DataError, ExecutionError
from samba_onnx.tools.data_prep import worker_processes
from samba_onnx.tools.data_prep.engines import Job
from samba_onnx.tools.data_prep.file_preparation import FileTask
from samba_onnx.tools.data_prep.tokenizer_record import TokenizerRecord
from tests.tools.data_prep.building import contents, pairs, run, write
from tests.tools.data_prep.tokenizers_of_tests import gpt2_like

COMMAND = [
    *(sys.executable, "-m", "samba_onnx.data_prep", "pipeline", "--input_path=corpus.jsonl"),
    *("--output_path=out", "--pretrained_tokenizer=tokenizer", "--max_seq_length=16"),
    *("--input_packing_config=greedy::drop", "--num_training_splits=6", "--num_dev_splits=1"),
    *("--num_test_splits=1", "--num_workers=2"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    gpt2_like().save_pretrained(tmp_path / "tokenizer")
    write(tmp_path / "corpus.jsonl", pairs(4000))
    return tmp_path


def start(folder: Path) -> subprocess.Popen[str]:
    """Start the command in a process group of its own."""
    return subprocess.Popen(
        COMMAND,
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
        start_new_session=True,
    )


def in_one_process(folder: Path) -> dict[str, bytes]:
    run(folder / "corpus.jsonl", folder / "whole", train=6)
    return contents(folder / "whole")


def hdf5(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: content for name, content in files.items() if name.endswith(".hdf5")}


def test_two_workers_make_what_one_makes(folder: Path) -> None:
    process = start(folder)
    out, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    assert out.startswith("3,500 articles became ")
    assert hdf5(contents(folder / "out")) == hdf5(in_one_process(folder))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_all_processes_and_the_command_goes_on(
    folder: Path, number: signal.Signals
) -> None:
    process = start(folder)
    state = folder / "out" / ".data_prep_state.json"
    while not (state.exists() and json.loads(state.read_text())["results"]):
        assert process.poll() is None
        time.sleep(0.05)
    children = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, number)
    _, errors = process.communicate()
    assert "Traceback" not in errors
    if number is signal.SIGINT:
        assert (process.returncode, errors) == (130, "samba-port data-prep: interrupted\n")
    _, alive = psutil.wait_procs(children, timeout=300)
    assert not alive
    process = start(folder)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "finished already, and are kept" in errors
    assert hdf5(contents(folder / "out")) == hdf5(in_one_process(folder))
    assert not list((folder / "out").glob(".*"))


class Pool:
    """Takes the place of processes: what a file becomes, and when, the test says."""

    def __init__(self, workers: int, context: Any, begin: Any, shared: tuple[Any, Any]) -> None:
        self.words = (workers, context.get_start_method(), begin, shared[0])
        self.counts = shared[1]
        self.futures: list[Future[Any]] = []
        self.ended: list[dict[str, bool]] = []

    def submit(self, prepare: Any, task: FileTask) -> Future[Any]:
        assert prepare is worker_processes._prepare
        self.futures.append(Future())
        return self.futures[-1]

    def shutdown(self, **words: bool) -> None:
        self.ended.append(words)

    def done(self, number: int, size: int, lines: int) -> None:
        """End a file, with what has been done by then in all."""
        self.counts[0], self.counts[1] = size, lines
        self.futures[number].set_result(f"result {number}")


TASKS = tuple(FileTask(*[Path(f"{number}")] * 3) for number in range(3))
JOB = Job(TASKS, PreparationOptions(), TokenizerRecord(0, None, 0, 9, None, "", ""), 2)


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> list[Pool]:
    made: list[Pool] = []

    def make(*words: Any) -> Pool:
        made.append(Pool(*words))
        return made[-1]

    monkeypatch.setattr(worker_processes, "ProcessPoolExecutor", make)
    return made


def test_files_are_handed_back_as_they_end_with_what_was_done_since(
    pools: list[Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_processes, "POLL_SECONDS", 60)  # nobody waits for that
    told: list[tuple[int, int]] = []

    def advance(*counts: int) -> None:
        told.append(counts)  # type: ignore[arg-type]

    submit = Pool.submit

    def submit_and_end(self: Pool, prepare: Any, task: FileTask) -> Future[Any]:
        future = submit(self, prepare, task)
        if len(self.futures) == len(TASKS):
            self.done(1, 10, 3)
        return future

    monkeypatch.setattr(Pool, "submit", submit_and_end)
    results = worker_processes.run_in_processes(JOB, 2, SimpleNamespace(advance=advance))  # type: ignore[arg-type]
    assert next(results) == (TASKS[1], "result 1")
    (pool,) = pools
    pool.done(0, 35, 7)
    assert next(results) == (TASKS[0], "result 0")
    pool.done(2, 36, 19)
    assert list(results) == [(TASKS[2], "result 2")]
    assert told == [(10, 3), (25, 4), (1, 12)]
    assert pool.words == (2, "spawn", worker_processes._begin, JOB)
    assert pool.ended == [{}, {"wait": False, "cancel_futures": True}]


def test_progress_is_told_while_no_file_ends(
    pools: list[Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_processes, "POLL_SECONDS", 0.01)
    told: list[int] = []

    def advance(size: int, lines: int) -> None:
        told.append(size)
        pools[0].counts[0] += 5
        if len(told) == 3:
            for number in range(len(TASKS)):
                pools[0].done(number, 15, 0)

    reporter: Any = SimpleNamespace(advance=advance)
    assert len(list(worker_processes.run_in_processes(JOB, 2, reporter))) == 3
    assert told[:4] == [0, 5, 5, 5]


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (DataError("oops"), DataError, "^oops$"),
        (BrokenProcessPool(), ExecutionError, "^a worker process died, .* from there$"),
    ],
)
def test_after_an_error_nobody_waits(
    error: Exception, raised: type[Exception], message: str, pools: list[Pool]
) -> None:
    def advance(*_: int) -> None:
        if not pools[0].futures[2].done():
            pools[0].futures[2].set_exception(error)

    reporter: Any = SimpleNamespace(advance=advance)
    with pytest.raises(raised, match=message):
        list(worker_processes.run_in_processes(JOB, 2, reporter))
    assert pools[0].ended == [{"wait": False, "cancel_futures": True}]


def test_a_worker_has_one_thread_and_leaves_interrupts_to_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(threading.Thread, "start", lambda self: started.append(self))
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    before = signal.getsignal(signal.SIGINT)
    try:
        worker_processes._begin(JOB, [0, 0])
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
        shared = worker_processes._shared[:]
        worker_processes._shared.clear()
    assert os.environ["TOKENIZERS_PARALLELISM"] == "false"
    assert shared == [JOB, [0, 0]]
    (thread,) = started
    assert thread.daemon
    assert thread._target is worker_processes._end_with_parent


def test_a_worker_ends_with_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    worker_processes._end_with_parent()  # which has none
    assert ended == []
    here, there = multiprocessing.Pipe()
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: SimpleNamespace(sentinel=here))
    there.close()
    worker_processes._end_with_parent()
    here.close()
    (status,) = ended
    assert status != 0


def test_workers_add_up_what_they_have_done(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = multiprocessing.get_context("spawn").Array("q", 2)

    def prepare(task: FileTask, options: Any, record: Any, progress: Any) -> str:
        assert (options, record) == (JOB.options, JOB.record)
        progress(100, 3)
        progress(20, 4)
        return task.target.name

    monkeypatch.setattr(worker_processes, "prepare_file", prepare)
    monkeypatch.setattr(worker_processes, "_shared", [JOB, counts])
    assert [worker_processes._prepare(task) for task in TASKS] == ["0", "1", "2"]
    assert counts[:] == [360, 21]
