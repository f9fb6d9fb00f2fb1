"""Writing: the same bytes each time, aligned, readable as a zip, in whole or not at all."""

from __future__ import annotations

import dataclasses
import io
import os
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from samba_onnx.errors import InternalError, OutputError
from samba_onnx.pef import (
    WeightEntry,
    WeightsLayout,
    archive,
    lay_out_weights,
    load_pef,
    write_log,
    write_pef,
)
from samba_onnx.pef.envelope import read_envelope
from tests.pef.builders import (
    BIAS,
    FLOAT,
    WEIGHT,
    manifest,
    reference,
    stages,
    weights_layout,
    write_toy,
)


def test_the_same_input_gives_the_same_bytes(toy: Path, tmp_path: Path) -> None:
    write_toy(tmp_path / "again.pef")
    assert (tmp_path / "again.pef").read_bytes() == toy.read_bytes()


def test_any_zip_reader_can_read_it(toy: Path) -> None:
    with zipfile.ZipFile(toy) as file:
        assert file.testzip() is None
        assert file.namelist() == [
            "weights.safetensors",
            "reference.safetensors",
            "stages/000_FWD.onnx",
            "stages/001_cpu.onnx",
            "stages/002_FWD.onnx",
            "manifest.json",
        ]
        assert all(item.compress_type == zipfile.ZIP_STORED for item in file.infolist())
        assert {item.date_time for item in file.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_members_begin_at_pages(toy: Path) -> None:
    content = toy.read_bytes()
    with load_pef(toy) as pef:
        for member in pef.manifest.members:
            offset = pef.member_offset(member.name)
            assert offset % 4096 == 0
            assert content[offset : offset + member.bytes] == pef.member(member.name)


def test_progress_ends_at_the_whole(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    layout = weights_layout()
    written = write_pef(
        tmp_path / "p.pef",
        manifest(layout),
        weights=layout,
        stages=stages(layout),
        reference=reference(),
        progress=lambda done, total: told.append((done, total)),
    )
    total = sum(member.bytes for member in written.members)
    assert told[-1] == (total, total)
    assert told == sorted(told)


def _stopping(error: BaseException) -> WeightsLayout:
    """Weights whose source fails when a third of it has been given."""

    def chunks() -> Iterator[bytes]:
        yield WEIGHT.tobytes()[:400]
        raise error

    return lay_out_weights(
        [WeightEntry("w", FLOAT, (300,), chunks), WeightEntry("b", FLOAT, (), BIAS)]
    )


@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt(), OSError(28, "full")])
@pytest.mark.parametrize("existing", [True, False])
def test_a_failure_leaves_the_old_file(
    error: BaseException, existing: bool, tmp_path: Path
) -> None:
    path = tmp_path / "p.pef"
    if existing:
        path.write_bytes(b"old")
    layout = _stopping(error)
    expected = OutputError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected):
        write_pef(
            path, manifest(layout), weights=layout, stages=stages(layout), reference=reference()
        )
    assert [item.name for item in tmp_path.iterdir()] == (["p.pef"] if existing else [])
    assert not existing or path.read_bytes() == b"old"


_FULL_DISK = """
import resource, sys
from pathlib import Path
from tests.pef.builders import write_toy
from samba_onnx.errors import OutputError
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
try:
    write_toy(Path(sys.argv[1]))
except OutputError as error:
    print(error)
"""


