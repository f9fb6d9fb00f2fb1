"""Whatever a target file or a host file says, it is refused in one line or compiled for."""

from __future__ import annotations

import copy
import itertools
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import parser

import samba_onnx
from samba_onnx.errors import InternalError, SambaError
from samba_onnx.facts.figures import LARGEST, SMALLEST
from samba_onnx.passes.targets.target_files import FOLDER
from samba_onnx.passes.timing import hosts

VALUES = (
    "inf", "-inf", "nan", "-1", "0", "0.0", "1", "true", '"text"', "[]", "[1, 2]", "{}", "1e308", "5e-324",
    "1e-300", "9223372036854775807", "9223372036854775808", "1" + "0" * 30, "1" + "0" * 5000, repr(LARGEST),
    repr(SMALLEST), str(int(LARGEST)),
)  # fmt: skip
"""What takes the place of one value, as TOML writes it."""
TARGETS = ("sn10", "sn30", "sn40l")
PLACEHOLDER = "@value@"
PARTS = 13
"""Tests into which the variants of a file are cut: a number that shares no factor with that of the values, so
that every part has all of them."""


def _model() -> onnx.ModelProto:
    """Return a model with sections, a fallback, weights and activations."""
    return parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[8,16] x) => (float[8,4] y, int64[n,2] z)'
        " <float[16,4] w = {" + ",".join(["0.5"] * 64) + "}>"
        " { a = MatMul(x, w)\n y = Relu(a)\n c = NonZero(y)\n z = Transpose(c) }"
    )


def _places(table: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the places of all values of a file, tables included."""
    for key, value in table.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from _places(value, (*path, key))


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{key}" = {_toml(item)}' for key, item in value.items()) + "}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        quoted = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{quoted}"'
    return repr(value)


def _variants(content: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield every place with every value, and the file with the one at the other."""
    for path in _places(content):
        changed = copy.deepcopy(content)
        table = changed
        for key in path[:-1]:
            table = table[key]
        table[path[-1]] = PLACEHOLDER
        text = "\n".join(f'"{key}" = {_toml(value)}' for key, value in changed.items())
        for value in VALUES:
            yield path, value, text.replace(f'"{PLACEHOLDER}"', value)


def _check(content: dict[str, Any], file: Path, option: str, part: int) -> tuple[int, int]:
    """Compile for one in so many variants of a file; return how many were refused and taken."""
    model, refused, taken = _model(), 0, 0
    for path, value, text in itertools.islice(_variants(content), part, None, PARTS):
        file.write_text(text)
        try:
            samba_onnx.analyze(model, **{option: str(file)})
            taken += 1
        except InternalError as error:
            raise AssertionError(f"{'.'.join(path)} = {value}: {error}") from error
        except SambaError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"{'.'.join(path)} = {value[:40]}: {error!r}") from error
    return refused, taken


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", TARGETS)
def test_any_value_of_a_target_file(name: str, part: int, tmp_path: Path) -> None:
    content = tomllib.loads((FOLDER / f"{name}.toml").read_text())
    refused, taken = _check(content, tmp_path / "target.toml", "target", part)
    assert refused > 50
    assert taken > 3


@pytest.mark.parametrize("part", range(PARTS))
def test_any_value_of_a_host_file(part: int, tmp_path: Path) -> None:
    content = tomllib.loads(hosts._FILE.read_text())
    refused, taken = _check(content, tmp_path / "host.toml", "host", part)
    assert refused > 20
    assert taken > 1
