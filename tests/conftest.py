"""What all tests share: threads that do not fight, and counts that are printed at the end."""

from __future__ import annotations

import collections
import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from samba_onnx.errors import MissingLibraryError
from tests.costs import read_costs, rows_beyond, slow_rows
from tests.failure_reports import shorten
from tests.without_torch import HAS_TORCH, OnnxHalfModule, reason_to_leave_out, reason_to_skip

if TYPE_CHECKING:
    from samba_onnx.pef.manifest import Manifest

# Two spinning thread pools in one process starve each other.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Images of containers forbid Python to keep what it compiled: each child of a test would compile it anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Under a background shell or nohup these are ignored, and children inherit that: the processes that
# tests interrupt would not notice.
for number, action in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, action)


@pytest.fixture(autouse=True)
def _nothing_of_the_process_is_left() -> Iterator[None]:
    """Undo what a test did to the process: its group, seeds of random values, a command line."""
    yield
    if "torch.distributed" in sys.modules and sys.modules["torch.distributed"].is_initialized():
        sys.modules["torch.distributed"].destroy_process_group()
    if "samba_onnx.tensor.random_values" in sys.modules:
        values = sys.modules["samba_onnx.tensor.random_values"]
        values.RANDOM.seed(None, values.FAITHFUL)
    if "samba_onnx.sessions.session_options" in sys.modules:
        sys.modules["samba_onnx.sessions.session_options"].SessionOptions.command_line = {}


@pytest.fixture(scope="session", autouse=True)
def _every_manifest_fits_its_schema() -> Iterator[None]:
    """Hold what tests of this process write as a PEF against the documented schema."""
    from samba_onnx.pef import writer
    from tests.pef.written_manifests import check_written

    encode = writer.encode_manifest

    def encode_and_check(manifest: Manifest) -> bytes:
        text = encode(manifest)
        check_written(text)
        return text

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "encode_manifest", encode_and_check)
        yield


def pytest_collection_finish() -> None:
    """Take what collecting the tests left out of garbage collection: millions of objects, of which none goes.

    A full collection takes a second and a half otherwise, and tests that ask for one wait for it.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show of what a failed test and its processes said the end."""
    report = yield
    if report.failed:
        shorten(report, None if call.excinfo is None else call.excinfo.value)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how much of the ONNX backend suite was seen, counts and passed."""
    suites = {"backend_suite": "the emulator", "reference_suite": "the reference engine"}
    counts = {suite: collections.Counter[str]() for suite in suites}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            for name, value in getattr(report, "user_properties", ()):
                if name in counts:
                    counts[name].update(value)
    for suite, place in suites.items():
        if counts[suite]:
            due = counts[suite]["onnxruntime"] + counts[suite]["older than onnxruntime"]
            terminalreporter.write_line(
                f"ONNX backend suite: {counts[suite]['passed']} of the {due} cases that onnxruntime "
                f"passes, or is too new for, pass as a PEF on {place} ({counts[suite]['seen']} cases "
                "seen)"
            )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark by what tests cost which of them the default command leaves out, and which CI."""
    costs = read_costs()
    quick = [item.nodeid for item in items if not item.get_closest_marker("slow")]
    dear = slow_rows(quick, costs)
    for item in items:
        if item.nodeid in dear:
            item.add_marker(pytest.mark.slow)
    in_ci = [item for item in items if item.get_closest_marker("slow")]
    in_ci = [item for item in in_ci if not item.get_closest_marker("exhaustive")]
    beyond = rows_beyond((item.nodeid for item in in_ci), costs)
    for item in in_ci:
        if item.nodeid in beyond:
            item.add_marker(pytest.mark.exhaustive)


if not HAS_TORCH:

    def pytest_ignore_collect(collection_path: Path) -> bool | None:
        """Leave out folders whose conftest.py needs torch."""
        return True if reason_to_leave_out(collection_path) else None

    def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
        """Skip files of tests that need torch."""
        return OnnxHalfModule.from_parent(parent, path=module_path)

    def _skipping() -> Generator[None, object, object]:
        try:
            return (yield)
        except (ModuleNotFoundError, MissingLibraryError) as error:
            reason = reason_to_skip(error)
            if not reason:
                raise
        pytest.skip(reason)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup() -> Generator[None, object, object]:
        """Skip a test whose fixtures need torch."""
        return (yield from _skipping())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call() -> Generator[None, object, object]:
        """Skip a test that needs torch."""
        return (yield from _skipping())
