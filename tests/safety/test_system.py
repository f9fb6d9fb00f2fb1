"""Systems that lack calls of Linux: everything works, with a protection less and one note."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from samba_onnx.cli import signals
from samba_onnx.errors import ModelFileError
from samba_onnx.safety import system
from samba_onnx.safety.files import atomic_output, open_beneath
from tests.safety.small_models import model, node

ROOT = Path(__file__).parent.parent.parent

WINDOWS = """
import os, signal, subprocess, sys
for module in ("fcntl", "grp", "pty", "pwd", "resource", "termios"):
    sys.modules[module] = None
for name in ("O_CLOEXEC", "O_DIRECTORY", "O_NOCTTY", "O_NOFOLLOW", "O_NONBLOCK", "O_SYNC", "chown", "fchmod",
             "fchown", "fork", "forkpty", "geteuid", "getpgid", "getuid", "killpg", "lchown", "link", "mkfifo",
             "pread", "preadv", "pwrite", "pwritev", "register_at_fork", "sched_getaffinity", "sendfile", "setsid",
             "symlink", "posix_fadvise", "statvfs"):
    delattr(os, name)
for name in ("SIGALRM", "SIGHUP", "SIGKILL", "SIGUSR1", "ITIMER_REAL", "alarm", "pthread_sigmask", "setitimer"):
    delattr(signal, name)
os.supports_dir_fd.clear()
"""
"""Takes away what Python has on Linux and not on Windows. ``subprocess`` keeps what it needs to start
a child here, and ``uname`` stays: the standard library asks Linux by it."""

PROGRAM = """
import os, sys
from samba_onnx.cli import main
assert not hasattr(os, "fork")
for line in {lines!r}:
    sys.argv = ["samba-port", *line]
    status = main()
    print("status", status, file=sys.stderr)
"""


def test_all_commands_work_without_the_calls_of_linux(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(WINDOWS, encoding="utf-8")
    weight = np.arange(12, dtype=np.float32).reshape(3, 4)
    proto = model(
        [node("MatMul", ["x", "w"], ["m"]), node("Relu", ["m"], ["y"])],
        initializers=[numpy_helper.from_array(weight, "w")],
    )
    source, pef = tmp_path / "model.onnx", tmp_path / "model.pef"
    onnx.save(proto, source, save_as_external_data=True, location="weights", size_threshold=0)
    lines = [
        ["targets", "-q"],
        ["convert", str(source), "-o", str(pef), "-q"],
        ["run", str(pef), "--random", "0", "-o", str(tmp_path / "y.npz"), "-q"],
        ["verify", str(source), str(pef), "-q"],
    ]
    path = os.pathsep.join([str(tmp_path / "site"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(lines=lines)],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": path},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    notes = [line for line in done.stderr.splitlines() if not line.startswith("status")]
    assert [line for line in done.stderr.splitlines() if line not in notes] == ["status 0"] * 4, (
        done.stderr
    )
    assert len(notes) == 1  # of the process; its children keep silent
    assert notes[0].startswith("note: on this system a crash of native code ends the command")
    assert "no limit on memory" in notes[0]
    assert {path.name for path in tmp_path.iterdir()} == {
        *("model.onnx", "weights", "model.pef", "model.pef.log", "y.npz", "site")
    }


@pytest.fixture
def by_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders cannot be opened."""
    monkeypatch.setattr(os, "supports_dir_fd", set())
    system.do_not_note()


@pytest.mark.usefixtures("by_path")
def test_files_beneath_a_folder_are_opened_by_their_path(tmp_path: Path) -> None:
    (tmp_path / "in" / "ner").mkdir(parents=True)
    (tmp_path / "in" / "ner" / "file").write_bytes(b"content")
    with open_beneath(tmp_path, "in/ner/file", what="external data file") as file:
        assert file.read() == b"content"
    with atomic_output(tmp_path / "result") as file:
        file.write(b"x")
    assert (tmp_path / "result").read_bytes() == b"x"


@pytest.mark.usefixtures("by_path")
@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("linked/file", "a part of the path is a symbolic link or no folder"),
        ("real/link", "a part of the path is a symbolic link or no folder"),
        ("real/file/x", "a part of the path is a symbolic link or no folder"),
        ("real/twin", "more than one hard link"),
        ("real", "must be a regular file, but this is a folder"),
        ("nothing/file", "no such file"),
        ("../file", "must stay inside the model's folder"),
    ],
)
def test_links_are_refused_by_their_path(tmp_path: Path, location: str, message: str) -> None:
    inside = tmp_path / "model"
    (inside / "real").mkdir(parents=True)
    (inside / "real" / "file").write_bytes(b"x")
    (tmp_path / "elsewhere").write_bytes(b"secret")
    (inside / "linked").symlink_to("real")
    (inside / "real" / "link").symlink_to(tmp_path / "elsewhere")
    (inside / "real" / "twin").hardlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelFileError, match=message):
        open_beneath(inside, location, what="external data file")


