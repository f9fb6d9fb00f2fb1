"""Temporary files of processes that were killed go; those of processes that work, and of anybody else, stay."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from samba_onnx.safety import leftovers
from samba_onnx.safety.files import atomic_output
from samba_onnx.safety.leftovers import remove_leftovers, temporary_folder, temporary_name

pytestmark = pytest.mark.skipif(
    not hasattr(os, "O_DIRECTORY"), reason="needs locks of files and folders"
)
LONG_AGO = time.time() - 3600


@pytest.fixture(autouse=True)
def first_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process, which looks through every folder once."""
    monkeypatch.setattr(leftovers, "_looked", set())


def old(path: Path, *, folder: bool = False) -> Path:
    """Something that has been there for an hour."""
    if folder:
        path.mkdir()
        (path / "inside").write_text("of nobody")
    else:
        path.write_text("of nobody")
    os.utime(path, (LONG_AGO, LONG_AGO), follow_symlinks=False)
    return path


WORK = """
import sys, time
from pathlib import Path
from samba_onnx.safety.files import atomic_output
from samba_onnx.safety.leftovers import temporary_folder
place = Path(sys.argv[1])
with atomic_output(place / "m.pef") as file, temporary_folder("pef", place, "m.pef"):
    file.write(b"half")
    file.flush()
    print("ready", flush=True)
    time.sleep(600)
"""


def temporaries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob(".*.tmp"))


def make_old(folder: Path) -> None:
    for path in folder.glob(".*.tmp"):
        os.utime(path, (LONG_AGO, LONG_AGO))


def test_what_a_killed_process_left_goes_with_the_next_result(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", WORK, tmp_path], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        make_old(tmp_path)
        assert len(temporaries(tmp_path)) == 2
        # While it works, nobody takes anything away.
        with atomic_output(tmp_path / "other.pef") as file:
            file.write(b"whole")
        assert len(temporaries(tmp_path)) == 2
        # Not when it is stopped, either.
        process.send_signal(signal.SIGSTOP)
        leftovers._looked.clear()
        remove_leftovers(tmp_path)
        assert len(temporaries(tmp_path)) == 2
    finally:
        process.kill()
        process.communicate()
    make_old(tmp_path)
    leftovers._looked.clear()
    with atomic_output(tmp_path / "other.pef") as file:
        file.write(b"again")
    assert sorted(os.listdir(tmp_path)) == ["other.pef"]


def test_what_is_not_ours_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = old(tmp_path / temporary_name("m.pef"))
    folder = old(tmp_path / temporary_name("m.pef"), folder=True)
    among = old(tmp_path / "samba-child-0123456789ab", folder=True)
    kept = {
        "other names": [".m.pef.tmp", "m.pef.0123456789ab.tmp", ".m.0123456789abc.tmp", ".0123456789ab.tmp", "samba-child-1",
                        ".m.pef.0123456789ab.old", ".m.pef.0123456789AB.tmp"],
        "a link": [".l.0123456789ab.tmp", ".d.0123456789ab.tmp"],
        "two names": [".h.0123456789ab.tmp"],
        "new": [".n.0123456789ab.tmp"],
        "a pipe": [".p.0123456789ab.tmp"],
        "somebody's": ["mine"],
    }  # fmt: skip
    for name in [*kept["other names"], *kept["somebody's"]]:
        old(tmp_path / name)
    (tmp_path / "dear").mkdir()
    (tmp_path / kept["a link"][0]).symlink_to("mine")
    (tmp_path / kept["a link"][1]).symlink_to("dear", target_is_directory=True)
    os.link(tmp_path / "mine", tmp_path / kept["two names"][0])
    (tmp_path / kept["new"][0]).write_text("just made")
    os.mkfifo(tmp_path / kept["a pipe"][0])
    for name in (*kept["a link"], *kept["a pipe"]):
        os.utime(tmp_path / name, (LONG_AGO, LONG_AGO), follow_symlinks=False)
    user = os.geteuid()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: user + 1)  # another user's
        remove_leftovers(tmp_path)
        assert ours.exists()
    leftovers._looked.clear()
    remove_leftovers(tmp_path)
    assert not ours.exists()
    assert not folder.exists()
    assert not among.exists()
    stay = {name for names in kept.values() for name in names} | {"dear"}
    assert set(os.listdir(tmp_path)) == stay


def test_what_is_exchanged_for_a_link_meanwhile_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the removal somebody puts a link in its place."""
    dear = tmp_path / "dear"
    dear.mkdir()
    (dear / "letter").write_text("mine")
    for folder in (False, True):
        place = old(tmp_path / temporary_name("m"), folder=folder)
        look = leftovers._may_go

        def exchange(status: os.stat_result, place: Path = place, look: object = look) -> bool:
            if not place.is_symlink():
                place.rename(tmp_path / f"{place.name}.moved")
                place.symlink_to(dear, target_is_directory=True)
            return look(status)  # type: ignore[operator, no-any-return]

        with monkeypatch.context() as patch:
            patch.setattr(leftovers, "_may_go", exchange)
            leftovers._looked.clear()
            remove_leftovers(tmp_path)
        assert (dear / "letter").read_text() == "mine"


def test_a_folder_is_gone_however_the_work_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", os.fspath(tmp_path))
    stale = old(tmp_path / "samba-types-0123456789ab", folder=True)
    with contextlib.suppress(KeyboardInterrupt), temporary_folder("child") as folder:
        assert folder.parent == tmp_path
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "file").write_text("")
        assert not stale.exists()
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def test_a_folder_is_looked_through_once(tmp_path: Path) -> None:
    remove_leftovers(tmp_path)
    late = old(tmp_path / temporary_name("m"))
    remove_leftovers(tmp_path)
    assert late.exists()


def test_every_temporary_thing_of_the_package_is_made_here() -> None:
    """Whoever calls tempfile makes what nobody takes away."""
    package = Path(leftovers.__file__).parents[1]
    users = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if any(word in path.read_text() for word in ("TemporaryDirectory(", "mkdtemp(", "mkstemp(", "NamedTemporaryFile("))
    }  # fmt: skip
    assert users == set()
