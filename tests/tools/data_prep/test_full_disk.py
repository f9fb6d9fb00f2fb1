"""A disk without room, wherever it shows: one line, exit status 2, and the same command goes on when there is room."""

from __future__ import annotations

import builtins
import errno
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from samba_onnx.data_prep import Shuffle, data_prep
from samba_onnx.errors import OutputError
from samba_onnx.tools.data_prep.tokenizer_record import save_tokenizer
from tests.tools.data_prep.building import contents, pairs, run, write
from tests.tools.data_prep.tokenizers_of_tests import gpt2_like

WRITES = os.O_WRONLY | os.O_RDWR


def _writes(_: Any, mode: str = "r", *__: Any) -> bool:
    return bool(set(mode) & set("wax+"))


class Disk:
    """Refuses one of the calls that need room below a folder: the one with a number, or none."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.calls, self.refused = os.fspath(folder), 0, 0
        for owner, name, needs in (
            (os, "mkdir", lambda *_: True),
            (os, "rename", lambda *_: True),
            (os, "replace", lambda *_: True),
            (os, "open", lambda _, flags=0, *__: bool(flags & WRITES)),
            (builtins, "open", _writes),
            (io, "open", _writes),  # pathlib's
        ):
            monkeypatch.setattr(owner, name, self._refusing(getattr(owner, name), needs))

    def _refusing(self, call: Callable[..., Any], needs: Callable[..., bool]) -> Callable[..., Any]:
        def refusing(path: Any, *others: Any, **keywords: Any) -> Any:
            positional = (keywords["mode"],) if "mode" in keywords and not others else others
            named = isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self.folder)
            if named and needs(path, *positional):
                self.calls += 1
                if self.calls == self.refused:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path))
            return call(path, *others, **keywords)

        return refusing


@pytest.mark.parametrize("shuffle", [Shuffle.NO, Shuffle.LARGE_FILE])
def test_every_call_that_needs_room(
    shuffle: Shuffle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "corpus.jsonl", pairs(12))
    run(source, tmp_path / "whole", train=2, dev=0, shuffle=shuffle)
    whole = contents(tmp_path / "whole")
    ended: list[str] = []
    for number in range(1, 100):
        out = tmp_path / f"out{number}"
        with monkeypatch.context() as patch:
            disk = Disk(out, patch)
            disk.refused = number
            try:
                run(source, out, train=2, dev=0, shuffle=shuffle)
            except OutputError as error:
                ended.append(str(error))
        assert not list(out.rglob(".*.tmp")), number
        if (out / "metadata.yaml").exists() and not list(out.glob(".*")):
            pass  # a folder that was there already
        elif out.exists():  # it is, but for the call that makes it
            run(source, out, train=2, dev=0, shuffle=shuffle)
        if out.exists():
            assert contents(out) == whole, number
        if disk.calls < number:
            break
    # The folder, log, state, tokenizer, splits, files, and what stands beside them.
    # A folder that is there already may be refused as often as it likes.
    assert number - 5 < len(ended) < number
    assert len(ended) > 15
    for message in ended:
        assert re.fullmatch(
            rf"{re.escape(str(tmp_path))}/out.*: .*no space left.*", message, re.IGNORECASE
        )


def bare_exception(*_: object) -> None:
    """What the tokenizers library raises, which is written in Rust."""
    raise Exception("No space left on device (os error 28)")  # noqa: TRY002


class FullTokenizer:
    def __init__(self, error: Callable[..., None]) -> None:
        self._error = error

    def save_pretrained(self, folder: Path) -> None:
        (folder / "tokenizer_config.json").write_text("{")
        self._error()


def system_error(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("error", [bare_exception, system_error])
def test_a_tokenizer_that_cannot_be_saved_leaves_none(
    error: Callable[..., None], tmp_path: Path
) -> None:
    with pytest.raises(OutputError, match=r"tokenizer: cannot write: no space left on the disk$"):
        save_tokenizer(FullTokenizer(error), None, tmp_path / "tokenizer")
    assert not list(tmp_path.iterdir())
    save_tokenizer(gpt2_like(), None, tmp_path / "tokenizer")
    before = contents(tmp_path / "tokenizer")
    with pytest.raises(OutputError):
        save_tokenizer(FullTokenizer(error), None, tmp_path / "tokenizer")
    assert contents(tmp_path / "tokenizer") == before


def test_other_errors_of_a_tokenizer_stay_what_they_are(tmp_path: Path) -> None:
    def broken() -> None:
        raise ValueError("of another kind")

    with pytest.raises(ValueError, match="of another kind"):
        save_tokenizer(FullTokenizer(broken), None, tmp_path / "tokenizer")
    assert not list(tmp_path.iterdir())


def test_a_single_file_without_room_for_its_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "corpus.jsonl", pairs(12))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", os.fspath(temporary))
    tokenizer = gpt2_like()
    monkeypatch.setattr(tokenizer, "save_pretrained", bare_exception)
    with pytest.raises(OutputError, match="no space left"):
        data_prep(source, tmp_path / "one.hdf5", tokenizer)
    assert not list(temporary.iterdir())
    assert not (tmp_path / "one.hdf5").exists()


FULL = """
import contextlib, io, os, subprocess, sys
from samba_onnx.cli.application import run_command
source, tokenizer, disk, *sizes = sys.argv[1:]
os.environ["TMPDIR"] = disk
for size in sizes:
    for words in (["pipeline", f"--output_path={disk}/out", "--num_training_splits=3", "--num_workers=1"],
                  ["data_prep", f"--output_path={disk}/one.hdf5"]):
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", disk], check=True)
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            status = run_command(["data-prep", *words, f"--input_path={source}", f"--pretrained_tokenizer={tokenizer}",
                                  "--max_seq_length=64", "--quiet"])
        left = [name for _, folders, files in os.walk(disk) for name in (*folders, *files) if name.endswith(".tmp")]
        subprocess.run(["umount", disk], check=True)
        print(status, len(errors.getvalue().splitlines()), "Traceback" in errors.getvalue(), left, sep="|", flush=True)
"""


def test_disks_that_are_really_full(tmp_path: Path) -> None:
    """HDF5 died of what it could not write: it tries again when a file is closed, and frees the same twice."""
    alone = ["unshare", "--map-root-user", "--mount"]
    disk = tmp_path / "disk"
    disk.mkdir()
    trial = f"mount -t tmpfs -o size=4k tmpfs {disk}"
    if not shutil.which("unshare") or subprocess.run([*alone, "sh", "-c", trial]).returncode:
        pytest.skip("no file system can be made here")
    source = write(tmp_path / "corpus.jsonl", pairs(400))
    gpt2_like().save_pretrained(tmp_path / "tokenizer")
    sizes = range(8, 128, 8)
    command = [*alone, sys.executable, "-B", "-c", FULL, source, tmp_path / "tokenizer", disk]
    answer = subprocess.run([*command, *map(str, sizes)], capture_output=True, text=True)
    rows = answer.stdout.splitlines()
    assert (answer.returncode, len(rows)) == (0, 2 * len(sizes)), answer.stderr
    assert set(rows) == {"2|1|False|[]", "0|0|False|[]"}
    assert rows.count("2|1|False|[]") > 10


def test_the_disk_of_these_tests_counts_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        disk = Disk(tmp_path, patch)
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "b").write_text("")
        assert disk.calls == 2
        disk.refused = 3
        with pytest.raises(OSError, match="No space left"):
            os.replace(tmp_path / "a" / "b", tmp_path / "c")