@pytest.mark.usefixtures("by_path")
def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"absent: cannot open this folder: no such file"):
        open_beneath(tmp_path / "absent", "file", what="external data file")


def test_a_colon_is_refused_where_it_names_a_drive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "C:file").write_bytes(b"x")
    open_beneath(tmp_path, "C:file", what="external data file").close()
    monkeypatch.setattr(system, "HAS_DRIVES", True)
    with pytest.raises(ModelFileError, match="cannot hold a colon"):
        open_beneath(tmp_path, "C:file", what="external data file")


def test_a_junction_is_a_redirection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stat, "FILE_ATTRIBUTE_REPARSE_POINT", 0x400, raising=False)
    folder = stat.S_IFDIR | 0o755
    plain = SimpleNamespace(st_mode=folder, st_file_attributes=0x10)
    junction = SimpleNamespace(st_mode=folder, st_file_attributes=0x410)
    assert not system.is_redirected(plain)  # type: ignore[arg-type]
    assert system.is_redirected(junction)  # type: ignore[arg-type]


def test_reading_at_a_place_without_calls_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(bytes(range(100)))
    with (tmp_path / "file").open("rb") as file:
        expected = [system.read_at(file.fileno(), 20, offset) for offset in (50, 0, 90, 100)]
        monkeypatch.delattr(os, "pread")
        monkeypatch.delattr(os, "preadv")
        assert [
            system.read_at(file.fileno(), 20, offset) for offset in (50, 0, 90, 100)
        ] == expected
        buffer = memoryview(bytearray(30))
        assert system.read_into(file.fileno(), buffer, 95) == 5
        assert bytes(buffer[:6]) == bytes([95, 96, 97, 98, 99, 0])


def test_permissions_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fchmod")
    (tmp_path / "result").touch(0o640)
    with atomic_output(tmp_path / "result") as file:
        file.write(b"x")
    assert stat.S_IMODE((tmp_path / "result").stat().st_mode) == 0o640


def test_folders_that_cannot_be_locked_are_used_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with system.lock_folder(tmp_path), pytest.raises(BlockingIOError), system.lock_folder(tmp_path):
        pass
    monkeypatch.setattr(system, "fcntl", None)
    with system.lock_folder(tmp_path), system.lock_folder(tmp_path):
        pass
    with pytest.raises(NotADirectoryError), system.lock_folder(Path(__file__)):
        pass


def test_no_limits_where_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "resource", None)
    system.limit_process(1 << 20, 1)
    assert "child processes have no limit on memory and processor time" in (
        system.missing_protections()
    )


@pytest.mark.skipif(sys.platform != "linux", reason="what is there on Linux")
def test_linux_has_every_protection() -> None:
    assert system.missing_protections() == ()


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (0, ("", "")),
        (7, ("", "")),
        (-signal.SIGSEGV, ("SIGSEGV", "an access to memory that is not its own")),
        (-signal.SIGKILL, ("SIGKILL", "")),
        (-40, ("signal 40", "")),
        (0xC0000005, ("0xC0000005", "an access to memory that is not its own")),
        (0xC0FFEE00, ("0xC0FFEE00", "")),
    ],
)
def test_what_ended_a_process(code: int, cause: tuple[str, str]) -> None:
    assert system.cause_of_death(code) == cause


def test_a_child_is_ended_alone_where_there_are_no_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "killpg")
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    system.kill_group(child)
    assert child.wait(timeout=300) == -signal.SIGKILL
    system.kill_group(child)  # it is gone: no error


ORPHAN = """
import os, sys, time
from samba_onnx.safety import system
system._asked_the_kernel = lambda: False
system.die_with(os.getppid())
print("ready", flush=True)
time.sleep(600)
"""


def test_a_child_looks_for_its_parent_where_the_kernel_does_not(tmp_path: Path) -> None:
    start = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {ORPHAN!r}], stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", start], stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    deadline = time.monotonic() + 300
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.kill(child, 0)
            time.sleep(0.05)
        os.kill(child, signal.SIGKILL)
        raise AssertionError("it outlived its parent")


def test_signals_without_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(signal, "setitimer")
    monkeypatch.setattr(signals, "_received", [])
    before = [signal.getsignal(number) for number in signals.SIGNALS]
    try:
        with pytest.raises(signals.Interrupted):
            signals._raise(signal.SIGTERM, None)
        assert signals.interruption() == signal.SIGTERM
    finally:
        for number, action in zip(signals.SIGNALS, before, strict=True):
            signal.signal(number, action)


def test_the_note_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(system, "_noted", threading.Event())
    monkeypatch.setattr(system, "missing_protections", lambda: ("one", "two"))
    system.note_missing_protections()
    system.note_missing_protections()
    assert caplog.messages == ["note: on this system one; two; see docs/versions.md"]