def test_a_file_system_that_takes_no_more_leaves_the_old_file(toy: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.pef"
    path.write_bytes(b"old")
    limit = str(toy.stat().st_size - 1000)
    done = subprocess.run(
        [sys.executable, "-c", _FULL_DISK, str(path), limit],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert "cannot write: file too large" in done.stdout
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_every_write_may_fail(toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail at the n-th change of the file, for every n."""
    path = tmp_path / "p.pef"
    size = toy.stat().st_size
    for last in range(100):
        path.write_bytes(b"old")
        left = [last]

        def fail(file: object, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(5, "Input/output error")

        original = archive.local_header
        monkeypatch.setattr(archive, "local_header", lambda *a, o=original: (fail(0), o(*a))[1])
        monkeypatch.setattr(os, "fsync", lambda descriptor: fail(descriptor))
        try:
            write_toy(path)
        except OutputError:
            failed = True
        else:
            failed = False
        monkeypatch.undo()
        assert path.stat().st_size in ({3, size} if failed else {size})
        assert list(tmp_path.iterdir()) == [path]
        if not failed:
            break
    assert 10 < last < 99


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="folder"):
        write_toy(tmp_path)


def test_what_the_reader_would_refuse_is_not_written(tmp_path: Path) -> None:
    path, layout = tmp_path / "p.pef", weights_layout()
    toy = manifest(layout)

    def write(**changes: object) -> None:
        given = {
            "manifest": toy, "weights": layout, "stages": stages(layout), "reference": reference()
        } | changes  # fmt: skip
        write_pef(path, **given)  # type: ignore[arg-type]

    with pytest.raises(InternalError, match="missing or unexpected members"):
        write(stages={})
    with pytest.raises(InternalError, match="missing or unexpected members"):
        write(reference=None)
    with pytest.raises(InternalError, match="contradicts itself"):
        write(manifest=dataclasses.replace(toy, regions=()))
    with pytest.raises(InternalError, match="not those that were laid out"):
        write(weights=lay_out_weights([WeightEntry("w", FLOAT, (300,), WEIGHT)]))
    assert not path.exists()


def test_the_log_lies_beside_the_pef(toy: Path, tmp_path: Path) -> None:
    with load_pef(toy) as pef:
        path = write_log(tmp_path / "toy.pef", pef.manifest)
    lines = path.read_text().splitlines()
    assert path.name == "toy.pef.log"
    assert "  section 0  type FWD  name mul  1 nodes" in lines
    assert "    node soft: not in the table" in lines
    assert "    call 1  CPU  stage 1  host" in lines
    assert "  transfers per run   4, 19200 bytes; 2 boundaries" in lines


def test_beyond_four_gigabytes_the_archive_is_zip64(tmp_path: Path) -> None:
    """A sparse file stands for large weights: only the headers are written."""
    large, small = 5 << 30, b"behind five gigabytes"
    path = tmp_path / "large.zip"
    slots = archive.place([("weights.safetensors", large), ("manifest.json", len(small))])
    crcs = [0, zlib.crc32(small)]
    directory = archive.central_directory(slots, crcs)
    with path.open("wb") as file:
        for slot, crc in zip(slots, crcs, strict=True):
            file.seek(slot.header_offset)
            file.write(archive.local_header(slot, crc))
        file.seek(slots[1].offset)
        seal = archive.seal_of(small, directory)
        file.write(small + directory + archive.end_of_archive(slots, directory, seal))
    with zipfile.ZipFile(path) as zipped:
        assert zipped.infolist()[0].file_size == large
        assert zipped.read("manifest.json") == small
    with path.open("rb") as opened:
        envelope = read_envelope(opened.fileno(), path.stat().st_size)
    assert envelope.slots == slots
    assert envelope.manifest == small
    assert slots[1].offset > large


def test_many_members_make_a_zip64_end() -> None:
    sizes = [(f"stages/{n}", 0) for n in range(70_000)] + [("manifest.json", 0)]
    slots = archive.place(sizes)
    directory = archive.central_directory(slots, [0] * len(slots))
    end = archive.end_of_archive(slots, directory, b"seal")
    assert end.startswith(b"PK\x06\x06")
    sparse = io.BytesIO()  # the zip library looks at the end and the directory only
    sparse.write(
        directory
        + end.replace(slots[-1].end.to_bytes(8, "little"), bytes(8), 1).replace(
            (slots[-1].end + len(directory)).to_bytes(8, "little"),
            len(directory).to_bytes(8, "little"),
            1,
        )
    )
    with zipfile.ZipFile(sparse) as file:
        assert len(file.namelist()) == 70_001


@pytest.mark.parametrize("length", range(1, 200, 7))
def test_alignment_holds_for_names_of_any_length(length: int) -> None:
    for slot in archive.place([("n" * length, size) for size in (0, 1, 4095, 4096, 2**32)]):
        header = archive.local_header(slot, 0)
        assert slot.offset % 4096 == 0
        assert slot.header_offset + len(header) == slot.offset


def test_arrays_of_weights_come_back(toy: Path) -> None:
    with load_pef(toy) as pef:
        np.testing.assert_array_equal(pef.weight("w"), WEIGHT)
        np.testing.assert_array_equal(pef.weight("b"), BIAS)
