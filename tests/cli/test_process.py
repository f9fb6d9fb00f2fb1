"""``samba-port`` as a process: exit statuses, streams, signals, crashes of native code."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Result
from tests.runtime.building import Plan, build, fallback

PROGRAM = [sys.executable, "-m", "samba_onnx.cli"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


PATIENCE = 300
"""Seconds that a process may take for what takes one on an idle machine."""


def samba_port(*arguments: object) -> Result:
    done = subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env=ENVIRONMENT,
    )
    return Result(done.returncode, done.stdout, done.stderr)


@contextlib.contextmanager
def running(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Start a command and end it whatever happens."""
    process = subprocess.Popen(
        [*PROGRAM, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("targets", "-q"), 0),
        (("inspect", "{mixed}", "-q"), 0),
        (("run", "{mixed}", "--random", 0, "-q"), 0),
        (("run", "{mixed}"), 2),
        (("analyze", "{mixed}"), 2),
        (("bogus",), 2),
    ],
)
def test_statuses_and_streams(mixed: Path, arguments: tuple[object, ...], status: int) -> None:
    result = samba_port(*(str(text).format(mixed=mixed) for text in arguments))
    assert result.status == status, result.err
    assert (bool(result.out), bool(result.err)) == (status == 0, status == 2)
    assert len((result.out + result.err).splitlines()) == 1
    assert "Traceback" not in result.err


def trap(folder: Path) -> Path:
    """A PEF that divides on the CPU, which onnxruntime does with an instruction that can trap."""
    text = "s (int32[1] x, int32[1] z) => (int32[1] y) { y = Div(x, z) }"
    pef = build(folder, Plan([fallback(text)], ["x", "z"], ["y"]))
    pef.close()
    (folder / "x.json").write_text("[-2147483648]")
    (folder / "z.json").write_text("[-1]")
    return Path(pef.path)


def test_a_crash_in_native_code_is_one_line(tmp_path: Path) -> None:
    pef = trap(tmp_path)
    given = [part for name in "xz" for part in ("-i", f"{name}={tmp_path / name}.json")]
    before = sorted(tmp_path.iterdir())
    result = samba_port("run", pef, *given, "-o", tmp_path / "y.npz", "--ledger", tmp_path / "l")
    if result.status == 0:
        pytest.skip("this processor does not trap")
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("samba-port run: native code crashed (SIGFPE: ")
    assert len(result.err.splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == before


def _children(process: int) -> list[int]:
    text = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(number) for number in text.split()]


def _wait_until_it_runs(process: subprocess.Popen[str]) -> int:
    """Wait until the child has loaded onnxruntime, and return its id."""
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        for child in _children(process.pid):
            with contextlib.suppress(OSError):
                if "onnxruntime" in Path(f"/proc/{child}/maps").read_text():
                    time.sleep(0.3)
                    return child
        time.sleep(0.05)
    raise AssertionError("it does not run")


linux = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")


@linux
@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_it_with_one_line_and_no_file(
    mixed: Path, tmp_path: Path, number: signal.Signals, status: int
) -> None:
    before = sorted(tmp_path.iterdir())
    options = ("--random", 0, "--iterations", 10**9, "-o", tmp_path / "y.npz")
    with running("run", mixed, *options) as process:
        child = _wait_until_it_runs(process)
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (status, "", "samba-port run: interrupted\n")
    assert sorted(tmp_path.iterdir()) == before
    assert not Path(f"/proc/{child}").exists()


@linux
def test_ctrl_c_reaches_parent_and_child_at_once(mixed: Path) -> None:
    process = subprocess.Popen(
        [*PROGRAM, "run", str(mixed), "--random", "0", "--iterations", str(10**9)],
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        start_new_session=True,
    )
    with process:
        _wait_until_it_runs(process)
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (130, "samba-port run: interrupted\n")


@pytest.mark.parametrize("delay", [0.2, 0.6])
def test_ctrl_c_while_it_starts(mixed: Path, delay: float) -> None:
    with running("run", mixed, "--random", 0, "--iterations", 10**9) as process:
        # What the interpreter itself does before the first line of ours cannot be caught.
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert out == ""
    if process.returncode == 130:
        assert err.endswith(": interrupted\n")
        assert len(err.splitlines()) == 1
    else:
        # The interpreter ends with 1 where it is still importing its own site.
        assert process.returncode == -signal.SIGINT or "init_import_site" in err
        assert "samba_onnx/cli/application" not in err


@linux
def test_a_killed_parent_takes_its_child_along(mixed: Path) -> None:
    with running("run", mixed, "--random", 0, "--iterations", 10**9) as process:
        child = _wait_until_it_runs(process)
        process.kill()
        process.wait()
        deadline = time.monotonic() + PATIENCE
        while Path(f"/proc/{child}").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
    assert not Path(f"/proc/{child}").exists()


DEAF = """
import signal, sys, time
from samba_onnx.cli import isolation
isolation.GRACE_SECONDS = 0.5
def work():
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    print("ready", flush=True)
    time.sleep(60)
sys.exit(isolation.isolated(work, "samba-port run"))
"""


