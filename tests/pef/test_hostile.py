"""Every damaged or forged PEF is refused with one line, in bounded time."""

from __future__ import annotations

import re
import struct
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from samba_onnx.errors import PefError, PefFormatError, PefVersionError, SambaError
from samba_onnx.pef import archive, load_pef
from samba_onnx.pef.layout import check_sizes
from tests.pef.hostile_pefs import HostilePef, hostile_pefs
from tests.reasons import plain, reasons, wrong_reason

SECONDS = 5.0
"""Far above what any takes; a file that hangs the reader would take for ever."""

REASONS = Path(__file__).with_name("hostile_reasons.json")
_NO_PEF = (
    "it does not begin as a PEF does",
    "it is no PEF but another zip file, or its end is missing",
)
_ENDS = (r"the archive's directory is (damaged|cut off)", "the end of the archive is .*")
DAMAGES = {
    "cut off": ("the file is empty", *_NO_PEF),
    "bytes added or removed": (
        *_NO_PEF,
        *_ENDS,
        "# bytes follow the end of the PEF",
        "the directory ends at byte # of a file of # bytes",
    ),
    "a byte changed": (
        *_NO_PEF,
        *_ENDS,
        r"member [\w./#]+ was changed: its SHA-# differs",
        "the seal does not fit: the manifest or the directory was changed",
        "a safetensors header differs from the tensors that are declared",
        r"the header of member [\w./#]+ is damaged",
        "the padding at byte # of tensors is not zero",
    ),
}
"""What may be said of files that are damaged, by the kind of the damage."""


def _problem(hostile: HostilePef) -> str | None:
    """Return what is wrong with how a file was refused."""
    start = time.monotonic()
    try:
        load_pef(hostile.path, verify=True).close()
    except SambaError as error:
        message = str(error)
        if "\n" in message or not message or len(message) > 1200:
            return f"the message is not one line: {message[:200]!r}"
        if not isinstance(error, PefError):
            return f"refused as {type(error).__name__}"
        reason = _wrong_reason(hostile, error)
        if reason:
            return reason
    else:
        return "accepted"
    seconds = time.monotonic() - start
    return f"took {seconds:.1f} s" if seconds > SECONDS else None


def _wrong_reason(hostile: HostilePef, error: PefError) -> str | None:
    """Return how the reason differs from that of the file or, for one that is damaged, of its kind."""
    if hostile.why not in DAMAGES:
        return wrong_reason(REASONS, f"{hostile.why}: {hostile.name}", error, hostile.path)
    message = plain(str(error), hostile.path)
    if re.fullmatch(rf"FILE: ({'|'.join(DAMAGES[hostile.why])})", message):
        return None
    return f"another reason than that of its kind: {message}"


def test_every_hostile_pef_is_refused(toy: Path, tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    problems: list[str] = []
    for hostile in hostile_pefs(tmp_path, toy):
        counts[hostile.why] += 1
        problem = _problem(hostile)
        if problem:
            problems.append(f"{hostile.why}: {hostile.name}: {problem}")
    assert not problems, "\n".join(problems)
    assert counts.total() >= 150
    assert min(counts.values()) >= 10
    assert counts.total() - sum(counts[why] for why in DAMAGES) == len(reasons(REASONS))


def test_the_untouched_pef_is_accepted(toy: Path) -> None:
    load_pef(toy, verify=True).close()


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_single_changed_byte_is_refused(toy: Path, tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(toy.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    damaged = tmp_path / "damaged.pef"
    damaged.write_bytes(content)
    with pytest.raises(PefError):
        load_pef(damaged, verify=True)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(length=st.integers(0, 10**9))
def test_any_shorter_file_is_refused(toy: Path, tmp_path: Path, length: int) -> None:
    content = toy.read_bytes()
    damaged = tmp_path / "damaged.pef"
    damaged.write_bytes(content[: length % len(content)])
    with pytest.raises(PefError):
        load_pef(damaged, verify=True)


def test_a_newer_format_is_refused_by_name(toy: Path, tmp_path: Path) -> None:
    named = {
        hostile.name: str(_refusal(hostile.path))
        for hostile in hostile_pefs(tmp_path, toy)
        if hostile.name in {"sealed as version 2", "format version 2 in a sealed 1"}
    }
    assert len(named) == 2
    assert all("version 2 is newer than version 1" in message for message in named.values())


def _refusal(path: Path) -> PefVersionError:
    with pytest.raises(PefVersionError) as caught:
        load_pef(path)
    return caught.value


@pytest.mark.parametrize("what", ["directory", "manifest"])
def test_holes_cost_neither_time_nor_memory(what: str, tmp_path: Path) -> None:
    """A file of a terabyte that takes no room on the disk, and claims to be full."""
    tera = 1 << 40
    slots = archive.place([("manifest.json", tera if what == "manifest" else 0)])
    directory = archive.central_directory(slots, [0])
    end = archive.end_of_archive(slots, directory, archive.seal_of(b"", b""))
    if what == "directory":  # the same end, as if the directory were the whole file
        record = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, 2**32 - 1, 2**32 - 1, len(end) - 22)
        wide = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, tera, 4)
        wide += struct.pack("<4sIQI", b"PK\6\7", 0, tera + 4, 1)
        end = wide + record + end[22:]
    path = tmp_path / "holes.pef"
    with path.open("wb") as file:
        file.write(archive.local_header(slots[0], 0))
        file.seek(slots[0].end if what == "manifest" else tera)
        file.write(directory + end)
    with pytest.raises(PefFormatError, match=rf"the (archive's )?{what} has \d+ bytes: too many"):
        load_pef(path, verify=True)


def test_stages_beyond_what_protobuf_can_hold_are_refused() -> None:
    check_sizes([("weights.safetensors", 1 << 50), ("reference.safetensors", 2 << 30)])
    with pytest.raises(PefFormatError, match="the stages take"):
        check_sizes([("stages/000_FWD.onnx", 1 << 30), ("stages/001_FWD.onnx", (1 << 30) + 1)])
    with pytest.raises(PefFormatError, match="the reference sample"):
        check_sizes([("reference.safetensors", (2 << 30) + 1)])
