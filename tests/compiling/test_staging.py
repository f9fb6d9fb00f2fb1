"""A PEF appears with its log, or nothing changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from samba_onnx.compiling.staging import provisional
from samba_onnx.errors import ModelFileError, OutputError


def write(draft: Path) -> None:
    draft.write_text("pef")
    Path(f"{draft}.log").write_text("log")


def fail(place: Path, error: BaseException) -> None:
    """Raise an error after both files are written."""
    with provisional(place) as draft:
        write(draft)
        raise error


def test_both_files_appear_together(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "deeper" / "m.pef"
    with provisional(path) as draft:
        write(draft)
        assert not path.parent.exists()
    assert (path.read_text(), Path(f"{path}.log").read_text()) == ("pef", "log")
    assert [p.name for p in tmp_path.iterdir()] == ["deep"]


@pytest.mark.parametrize("error", [ModelFileError("gone"), KeyboardInterrupt()])
def test_after_a_failure_all_is_as_it_was(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "m.pef"
    path.write_text("the last one")
    for place in (path, tmp_path / "deep" / "m.pef"):
        with pytest.raises(type(error)):
            fail(place, error)
    assert [p.name for p in tmp_path.iterdir()] == ["m.pef"]
    assert path.read_text() == "the last one"


def test_the_place_must_be_one_for_a_file(tmp_path: Path) -> None:
    (tmp_path / "m.pef").mkdir()
    with pytest.raises(OutputError, match=r"m\.pef: is not a regular file") as caught:
        fail(tmp_path / "m.pef", AssertionError())
    assert caught.value.path == str(tmp_path / "m.pef")
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"m\.pef: cannot write: "):
        fail(tmp_path / "file" / "m.pef", AssertionError())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "m.pef"]


def test_the_mode_of_the_file_before_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "m.pef"
    path.write_text("")
    path.chmod(0o600)
    with provisional(path) as draft:
        write(draft)
    assert path.read_text() == "pef"
    assert path.stat().st_mode & 0o777 == 0o600