def test_native_code_that_does_not_listen_is_killed() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", DEAF], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert err == "samba-port run: interrupted, and killed because it did not end by itself\n"


EARLY = """
import os, signal, sys, time
from samba_onnx.cli.isolation import isolated
fork = os.fork
def interrupted_fork():
    child = fork()
    if child:
        os.kill(os.getpid(), signal.SIGINT)
    return child
os.fork = interrupted_fork
def work():
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        return 7
sys.exit(isolated(work, "samba-port run"))
"""


def test_a_signal_before_anybody_waits_reaches_the_child() -> None:
    process = subprocess.run(
        [sys.executable, "-c", EARLY], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    # 2: it came before the work began.
    assert process.returncode in (2, 7), process.stderr


SWALLOWED = """
import sys, time
from samba_onnx.cli import signals
from samba_onnx.cli.failures import answer_or_complain
from samba_onnx.cli.isolation import isolated
signals.REPEAT_SECONDS = 0.3
def swallow():
    print("ready", flush=True)
    try:
        time.sleep(60)
    except signals.Interrupted:
        pass
    {then}
signals.interruptible()
sys.exit(isolated(lambda: answer_or_complain(swallow, ["run"]), "samba-port run"))
"""


@pytest.mark.parametrize("then", ["time.sleep(60)", "raise ImportError('initialization failed')"])
def test_a_signal_that_native_code_swallowed_is_not_lost(then: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SWALLOWED.format(then=then)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (143, "samba-port run: interrupted\n")


def test_memory_that_runs_out_is_named() -> None:
    code = (
        "import os, signal, sys\n"
        "from samba_onnx.cli.isolation import isolated\n"
        "work = lambda: os.kill(os.getpid(), signal.SIGKILL)\n"
        "sys.exit(isolated(work, 'samba-port run'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 2
    assert "most likely because memory ran out" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["--help"], ["ops", "--json", "-"]])
def test_a_reader_that_goes_away_is_no_error(arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        done = subprocess.run(
            [*PROGRAM, *arguments],
            stdout=closed,
            stderr=subprocess.PIPE,
            check=False,
            timeout=PATIENCE,
        )
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["targets"], ["run", "{mixed}", "--random", "0"]])
def test_a_full_disk_is_one_line(mixed: Path, arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*PROGRAM, *(text.format(mixed=mixed) for text in arguments)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=PATIENCE,
            # A buffered output is written, and written again, when the process ends.
            env={key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"},
        )
    assert done.returncode == 2
    assert done.stderr.endswith("error: no space is left for the output\n")
    assert len(done.stderr.splitlines()) == 1


def test_an_encoding_without_arrows() -> None:
    done = subprocess.run(
        [*PROGRAM, "targets"],
        capture_output=True,
        check=True,
        timeout=PATIENCE,
        env={**ENVIRONMENT, "PYTHONIOENCODING": "ascii"},
    )
    assert done.stdout.isascii()
    assert b"10 us" in done.stdout


def _on_a_terminal(arguments: list[str], columns: int, until: str = "") -> str:
    """Run with a terminal as standard output and standard error, and return what it shows.

    A command that does not end is interrupted once it has shown ``until``.
    """
    master, slave = pty.openpty()
    environment = {**ENVIRONMENT, "COLUMNS": str(columns), "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [*PROGRAM, *arguments], stdout=slave, stderr=slave, stdin=slave, env=environment
    )
    os.close(slave)
    shown = b""
    with contextlib.suppress(OSError):  # the terminal's way to say that it is over
        while piece := os.read(master, 65_536):
            shown += piece
            if until and until.encode() in shown:
                process.send_signal(signal.SIGINT)
                until = ""
    process.wait(timeout=PATIENCE)
    os.close(master)
    return shown.decode()


def test_a_terminal_gets_color_and_its_own_width(mixed: Path) -> None:
    shown = _on_a_terminal(["inspect", str(mixed)], 60)
    assert "\x1b[1m" in shown
    plain = shown.replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "")
    assert max(len(line) for line in plain.splitlines()) <= 60


def test_progress_is_shown_after_a_second_and_wiped_out(mixed: Path) -> None:
    options = ["--random", "0", "--iterations", str(10**9)]
    shown = _on_a_terminal(["run", str(mixed), *options], 80, until="elapsed")
    *_, last = shown.rstrip().split("\x1b[2K")  # the line of the display is erased at the end
    assert "elapsed" not in last
    assert last.endswith("samba-port run: interrupted")


def test_no_progress_for_what_is_quick() -> None:
    assert "elapsed" not in _on_a_terminal(["targets"], 80)


def test_a_complaint_imports_nothing() -> None:
    """What was interrupted may be the import of a library, which no other import of it survives."""
    program = (
        "import sys; from samba_onnx.cli.failures import complain; known = set(sys.modules); "
        "complain('samba-port', 'interrupted \\x1b' + 'x' * 9999); sys.exit(len(set(sys.modules) - known))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("samba-port: interrupted \\x1bx")
    assert len(done.stderr.splitlines()) == 1
