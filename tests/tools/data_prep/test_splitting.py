"""Lines in turn or shuffled: all are there once, the same seed gives the same files."""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from samba_onnx.errors import DataError, UsageError
from samba_onnx.tools.data_prep import shuffling, splitting
from samba_onnx.tools.data_prep.preparation_options import SplitOptions
from samba_onnx.tools.data_prep.reporting import Silence
from samba_onnx.tools.data_prep.shuffling import shuffle_in_memory, shuffle_large_file
from samba_onnx.tools.data_prep.splitting import (
    SplitCounts,
    require_lines,
    split_counts,
    split_in_turn,
)

GIGABYTE = 1 << 30
Shuffler = Callable[[Sequence[Path], Sequence[Path], int], None]


def in_memory(files: Sequence[Path], targets: Sequence[Path], seed: int) -> None:
    shuffle_in_memory(files, targets, seed, Silence())


def large_file(files: Sequence[Path], targets: Sequence[Path], seed: int) -> None:
    folder = targets[0].parent / "buckets"
    folder.mkdir(exist_ok=True)
    shuffle_large_file(files, targets, folder, seed, Silence())
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ("options", "size", "expected"),
    [
        (SplitOptions(), GIGABYTE, (32, 0, 0)),
        (SplitOptions(), 10 * GIGABYTE, (128, 0, 0)),
        (SplitOptions(), 100 * GIGABYTE, (256, 0, 0)),
        (SplitOptions(dev_ratio=0.1), GIGABYTE, (32, 3, 0)),
        (SplitOptions(dev_ratio=0.1, test_ratio=0.1), GIGABYTE, (32, 4, 4)),
        (SplitOptions(num_training_splits=7, test_ratio=0.5), GIGABYTE, (7, 0, 7)),
        (SplitOptions(5, 2, 1), GIGABYTE, (5, 2, 1)),
        (SplitOptions(5), GIGABYTE, (5, 0, 0)),
        (SplitOptions(1, 0, 0), GIGABYTE, (1, 0, 0)),
    ],
)
def test_numbers_of_files(options: SplitOptions, size: int, expected: tuple[int, int, int]) -> None:
    assert split_counts(options, size) == SplitCounts(*expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (SplitOptions(num_dev_splits=1), "give all three"),
        (SplitOptions(4, num_test_splits=1), "give all three"),
        (SplitOptions(4, -1, 1), "^4 training, -1 dev and 1 test files: expected one to train on$"),
        (SplitOptions(4, 1, -1), "^4 training, 1 dev and -1 test files: expected one to train on$"),
        (
            SplitOptions(4, 1, 1, dev_ratio=0.1),
            "^numbers of splits and ratios were both given: give one of them$",
        ),
        (SplitOptions(dev_ratio=0.6, test_ratio=0.4), "something to train on"),
        (SplitOptions(dev_ratio=-0.1), "from 0 to 1"),
        (SplitOptions(test_ratio=math.nan), "from 0 to 1"),
        (SplitOptions(dev_ratio=math.nan, test_ratio=0.1), "from 0 to 1"),
        (SplitOptions(0, 1, 1), "one to train on"),
    ],
)
def test_numbers_that_contradict_themselves(options: SplitOptions, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        split_counts(options, 1000)


def test_files_come_in_the_order_train_test_dev() -> None:
    names = [name for _, name in SplitCounts(2, 1, 1).names()]
    assert names == ["train_1_of_2", "train_2_of_2", "test_1_of_1", "dev_1_of_1"]


def test_lines_go_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting, "BLOCK_BYTES", 7)
    lines = [f"line {number}\r\n" for number in range(11)] + ["a\rb\n", "the end"]
    (tmp_path / "a").write_bytes("".join(lines[:6]).encode().removesuffix(b"\n"))
    (tmp_path / "b").write_bytes("".join(lines[6:]).encode())
    targets = [tmp_path / f"t{number}" for number in range(3)]
    split_in_turn([tmp_path / "a", tmp_path / "b"], targets, Silence())
    # Lines end as those of Python's text files do, and with a line feed.
    lines = "".join(lines).splitlines(keepends=True)
    for number, target in enumerate(targets):
        shared = "".join(lines[number::3]).replace("\r\n", "\n").replace("\r", "\n")
        assert target.read_bytes().decode() == shared


