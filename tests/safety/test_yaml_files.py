"""YAML that users write, and YAML that is to do harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from samba_onnx.errors import UsageError
from samba_onnx.safety.yaml_files import MOST_BYTES, read_yaml


def read(folder: Path, text: str) -> object:
    path = folder / "file.yaml"
    path.write_text(text, encoding="utf-8")
    return read_yaml(path, "file of rules").content


def test_mappings_lists_and_scalars(tmp_path: Path) -> None:
    assert read(tmp_path, "a: [1, x]\nb: {c: 2.5, d: true, e: }\n") == {
        "a": [1, "x"],
        "b": {"c": 2.5, "d": True, "e": None},
    }
    assert read(tmp_path, "") is None
    assert read(tmp_path, "a: &one {b: 1}\nc: *one\n") == {"a": {"b": 1}, "c": {"b": 1}}


def test_keys_that_are_stated_again(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text("a: 1\nb:\n  c: 1\n  c: 2\na: 3\n")
    document = read_yaml(path, "file")
    assert document.content == {"a": 3, "b": {"c": 2}}
    assert document.repeated == ((("b", "c"), 4), (("a",), 5))


_BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 10)}]\n"
    for before, name in zip("abcdef", "bcdefg", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (_BOMB, "stands for more than 50,000 values"),
        ("a: &a [*a]\n", "nests deeper than 16 levels"),
        ("[" * 1500, "nests deeper than 16 levels"),
        ("a: !!python/object/apply:os.system ['true']\n", "could not determine a constructor"),
        ("a: 1\n---\nb: 2\n", "expected a single document"),
        ("a: [1\nb: 2", "while parsing a flow sequence"),
        ("a: 2020-13-45\n", "month must be in 1..12"),
        ("a: " + "1" * 10_000, "integer string conversion"),
        ("a: !!bool x\n", "a value does not fit its tag"),
        ("a: !!timestamp x\n", "a value does not fit its tag"),
        ("? [1]\n: 2\n", "line 1 has a key that is no text"),
        ("a: \x07", "special characters are not allowed"),
        ("#" * (MOST_BYTES + 1), "larger than 262,144 bytes"),
    ],
)
def test_what_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"file of rules {tmp_path / 'file.yaml'}")


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="folder"):
        read_yaml(tmp_path, "file of rules")
    (tmp_path / "latin").write_bytes(b"a: \xe9\n")
    with pytest.raises(UsageError, match="no valid YAML"):
        read_yaml(tmp_path / "latin", "file of rules")
