from __future__ import annotations

import io
import pickle  # noqa: TID251  what is looked through has to be written first
from collections import OrderedDict
from typing import Any

import pytest

from samba_onnx.safety import pickles
from samba_onnx.safety.pickles import Called, Named, described


class Thing:
    """Of a class that nobody imports."""


PLAIN: list[Any] = [
    None, True, 7, -(1 << 70), 2.5, "text", b"bytes", [], (), {}, [1, [2, (3, 4, 5, 6)]], (1,), (1, 2), {"a": {"b": [1]}},
    ["x", "x", {"k": "x"}],
]  # fmt: skip


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_values_are_what_unpickling_makes(value: Any, protocol: int) -> None:
    if isinstance(value, bytes) and protocol < 3:
        return  # a call of a function there, which is not made
    file = io.BytesIO(pickle.dumps(value, protocol) + b"rest")
    assert described(file) == value
    assert file.read() == b"rest"


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_objects_are_described_and_not_made(protocol: int) -> None:
    thing = Thing()
    thing.__dict__["state"] = 3
    found = described(io.BytesIO(pickle.dumps({"t": thing, "o": OrderedDict(a=1), 3: 4}, protocol)))
    assert found.keys() == {"t", "o"}
    assert found["t"].function == Named(f"{__name__}.Thing")
    assert isinstance(found["o"], Called)
    assert found["o"].items == {"a": 1}


@pytest.mark.parametrize(
    "content",
    [
        b"", b".", b"hello", b"\x80\x02", b"\x80\x02}K\x01s.", b"\x80\x02K\x01K\x02K\x03s.", b"\x80\x02h\x05.",
        b"\x80\x02t.", b"\x80\x02(K\x01(u.", b"\x80\x02}(K\x01u.", b"\x80\x02N\x52.", b"\x80\x02X\xff\xff\xff\x7fa.",
        b"\x80\x02\x8e\xff\xff\xff\xff\xff\xff\xff\x7fa.", b"cos\nsystem", b"\x82\x01.", b"\x80\x04NN\x93.", b"0.",
    ],
)  # fmt: skip
def test_what_is_no_pickle_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  pickletools has words of its own
        described(io.BytesIO(content))


def test_keys_that_take_for_ever_to_hash_are_passed_over() -> None:
    twice = b"\x80\x02}N" + b"2\x86" * 60 + b"K\x01s."
    assert described(io.BytesIO(twice)) == {}


def test_nesting_without_end_is_no_recursion() -> None:
    for step in (b"\x85", b"N\x52"):
        assert described(io.BytesIO(b"\x80\x02N" + step * 200_000 + b".")) is not None


def test_instructions_and_bytes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert described(io.BytesIO(b"\x80\x02N" + b"\x85" * 97 + b".")) is not None
    monkeypatch.setattr(pickles, "MOST_INSTRUCTIONS", 100)
    assert described(io.BytesIO(b"\x80\x02N" + b"\x85" * 97 + b".")) is not None
    with pytest.raises(ValueError, match="more than 100 instructions"):
        described(io.BytesIO(b"\x80\x02N" + b"\x85" * 98 + b"."))
    monkeypatch.setattr(pickles, "MOST_BYTES", 50)
    for content in (b"\x80\x02X\x40\0\0\0" + b"a" * 64 + b".", b"cos\n" + b"a" * 64 + b"\n."):
        with pytest.raises(ValueError, match="instructions take more than"):
            described(io.BytesIO(content))
