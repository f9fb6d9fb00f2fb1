"""The state of a run: read as it was written, and what is finished by it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from samba_onnx.errors import DataError
from samba_onnx.tools.data_prep.file_preparation import FileResult
from samba_onnx.tools.data_prep.hdf5_files import sha256_of
from samba_onnx.tools.data_prep.metrics import Metrics
from samba_onnx.tools.data_prep.run_state import RunState


@pytest.fixture
def state(tmp_path: Path) -> RunState:
    made = tmp_path / "a.hdf5"
    made.write_bytes(b"content")
    result = FileResult(
        Metrics(articles=3, padding_tokens=5), sha256_of(made), ((2, "\u00e9t\u00e9"), (9, "y"))
    )
    settings = {"version": "1", "input": [["x", 2, 3]], "categories": None}
    return RunState(tmp_path / "state.json", settings, {"a": "12", "b": "34"}, {"a": result})


def test_a_state_is_read_as_it_was_written(state: RunState) -> None:
    assert RunState.read(state.path) is None
    state.write()
    assert RunState.read(state.path) == state


@pytest.mark.parametrize("lacks", ["settings", "splits", "results"])
def test_a_state_of_another_content_is_refused(state: RunState, lacks: str) -> None:
    state.write()
    content = json.loads(state.path.read_text())
    del content[lacks]
    state.path.write_text(json.dumps(content))
    with pytest.raises(
        DataError, match="this state of an interrupted run cannot be read"
    ) as caught:
        RunState.read(state.path)
    assert caught.value.path == str(state.path)


def test_a_file_is_finished_while_it_is_what_was_made(state: RunState) -> None:
    made = state.path.with_name("a.hdf5")
    assert state.finished("a", made)
    assert not state.finished("b", made)
    made.write_bytes(b"another")
    assert not state.finished("a", made)
    made.unlink()
    assert not state.finished("a", made)


def test_a_difference_is_one_whichever_run_has_it(state: RunState) -> None:
    assert state.difference(dict(state.settings)) == ""
    assert state.difference(state.settings | {"seed": 3}) == "seed was None, and is now 3"
    changed = state.settings | {"version": "2"}
    assert state.difference(changed) == "version was 1, and is now 2"
    del changed["version"]
    assert state.difference(changed) == "version was 1, and is now None"
    # A tuple is a list after its way through JSON.
    assert state.difference(state.settings | {"input": [("x", 2, 3)]}) == ""
