"""Opening what was meant, and writing in whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from samba_onnx.errors import ModelFileError, OutputError, PefFormatError
from samba_onnx.safety import files
from samba_onnx.safety.files import (
    atomic_output,
    open_beneath,
    open_regular,
    printable,
    restored_on_failure,
)


def test_printable_keeps_one_short_line() -> None:
    assert printable("a\nb\x1b[2J\0") == "a\\x0ab\\x1b[2J\\x00"
    assert printable("größe 大きさ") == "größe 大きさ"
    assert len(printable("x" * 1000)) == 120
    assert printable("x" * 120) == "x" * 120


def test_open_regular_reads_through_the_users_own_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"content")
    (tmp_path / "link").symlink_to("real")
    with open_regular(tmp_path / "link") as file:
        assert file.read() == b"content"


def test_open_regular_raises_the_class_and_word_asked_for(tmp_path: Path) -> None:
    with pytest.raises(PefFormatError, match=r"a PEF must be a regular file, but this is a folder"):
        open_regular(tmp_path, what="PEF", error=PefFormatError)


def test_open_regular_does_not_wait_for_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelFileError, match="named pipe"):
        open_regular(tmp_path / "pipe")


def test_open_regular_looks_again_after_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is swapped for a pipe between the look and the opening is refused too."""
    (tmp_path / "file").write_bytes(b"x")
    regular = os.stat(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(files.os, "stat", lambda path, **_: regular)
    with pytest.raises(ModelFileError, match="named pipe"):
        open_regular(tmp_path / "pipe")


def test_open_beneath_opens_below_and_tolerates_dots(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.bin").write_bytes(b"content")
    for location in ("sub/w.bin", "./sub/w.bin", "sub//w.bin"):
        with open_beneath(tmp_path, location, what="data file") as file:
            assert file.read() == b"content"


def test_open_beneath_leaks_no_descriptor(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "sub" / "pipe")
    before = len(os.listdir("/proc/self/fd"))
    for location in ("sub/link", "sub/pipe", "sub/none", "none/x", "../x", "sub"):
        with pytest.raises(ModelFileError):
            open_beneath(tmp_path, location, what="data file")
    assert len(os.listdir("/proc/self/fd")) == before


def test_atomic_output_writes_and_keeps_permissions(tmp_path: Path) -> None:
    path = tmp_path / "out.bin"
    path.write_bytes(b"old")
    path.chmod(0o640)
    with atomic_output(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["out.bin"]


def test_atomic_output_gives_a_new_file_the_permissions_of_the_umask(tmp_path: Path) -> None:
    previous = os.umask(0o027)
    try:
        with atomic_output(tmp_path / "out.bin") as file:
            file.write(b"x")
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "out.bin").stat().st_mode) == 0o640


@pytest.mark.parametrize("fault", [ValueError("ours"), KeyboardInterrupt(), SystemExit(1)])
def test_atomic_output_leaves_nothing_behind(tmp_path: Path, fault: BaseException) -> None:
    path = tmp_path / "new" / "folder" / "out.bin"
    with pytest.raises(type(fault)), atomic_output(path):
        raise fault
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_atomic_output_turns_a_write_error_into_one_line(tmp_path: Path, number: int) -> None:
    path = tmp_path / "out.bin"
    path.write_bytes(b"old")
    reason = os.strerror(number).lower()
    fault = OSError(number, os.strerror(number))
    with pytest.raises(OutputError, match=f"out.bin: cannot write: {reason}"), atomic_output(path):
        raise fault
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out.bin"]


def test_atomic_output_keeps_our_own_errors(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="as it is"), atomic_output(tmp_path / "out.bin"):
        raise ModelFileError("as it is")


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_atomic_output_survives_a_fault_at_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "out.bin"
    path.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files.os, step, fail)
    with pytest.raises(OutputError), atomic_output(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out.bin"]


def test_atomic_output_refuses_what_is_no_regular_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("elsewhere")
    (tmp_path / "file").write_bytes(b"x")
    before = sorted(os.listdir(tmp_path))
    for name in ("folder", "pipe", "link", "file/below", "nul\0"):
        with pytest.raises(OutputError), atomic_output(tmp_path / name):
            pytest.fail("the body must not run")
    with pytest.raises(OutputError, match="device"), atomic_output("/dev/null"):
        pytest.fail("the body must not run")
    assert sorted(os.listdir(tmp_path)) == before
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_atomic_output_refuses_a_pipe_that_appeared_meanwhile(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="named pipe"), atomic_output(tmp_path / "out"):
        os.mkfifo(tmp_path / "out")
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("fault", [ValueError("ours"), KeyboardInterrupt()])
@pytest.mark.parametrize("before", [b"old", None])
def test_restored_on_failure_puts_back_what_was_there(
    tmp_path: Path, fault: BaseException, before: bytes | None
) -> None:
    path = tmp_path / "out.log"
    if before is not None:
        path.write_bytes(before)
        path.chmod(0o640)

    def replace_and_fail() -> None:
        with restored_on_failure(path):
            with atomic_output(path) as file:
                file.write(b"new")
            assert path.read_bytes() == b"new"
            raise fault

    with pytest.raises(type(fault)):
        replace_and_fail()
    assert os.listdir(tmp_path) == ([] if before is None else ["out.log"])
    if before is not None:
        assert path.read_bytes() == before
        assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_restored_on_failure_leaves_a_success_alone(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    path.write_bytes(b"old")
    with restored_on_failure(path):
        path.write_bytes(b"new")
    assert (os.listdir(tmp_path), path.read_bytes()) == (["out.log"], b"new")


def test_restored_on_failure_refuses_what_is_no_regular_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("folder", "nul\0"):
        with pytest.raises(OutputError), restored_on_failure(tmp_path / name):
            pytest.fail("the body must not run")
