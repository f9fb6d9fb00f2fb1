"""What cannot be read is named with file and line, or skipped, counted and kept."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from samba_onnx.data_prep import PreparationOptions, Shuffle, data_prep, load_tokenizer
from samba_onnx.errors import DataError, UsageError
from tests.tools.data_prep.building import pairs, run, write
from tests.tools.data_prep.reference import Rules, read_sequences
from tests.tools.data_prep.tokenizers_of_tests import gpt2_like, wrapped

GOOD = '{"prompt": "the fox", "completion": "jumps"}'
BAD = {
    '{"prompt": "x", "completion": "y"': "this is no JSON: Expecting ',' delimiter",
    "": "the line is empty",
    "5": "expected a JSON object, but this is a number",
    '[["x"]]': "expected a JSON object, but this is a list",
    '{"prompt": "x"}': "the completion 'completion' is missing: there are 'prompt'",
    "{}": "the completion 'completion' is missing: there are no keys",
    '{"completion": 5}': "expected text in 'completion', but this is a number",
    '{"completion": "x", "prompt": ["y"]}': "expected text in 'prompt', but this is a list",
    "[" * 100_000: "nested too deeply",
    "1" * 5000: "this is no JSON",
}


@pytest.mark.parametrize("line", BAD, ids=[reason[:30] for reason in BAD.values()])
def test_a_bad_line_is_named(line: str, tmp_path: Path) -> None:
    source = write(tmp_path / "lines.jsonl", [GOOD, GOOD, line, GOOD])
    with pytest.raises(DataError) as info:
        data_prep(source, None, gpt2_like())
    assert str(info.value).startswith(f"{source}:3: ")
    assert BAD[line] in str(info.value)
    assert (info.value.path, info.value.line) == (str(source), 3)
    assert not list(tmp_path.glob("*.hdf5"))
    assert not list(tmp_path.glob(".*"))


def test_bad_lines_are_skipped_counted_and_kept(tmp_path: Path) -> None:
    lines = [line for bad in BAD for line in (GOOD, bad)]
    source = write(tmp_path / "lines.jsonl", lines)
    chosen = PreparationOptions(max_seq_length=8, ignore_input_format_error=True)
    result = data_prep(source, None, gpt2_like(), chosen)
    assert (result.metrics.lines_skipped, result.metrics.articles) == (len(BAD), len(BAD))
    assert read_sequences(tmp_path / "lines.hdf5") == Rules(gpt2_like()).file([GOOD] * len(BAD))
    kept = (tmp_path / "json_error_log" / "lines.log").read_text().splitlines()
    assert kept == list(BAD)
    log = (tmp_path / "logs.log").read_text()
    assert "line 2 skipped: this is no JSON" in log
    assert f"skipped {len(BAD)} lines that could not be read" in log


@pytest.mark.parametrize("shuffle", Shuffle)
def test_the_line_is_that_of_the_input(shuffle: Shuffle, tmp_path: Path) -> None:
    """Not of the split file, which the user has never seen."""
    lines = pairs(30)
    lines[17] = '{"completion": oops}'
    source = write(tmp_path / "corpus.jsonl", lines)
    with pytest.raises(DataError) as info:
        run(source, tmp_path / "out", shuffle=shuffle, test=0)
    assert str(info.value).startswith(f"{source}:18: this is no JSON")
    lines[17] = lines[16]
    write(source, lines)
    run(source, tmp_path / "out", shuffle=shuffle, test=0, overwrite_output_path=True)


def test_skipped_lines_of_a_dataset_are_kept_by_file(tmp_path: Path) -> None:
    lines = pairs(30)
    lines[4] = lines[9] = "oops"
    source = write(tmp_path / "corpus.jsonl", lines)
    result = run(source, tmp_path / "out", test=1, ignore_input_format_error=True)
    assert result.metrics["dev"].lines_skipped == 2
    assert (tmp_path / "out" / "json_error_log" / "dev_1_of_1.log").read_text() == "oops\noops\n"
    assert "dev_1_of_1: line 1 skipped" in (tmp_path / "out" / "logs.log").read_text()


def test_an_unknown_category_is_an_error_whatever_is_ignored(tmp_path: Path) -> None:
    line = '{"completion": "x", "category": "sport"}'
    source = write(tmp_path / "lines.jsonl", [GOOD, line])
    for ignored in (False, True):
        chosen = PreparationOptions(categories=("news", "code"), ignore_input_format_error=ignored)
        with pytest.raises(
            DataError, match="2: the category 'sport' is unknown: there are news, code"
        ):
            data_prep(source, None, gpt2_like(), chosen)
    data_prep(source, None, gpt2_like())  # nobody asked for categories
    with pytest.raises(UsageError, match="a name stands there twice"):
        PreparationOptions(categories=("a", "a"))


@pytest.mark.parametrize("length", [0, (1 << 24) + 1, 3_000_000_000])
def test_lengths_that_no_memory_holds_are_refused(length: int) -> None:
    with pytest.raises(UsageError, match=f"max_seq_length {length}: expected 1 to 16777216"):
        PreparationOptions(max_seq_length=length)


def test_bytes_that_are_not_utf8_are_replaced_and_counted(tmp_path: Path) -> None:
    source = tmp_path / "lines.txt"
    source.write_bytes(b"good\nb\xffd \xc3\n\xe9\ngood \xf0\x9f\x98\x80 too\n")
    result = data_prep(source, None, gpt2_like(), PreparationOptions(max_seq_length=8))
    assert result.metrics.lines_replaced == 2
    with open(source, encoding="utf-8", errors="replace") as file:
        expected = Rules(gpt2_like()).file(list(file), is_json=False)
    assert read_sequences(tmp_path / "lines.hdf5") == expected
    log = (tmp_path / "logs.log").read_text()
    assert log.count("not UTF-8 in 2 lines: U+FFFD") == 1


def test_half_characters_of_json_are_replaced(tmp_path: Path) -> None:
    source = write(tmp_path / "lines.jsonl", ['{"completion": "a \\ud83d b \\ud83d\\ude00"}', GOOD])
    result = data_prep(source, None, gpt2_like(), PreparationOptions(max_seq_length=8))
    assert result.metrics.lines_replaced == 1
    whole = json.dumps({"completion": "a \N{REPLACEMENT CHARACTER} b \N{GRINNING FACE}"})
    assert read_sequences(tmp_path / "lines.hdf5") == Rules(gpt2_like()).file([whole, GOOD])


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_lines_may_end_in_other_ways(ending: str, tmp_path: Path) -> None:
    source = tmp_path / "lines.txt"
    source.write_bytes(ending.join(["the fox", "", "jumps"]).encode())
    data_prep(source, None, gpt2_like(), PreparationOptions(max_seq_length=8))
    expected = Rules(gpt2_like()).file(["the fox\n", "\n", "jumps"], is_json=False)
    assert read_sequences(tmp_path / "lines.hdf5") == expected


def test_files_that_are_no_input(tmp_path: Path) -> None:
    def refused(name: str, content: bytes | None, kind: type[Exception], message: str) -> None:
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(kind, match=message):
            data_prep(path, None, gpt2_like())

    refused("a.csv", b"x", UsageError, "expected a .jsonl or .txt file")
    refused("a.jsonl", b"\n", DataError, "the input is empty")
    refused("missing.jsonl", None, DataError, "no such file")
    (tmp_path / "folder.jsonl").mkdir()
    refused("folder.jsonl", None, DataError, "a folder")
    for files, has in (((), "neither"), (("a.txt", "b.jsonl"), "both")):
        folder = tmp_path / has
        folder.mkdir()
        for name in files:
            (folder / name).write_text("line\n")
        with pytest.raises(UsageError, match=f"but it has {has}"):
            run(folder, tmp_path / "out")
    source = write(tmp_path / "lines.jsonl", [GOOD])
    with pytest.raises(UsageError, match=r"ends with \.hdf5"):
        data_prep(source, tmp_path / "lines.h5", gpt2_like())
    data_prep(source, None, gpt2_like())
    with pytest.raises(UsageError, match="--overwrite_output_path replaces it"):
        data_prep(source, None, gpt2_like())


def test_libraries_write_nothing_of_their_own(tmp_path: Path) -> None:
    import huggingface_hub.utils.logging
    import transformers

    huggingface_hub.utils.logging.set_verbosity_warning()
    transformers.logging.set_verbosity_warning()
    gpt2_like().save_pretrained(tmp_path / "tokenizer")
    load_tokenizer(str(tmp_path / "tokenizer"))
    assert huggingface_hub.utils.logging.get_verbosity() == logging.ERROR
    assert transformers.logging.get_verbosity() == logging.ERROR


def test_tokenizers_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be loaded"):
        load_tokenizer(str(tmp_path / "nothing"))
    wrapped(gpt2_like().backend_tokenizer).save_pretrained(tmp_path / "endless")
    with pytest.raises(UsageError, match="no end-of-sequence token"):
        load_tokenizer(str(tmp_path / "endless"))
    tokenizer, config = load_tokenizer(str(tmp_path / "endless"), "{'eos_token': '<|pad|>'}")
    assert (tokenizer.eos_token, config) == ("<|pad|>", None)
    for text in ("oops", "[1]"):
        with pytest.raises(UsageError, match="expected a JSON object"):
            load_tokenizer(str(tmp_path / "endless"), text)
    for text in ('{"nonsense": "x"}', '{"pad_token": 3}', '{"extra_special_tokens": 3}'):
        with pytest.raises(UsageError, match=r"^special_tokens_dict \{"):
            load_tokenizer(str(tmp_path / "endless"), text)
    tokenizer, _ = load_tokenizer(str(tmp_path / "endless"), '{"eos_token": "it\'s over"}')
    assert tokenizer.eos_token == "it's over"


def test_missing_libraries_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    real = importlib.import_module

    def without(name: str, *words: Any) -> Any:
        if name in ("h5py", "ray"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *words)

    monkeypatch.setattr(importlib, "import_module", without)
    source = write(tmp_path / "lines.jsonl", [GOOD])
    with pytest.raises(
        UsageError, match=r"h5py, which is not installed: pip install 'samba-onnx\[data\]'"
    ):
        data_prep(source, None, gpt2_like())
    from samba_onnx.data_prep import EngineKind
    from samba_onnx.tools.data_prep.engines import make_engine

    with pytest.raises(UsageError, match=r"pip install 'samba-onnx\[ray\]'"):
        make_engine(EngineKind.RAY)