@pytest.mark.parametrize("shuffle", [in_memory, large_file])
def test_shuffling_keeps_every_line(
    shuffle: Shuffler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shuffling, "BUCKET_BYTES", 64)
    monkeypatch.setattr(shuffling, "BLOCK_BYTES", 50)
    monkeypatch.setattr(shuffling, "LINES_AT_ONCE", 7)
    monkeypatch.setattr(shuffling, "MOST_BUCKETS", 4)  # buckets are thrown again, and again
    lines = [f"line {number:03}\n" for number in range(200)] + ["x" * 300 + "\r\n", "the end"]
    (tmp_path / "a").write_bytes("".join(lines).encode())
    orders = {}
    for seed in (1, 2, 1):
        targets = [tmp_path / f"t{number}" for number in range(5)]
        shuffle([tmp_path / "a"], targets, seed)
        parts = [target.read_bytes().decode().split("\n") for target in targets]
        assert all(part.pop() == "" for part in parts)
        assert [len(part) for part in parts] == [41, 41, 40, 40, 40]
        order = [line for part in parts for line in part]
        assert sorted(order) == sorted(line.rstrip("\r\n") for line in lines)
        assert orders.setdefault(seed, order) == order
    assert orders[1] != orders[2]


@pytest.mark.parametrize("shuffle", [in_memory, large_file])
def test_every_order_is_equally_likely(
    shuffle: Shuffler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shuffling, "BUCKET_BYTES", 4)
    (tmp_path / "a").write_text("1\n2\n3\n")
    target = tmp_path / "t"
    counts = collections.Counter[str]()
    for seed in range(600):
        shuffle([tmp_path / "a"], [target], seed)
        counts[target.read_text()] += 1
    assert len(counts) == 6
    # Each of the six orders about 100 times; 50 is more than five standard deviations (9.1) away.
    assert min(counts.values()) > 50


def test_what_does_not_fit_into_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psutil

    (tmp_path / "a").write_text("1\n2\n3\n")
    memory = psutil.virtual_memory()._replace(available=5)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    with pytest.raises(UsageError, match=r"6 bytes of text do not fit .* --shuffle=large_file"):
        in_memory([tmp_path / "a"], [tmp_path / "t"], 0)


def test_shuffling_in_memory_holds_the_text_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes on top are three numbers of 8 bytes a line, and blocks of a fixed size."""
    import tracemalloc

    line = b"x" * 9_999 + b"\n"
    count = 1000
    size = count * len(line)
    for room in (shuffling, splitting):
        monkeypatch.setattr(room, "BLOCK_BYTES", 1 << 18)
    with open(tmp_path / "a", "wb") as file:
        for _ in range(count):
            file.write(line)
    tracemalloc.start()
    try:
        in_memory([tmp_path / "a"], [tmp_path / "t"], 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The text grows by an eighth at a time; the output is buffered by 1 MiB.
    assert peak < size * 9 / 8 + (1 << 20) + 4 * (1 << 18) + 200 * count
    assert (tmp_path / "t").stat().st_size == size


class Heard(Silence):
    """A reporter that adds up what it hears."""

    def __init__(self) -> None:
        self.size = self.articles = 0

    def advance(self, size: int, articles: int) -> None:
        self.size += size
        self.articles += articles


@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize("block", [4, 1 << 20])
@pytest.mark.parametrize("way", ["in turn", "in memory", "large file"])
def test_files_have_nearly_equal_numbers_of_lines(
    way: str, block: int, end: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whatever blocks they are read, whether or not the last lines of files are complete."""
    for room in (shuffling, splitting):
        monkeypatch.setattr(room, "BLOCK_BYTES", block)
    files = [tmp_path / "a", tmp_path / "b"]
    texts = [b"\n1\n2\n3", b"4\n5\n6\n7\n8\n9" + end]
    for file, text in zip(files, texts, strict=True):
        file.write_bytes(text)
    targets = [tmp_path / f"t{number}" for number in range(4)]
    heard = Heard()
    if way == "in turn":
        split_in_turn(files, targets, heard)
    elif way == "in memory":
        shuffle_in_memory(files, targets, 0, heard)
    else:
        (tmp_path / "buckets").mkdir()
        shuffle_large_file(files, targets, tmp_path / "buckets", 0, heard)
    parts = [target.read_bytes().decode().splitlines() for target in targets]
    assert [*map(len, parts)] == [3, 3, 2, 2]
    assert sorted(itertools.chain(*parts)) == ["", *"123456789"]
    assert heard.articles == 10
    # Shuffled, every line has its line feed.
    assert heard.size == (18 + len(end) if way == "in turn" else 19)


def test_more_files_than_lines_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("1\n2\n3")
    require_lines([tmp_path / "a"], 3)
    (tmp_path / "b").write_text("4\n5\n")
    for block in (1 << 20, 2):
        monkeypatch.setattr(splitting, "BLOCK_BYTES", block)
        require_lines([tmp_path / "a", tmp_path / "b"], 5)
        with pytest.raises(DataError, match="3 lines cannot be split into 4 files") as caught:
            require_lines([tmp_path / "a"], 4)
        assert caught.value.path == str(tmp_path / "a")
        with pytest.raises(DataError, match="5 lines cannot be split into 6 files"):
            require_lines([tmp_path / "a", tmp_path / "b"], 6)
