"""Files of YAML that users write, and what is said of those that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from samba_onnx.errors import UsageError
from samba_onnx.sessions.yaml_files import read_mapping


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"- 1", r"m\.yaml holds list, no mapping; give lines$"),
        (b"{", r"m\.yaml cannot be read as YAML: .*; give lines$"),
        (b"\xff\xfe\xfd", r"m\.yaml cannot be read as YAML: .*; give lines$"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=f"(?s){words}") as error:
        read_mapping(path, "give lines")
    assert error.value.path == str(path)


def test_files_are_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text("größe: 1", encoding="utf-8")
    assert read_mapping(str(path), "") == {"größe": 1}
