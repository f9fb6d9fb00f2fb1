"""Numbers for people."""

from __future__ import annotations

import pytest

from samba_onnx.report import units


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (9_949, "9.9 kB"),
        (9_960, "10 kB"),
        (999_499, "999 kB"),
        (999_501, "1.0 MB"),
        (1_500_000_000_000, "1.5 TB"),
        (10**24, "1000000 EB"),
    ],
)
def test_byte_text(count: int, text: str) -> None:
    assert units.byte_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (1e-9, "1.0 ns"),
        (35.2e-6, "35 µs"),
        (0.9996e-3, "1.0 ms"),
        (1.0, "1.0 s"),
        (4000.0, "4000 s"),
    ],
)
def test_second_text(seconds: float, text: str) -> None:
    assert units.second_text(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (35.2149e-6, "35.21 µs"),
        (999.94e-3, "999.9 ms"),
        (999.96e-3, "1.000 s"),
        (-2.5e-3, "-2.500 ms"),
        (12345.6, "12346 s"),
    ],
)
def test_times_that_differ_by_little(seconds: float, text: str) -> None:
    assert units.second_text(seconds, closely=True) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 0, "0 %"),
        (0, 10, "0 %"),
        (1, 10**9, "0.1 %"),
        (412, 415, "99.3 %"),
        (10**9 - 1, 10**9, "99.9 %"),
        (10, 10, "100 %"),
    ],
)
def test_percent_text(part: int, whole: int, text: str) -> None:
    assert units.percent_text(part, whole) == text


def test_count_text() -> None:
    assert units.count_text(1, "node") == "1 node"
    assert units.count_text(12_345, "node") == "12,345 nodes"


def test_shape_text() -> None:
    assert units.shape_text(("batch", 3, None)) == "[batch, 3, ?]"
    assert units.shape_text(()) == "[]"
    assert units.shape_text(None) == "[...]"


def test_printable_escapes_what_a_terminal_obeys() -> None:
    assert units.printable("héllo") == "héllo"
    assert units.printable("a\x1b[2J\udc80\u202e") == "a\\x1b[2J\\udc80\\u202e"
