"""The cache exports each model once, whatever happens in between."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import onnx
import pytest

from models import cache
from models.cache import cached_onnx
from samba_onnx.errors import ExecutionError, UsageError


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Replaces the child process by one that writes the file's name into the file."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command[3:])
        time.sleep(0.05)
        Path(command[4]).write_text(command[3])
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(cache.subprocess, "run", run)
    return commands


def test_the_second_call_finds_the_file(tmp_path: Path, exports: list[list[str]]) -> None:
    first = cached_onnx("lenet", folder=tmp_path)
    assert first.name == "lenet.onnx"
    assert first.read_text() == "lenet"
    assert cached_onnx("lenet", folder=tmp_path) == first
    assert len(exports) == 1


def test_exporting_in_this_process_gives_the_same_entry(
    tmp_path: Path, exports: list[list[str]]
) -> None:
    here = cached_onnx("logistic_regression", here=True, folder=tmp_path)
    assert onnx.load(here).graph.output[0].name == "probabilities"
    assert cached_onnx("logistic_regression", folder=tmp_path) == here
    assert not exports


def test_each_form_has_its_own_entry(tmp_path: Path, exports: list[list[str]]) -> None:
    paths = {
        cached_onnx("lenet", folder=tmp_path),
        cached_onnx("lenet", "full", folder=tmp_path),
        cached_onnx("lenet", dynamic=True, folder=tmp_path),
        cached_onnx("lenet", raw=True, folder=tmp_path),
    }
    assert len(paths) == 4
    assert [command[2:] for command in exports] == [
        ["--variant", "tiny"],
        ["--variant", "full"],
        ["--variant", "tiny", "--dynamic"],
        ["--variant", "tiny", "--raw"],
    ]


def test_many_at_once_export_once(tmp_path: Path, exports: list[list[str]]) -> None:
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(cached_onnx("lenet", folder=tmp_path)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(exports) == 1
    assert len(found) == 8
    assert len(set(found)) == 1


def test_what_a_killed_export_left_is_thrown_away(tmp_path: Path, exports: list[list[str]]) -> None:
    entry = cached_onnx("lenet", folder=tmp_path).parent
    entry.rename(entry.with_name(f"partial-{entry.name}"))
    (entry.with_name(f"partial-{entry.name}") / "half").touch()
    path = cached_onnx("lenet", folder=tmp_path)
    assert [one.name for one in path.parent.iterdir()] == ["lenet.onnx"]
    assert not list(tmp_path.glob("partial-*"))


def test_a_failed_export_leaves_no_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "Traceback\nValueError: no such thing\n")

    monkeypatch.setattr(cache.subprocess, "run", run)
    with pytest.raises(
        ExecutionError, match=r"lenet \(tiny\) cannot be exported: ValueError: no such"
    ):
        cached_onnx("lenet", folder=tmp_path)
    assert [one.suffix for one in tmp_path.iterdir()] == [".lock"]


def test_a_changed_source_or_library_is_another_entry(
    tmp_path: Path, exports: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cached_onnx("lenet", folder=tmp_path)
    monkeypatch.setattr(cache.importlib.metadata, "version", lambda _: "99")
    second = cached_onnx("lenet", folder=tmp_path)
    monkeypatch.setattr(cache, "_SHARED", ("__main__.py",))
    third = cached_onnx("lenet", folder=tmp_path)
    assert len({first, second, third}) == 3


def test_only_entries_unused_for_a_week_are_removed(
    tmp_path: Path, exports: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = cached_onnx("lenet", folder=tmp_path).parent
    other = cached_onnx("lenet", dynamic=True, folder=tmp_path).parent
    monkeypatch.setattr(cache, "_SHARED", ("__main__.py",))
    recent = cached_onnx("lenet", folder=tmp_path).parent
    week_ago = time.time() - 8 * 24 * 3600
    os.utime(old, (week_ago, week_ago))
    os.utime(other, (week_ago, week_ago))
    monkeypatch.setattr(cache, "_SHARED", ())
    newest = cached_onnx("lenet", folder=tmp_path).parent
    assert not old.exists()
    assert other.exists(), "the dynamic form is another entry"
    assert recent.exists()
    assert newest.exists()


def test_unknown_variants_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no variant 'huge'"):
        cached_onnx("lenet", "huge", folder=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_a_hit_imports_no_torch() -> None:
    cached_onnx("lenet")
    code = (
        "import sys; from models.cache import cached_onnx; cached_onnx('lenet'); "
        "print({'torch', 'onnx', 'onnxruntime', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cache._ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
