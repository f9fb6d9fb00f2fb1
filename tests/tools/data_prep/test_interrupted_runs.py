"""Runs that go on: what is done again, what is not, and what was begun otherwise; and what runs log."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from samba_onnx.data_prep import DatasetOptions, PreparationOptions, Shuffle, SplitOptions, pipeline
from samba_onnx.errors import DataError, UsageError
from samba_onnx.tools.data_prep import runs
from samba_onnx.tools.data_prep.hdf5_files import sequence_count
from samba_onnx.tools.data_prep.metrics import metrics_text
from samba_onnx.version import __version__
from tests.tools.data_prep.building import contents, options, pairs, run, write
from tests.tools.data_prep.reference import read_sequences
from tests.tools.data_prep.test_runs import stop_after
from tests.tools.data_prep.test_single_file import Totals, entries
from tests.tools.data_prep.tokenizers_of_tests import gpt2_like, llama_like

LINES = pairs(20)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "corpus.jsonl", LINES)


@pytest.fixture
def begun(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run that was interrupted when two of four files were finished."""
    with monkeypatch.context() as patch:
        stop_after(2, patch, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            run(source, tmp_path / "out")
    return tmp_path / "out"


def whole(source: Path) -> dict[str, bytes]:
    run(source, source.with_name("whole"))
    return contents(source.with_name("whole"))


CHANGES: dict[str, dict[str, Any]] = {
    "files": {"train": 2},
    "seed": {"seed": 3},
    "shuffle": {"shuffle": Shuffle.ON_RAM},
    "balance": {"balance": False},
    "keep_split_jsonls": {"keep_split_jsonls": True},
    "packing": {"packing": "full"},
    "categories": {"categories": ("a",)},
    "ignore_input_format_error": {"ignore_input_format_error": True},
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_run_does_not_go_on_with_other_options(name: str, source: Path, begun: Path) -> None:
    with pytest.raises(UsageError, match=f"an interrupted run was begun otherwise: {name} was "):
        run(source, begun, **CHANGES[name])


def test_a_run_does_not_go_on_with_another_input_or_tokenizer(source: Path, begun: Path) -> None:
    with pytest.raises(UsageError, match="begun otherwise: tokenizer was "):
        pipeline(source, begun, llama_like(), None, options())
    moved = source.rename(source.with_name("other.jsonl"))
    with pytest.raises(UsageError, match=r"begun otherwise: input was .*corpus"):
        run(moved, begun)
    moved.rename(source)
    os.utime(source, ns=(0, 0))
    with pytest.raises(UsageError, match=r"begun otherwise: input was .*corpus"):
        run(source, begun)


def test_a_run_does_not_go_on_with_categories_in_another_order(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        stop_after(1, patch, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            run(source, tmp_path / "out", categories=("a", "b"))
    message = r"categories was \['a', 'b'\], and is now \['b', 'a'\]"
    with pytest.raises(UsageError, match=message):
        run(source, tmp_path / "out", categories=("b", "a"))


def test_a_run_goes_on_that_lacks_nothing_but_its_checksums(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(runs, "write_checksums", lambda _: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            run(source, tmp_path / "out", balance=False)
    assert not (tmp_path / "out" / "splits").exists()
    run(source, tmp_path / "out", balance=False)
    run(source, tmp_path / "whole", balance=False)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_version_that_is_another_is_named(
    source: Path, begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "__version__", "0.0")
    with pytest.raises(UsageError, match=f"version was {__version__}, and is now 0.0: give what"):
        run(source, begun)


def test_how_many_processes_there_are_may_change(source: Path, begun: Path) -> None:
    """What they have done is told, all of it once."""
    listener = Totals()
    run(source, begun, listener, num_workers=2, log_file_path=source.with_name("my.log"))
    assert contents(begun) == whole(source)
    assert (listener.size, listener.articles) == (listener.totals[0], 8)


@pytest.mark.parametrize("lost", ["splits/train_1_of_3.jsonl", "splits/dev_1_of_1.jsonl", "test_files/test_1_of_1.jsonl"])  # fmt: skip
@pytest.mark.parametrize("how", ["gone", "changed"])
def test_text_that_is_needed_and_lost_is_written_again(
    lost: str, how: str, source: Path, begun: Path
) -> None:
    (begun / lost).unlink()
    if how == "changed":
        (begun / lost).write_text("another\n")
    listener = Totals()
    run(source, begun, listener)
    # The first file is finished: its text is needed no more.
    assert ("splitting the text" in listener.steps) == ("train_1" not in lost)
    assert contents(begun) == whole(source)


def test_the_tokenizer_is_copied_again_only_where_it_is_lost(source: Path, begun: Path) -> None:
    for path in sorted((begun / "tokenizer").iterdir()):
        path.unlink()
    (begun / "tokenizer").rmdir()
    with pytest.raises(DataError, match="oops"):
        run(source, begun, Failing())
    kept = (begun / "tokenizer" / "tokenizer.json").stat().st_ino
    run(source, begun)
    assert (begun / "tokenizer" / "tokenizer.json").stat().st_ino == kept
    assert contents(begun) == whole(source)


@pytest.mark.parametrize("shuffle", Shuffle)
def test_a_run_that_ends_while_it_splits_begins_with_that(
    shuffle: Shuffle, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(runs, "sha256_of", lambda path: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            run(source, out, shuffle=shuffle)
    (out / "buckets").mkdir()
    (out / "buckets" / "bucket_0").write_text("of the shuffle that was interrupted")
    # Nobody knows whether the copy of the tokenizer is whole.
    (out / "tokenizer" / "tokenizer.json").write_text("{}")
    (out / "splits" / "train_1_of_3.jsonl").write_text("half of it")
    if shuffle is not Shuffle.LARGE_FILE:
        (out / "buckets" / "bucket_0").unlink()
        (out / "buckets").rmdir()
    run(source, out, shuffle=shuffle)
    run(source, tmp_path / "whole", shuffle=shuffle)
    assert contents(out) == contents(tmp_path / "whole")


class Failing(Totals):
    def begin(self, step: str, total: int | None = None) -> None:
        raise DataError("oops")


def test_steps_are_told_with_the_bytes_that_they_go_through(source: Path, begun: Path) -> None:
    listener = Totals()
    run(source, begun, listener)
    left = sum(len(line) + 1 for place in (2, 4) for line in LINES[place::5])
    assert (listener.steps[0], listener.totals[0]) == ("tokenizing and packing", left)
    assert listener.steps[1:] == ["balancing the train files", "balancing the dev files", "computing checksums"]  # fmt: skip
    listener = Totals()
    run(source, begun.with_name("another"), listener, balance=False)
    size = source.stat().st_size
    assert listener.steps == ["splitting the text", "tokenizing and packing", "computing checksums"]
    tested = sum(len(line) + 1 for line in LINES[3::5])
    assert listener.totals == [size, size - tested, None]


def test_a_log_says_what_became_of_every_file(tmp_path: Path) -> None:
    lines = [*LINES[:4], "oops", *LINES[5:8], LINES[8], "5", *LINES[10:]]
    source, out = write(tmp_path / "corpus.jsonl", lines), tmp_path / "out"
    listener = Totals()
    result = run(source, out, listener, balance=False, ignore_input_format_error=True)
    assert result.output == str(out)
    said = entries(out / "logs.log")
    assert said[0] == f"INFO samba-onnx {__version__} prepares {source}"
    assert said[1].startswith(f"INFO settings: {{'version': '{__version__}', 'input': [")
    names = ("train_1_of_3", "train_2_of_3", "train_3_of_3", "dev_1_of_1")
    skipped = f"skipped 2 lines that could not be read: see {out / 'json_error_log'}"
    assert said[2:] == [
        "INFO split into 5 files",
        *(f"INFO {name}: {sequence_count(out / f'{name}.hdf5')} sequences" for name in names),
        "WARNING dev_1_of_1: line 1 skipped: this is no JSON: Expecting value: line 1 column 1 (char 0)",
        "WARNING dev_1_of_1: line 2 skipped: expected a JSON object, but this is a number",
        f"WARNING {skipped}",
        "INFO metrics",
        *metrics_text(result.metrics).splitlines(),
    ]
    assert listener.warnings == [skipped]


def test_a_log_says_what_an_earlier_run_has_done(source: Path, begun: Path) -> None:
    (begun / "logs.log").unlink()
    run(source, begun)
    kept = "INFO 2 of 4 files are finished already, and are kept"
    assert entries(begun / "logs.log")[2:4] == ["INFO the text is split already", kept]


def test_several_files_are_counted_in_the_log(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    for name in ("a.jsonl", "b.jsonl"):
        write(tmp_path / "texts" / name, LINES)
    run(tmp_path / "texts", tmp_path / "out")
    first = entries(tmp_path / "out" / "logs.log")[0]
    assert first.endswith(f"prepares 2 files of {tmp_path / 'texts'}")


def test_a_part_of_the_files_for_evaluation_that_is_none_is_said(
    source: Path, tmp_path: Path
) -> None:
    chosen = DatasetOptions(splits=SplitOptions(1, dev_ratio=0.1), num_workers=1)
    listener = Totals()
    result = pipeline(source, tmp_path / "out", gpt2_like(), None, chosen, listener)
    assert listener.warnings == [
        "dev_ratio 0.1 of 1 files comes to no dev file: give a larger ratio, or more --num_training_splits"
    ]
    assert result.metadata["max_batch_size_dev"] is None


def test_a_chat_template_is_read_from_the_copy_of_the_tokenizer(
    source: Path, tmp_path: Path
) -> None:
    chosen = DatasetOptions(
        preparation=PreparationOptions(max_seq_length=32, apply_chat_template=True),
        splits=SplitOptions(1, 0, 0),
        num_workers=1,
    )
    pipeline(source, tmp_path / "out", llama_like(), None, chosen)
    first = read_sequences(tmp_path / "out" / "train_1_of_1.hdf5")[0]
    assert llama_like().decode([token[0] for token in first]).startswith("<|begin|>[user]\n")
    settings = json.loads((tmp_path / "out" / "sha256" / "files_metadata.json").read_text())
    assert "tokenizer/tokenizer.json" in settings
