"""Exported programs are read without running anything that their files hold."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from samba_onnx.errors import InvalidModelError, ModelFileError, ModelLimitError
from samba_onnx.export.capture.archives import load_exported_program, refused_by_torch

MARK = Path("/tmp/never-made-by-a-model-file")


class Bomb:
    """Whoever unpickles this makes a file."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return open, (str(MARK), "w")


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.shift = torch.tensor([1.0, 2.0, 3.0, 4.0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x)) + self.shift


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "small.pt2"
    torch.export.save(torch.export.export(Small(), (torch.randn(2, 3),)), path)
    return path


def changed(path: Path, change: Callable[[str, bytes], bytes], method: int = 0) -> Path:
    """Write the archive again with other members."""
    result = path.with_name("changed.pt2")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(result, "w", method) as new:
        for info in old.infolist():
            new.writestr(info.filename, change(info.filename, old.read(info)))
    return result


def test_a_saved_program_computes_what_it_did(saved: Path) -> None:
    program = load_exported_program(saved)
    (x,), _ = program.example_inputs or ((), {})
    again = torch.export.load(saved)
    torch.testing.assert_close(program.module()(x), again.module()(x))


def test_dynamic_sizes_are_read(tmp_path: Path) -> None:
    path = tmp_path / "dynamic.pt2"
    batch = torch.export.Dim("batch", min=2)
    exported = torch.export.export(Small(), (torch.randn(6, 3),), dynamic_shapes=({0: 2 * batch},))
    torch.export.save(exported, path)
    assert load_exported_program(path).example_inputs is not None


def test_example_inputs_are_not_unpickled(saved: Path) -> None:
    def plant(name: str, content: bytes) -> bytes:
        if not name.endswith("sample_inputs/model.pt"):
            return content
        stream = io.BytesIO()
        torch.save(Bomb(), stream)
        return stream.getvalue()

    with pytest.raises(InvalidModelError):
        load_exported_program(changed(saved, plant))
    assert not MARK.exists()


def test_a_pickled_constant_is_refused(saved: Path) -> None:
    def plant(name: str, content: bytes) -> bytes:
        return content.replace(b'"use_pickle": false', b'"use_pickle": true')

    with pytest.raises(InvalidModelError, match="pickled object"):
        load_exported_program(changed(saved, plant))


def test_a_size_that_is_code_is_refused(saved: Path) -> None:
    def plant(name: str, content: bytes) -> bytes:
        if not name.endswith("models/model.json"):
            return content
        document = json.loads(content)
        document["range_constraints"] = {}
        size = {"as_expr": {"expr_str": f"open('{MARK}','w')", "hint": {"as_int": 2}}}
        tensors = document["graph_module"]["graph"]["tensor_values"]
        tensors["x"]["sizes"][0] = size
        return json.dumps(document).encode()

    with pytest.raises(InvalidModelError, match="size"):
        load_exported_program(changed(saved, plant))
    assert not MARK.exists()


def test_what_is_no_archive_is_refused(tmp_path: Path, saved: Path) -> None:
    text = tmp_path / "text.pt2"
    text.write_text("hello")
    with pytest.raises(ModelFileError, match=r"torch\.export\.save"):
        load_exported_program(text)
    other = tmp_path / "other.pt2"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("a.txt", "a")
    with pytest.raises(ModelFileError, match="not of an exported program"):
        load_exported_program(other)
    with pytest.raises(ModelFileError):
        load_exported_program(tmp_path / "absent.pt2")
    with pytest.raises(ModelFileError):
        load_exported_program(tmp_path)


def test_compressed_members_are_refused(saved: Path) -> None:
    packed = changed(saved, lambda name, content: content, zipfile.ZIP_DEFLATED)
    with pytest.raises(ModelLimitError, match="compressed"):
        load_exported_program(packed)


def test_a_cut_file_is_refused(saved: Path) -> None:
    saved.write_bytes(saved.read_bytes()[:-100])
    with pytest.raises(ModelFileError):
        load_exported_program(saved)


def places(document: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document, as keys and numbers from the outside to the inside."""
    if place:
        yield place
    inside = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()  # fmt: skip
    for key, item in inside:
        yield from places(item, (*place, key))


def test_a_malformed_file_gives_one_line_and_prints_none(
    saved: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Every kind of damage to what torch itself reads, which tells of it with tracebacks."""
    choices, counts = random.Random(5), Counter[str]()
    for number in range(120):
        # Removed, or another kind of thing in its place.
        value: Any = [None, None, -1, 10**30, "x\ny", [], {"a": 1}][number % 7]

        def damage(
            name: str, content: bytes, value: Any = value, remove: bool = number % 7 == 0
        ) -> bytes:
            if not name.endswith("model.json"):
                return content
            document = json.loads(content)
            *path, last = choices.choice(list(places(document)))
            item = document
            for key in path:
                item = item[key]
            if remove:
                del item[last]
            else:
                item[last] = value
            return json.dumps(document).encode()

        try:
            load_exported_program(changed(saved, damage))
            counts["read"] += 1
        except (InvalidModelError, ModelFileError) as error:
            counts["refused"] += len(str(error).splitlines()) == 1
            counts["without a reason"] += "check the warnings" in str(error)
    assert counts["read"] + counts["refused"] == 120
    assert counts["refused"] > 60
    assert counts["without a reason"] == 0
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


@pytest.mark.parametrize(
    "instructions",
    [b"\x80\x02c__builtin__\nbytearray\nJ\xff\xff\xff\x7f\x85R.", b"\x80\x02}N" + b"2\x86" * 60 + b"K\x01s."],
    ids=["memory", "time"],
)  # fmt: skip
def test_tensors_inside_that_take_more_than_their_size_are_refused(
    saved: Path, instructions: bytes
) -> None:
    def bomb(name: str, content: bytes) -> bytes:
        if not name.endswith("sample_inputs/model.pt"):
            return content
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            archive.writestr("archive/data.pkl", instructions)
            archive.writestr("archive/version", b"3\n")
        return stream.getvalue()

    with pytest.raises(ModelFileError, match="the tensors inside: would make more than tensors"):
        load_exported_program(changed(saved, bomb))


def test_what_torch_cannot_make_a_module_of_is_told_in_one_line() -> None:
    with pytest.raises(InvalidModelError, match=r"^m\.pt2: torch cannot use it: KeyError: 'a'$"), refused_by_torch("m.pt2", "use it"):  # fmt: skip
        raise KeyError("a")
