"""Whole datasets: what is in each file, beside the files, and after an interruption."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from transformers import AutoTokenizer

from samba_onnx.data_prep import HDF5Dataset, Metrics, Shuffle
from samba_onnx.errors import DataError, OutputError, UsageError
from samba_onnx.tools.data_prep import engines, runs
from samba_onnx.tools.data_prep.runs import default_output
from tests.tools.data_prep.building import LENGTH, contents, pairs, run, write
from tests.tools.data_prep.reference import Rules, read_sequences
from tests.tools.data_prep.test_balancing import expected as balanced
from tests.tools.data_prep.tokenizers_of_tests import gpt2_like

LINES = pairs(60)
COUNTS = (
    "articles", "completion_tokens", "input_tokens", "output_tokens", "padding_tokens", "prompt_tokens", "sequences",
    "tokens_dropped_from_all_prompt", "tokens_dropped_from_packing",
)  # fmt: skip
"""What the documented tool writes of its metrics, after ``train_``, and ``dev_`` where there are dev files."""
NAMES = ("train_1_of_3", "train_2_of_3", "train_3_of_3", "test_1_of_1", "dev_1_of_1")


class Listener:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.warnings: list[str] = []
        self.size = self.articles = 0

    def begin(self, step: str, total: int | None = None) -> None:
        self.steps.append(step)

    def advance(self, size: int, articles: int) -> None:
        self.size += size
        self.articles += articles

    def warn(self, message: str) -> None:
        self.warnings.append(message)


@pytest.mark.parametrize("packing", ["full", "greedy::drop", "single::truncate_left"])
def test_every_file_is_what_the_rules_say(packing: str, tmp_path: Path) -> None:
    source = write(tmp_path / "corpus.jsonl", LINES)
    result = run(source, tmp_path / "out", packing=packing, balance=False)
    rules = Rules(gpt2_like(), LENGTH, packing)
    for place, name in enumerate(NAMES):
        lines = LINES[place :: len(NAMES)]
        if name.startswith("test"):
            text = (tmp_path / "out" / "test_files" / f"{name}.jsonl").read_text()
            assert text.splitlines() == lines
        else:
            assert read_sequences(tmp_path / "out" / f"{name}.hdf5") == rules.file(lines)
    assert result.metrics["train"].articles == 36
    assert result.metrics["dev"].sequences == len(rules.file(LINES[4::5]))


def test_files_of_a_kind_are_balanced(tmp_path: Path) -> None:
    lines = [
        line
        for three in zip(pairs(20, 1), pairs(20, 2), pairs(20, 3), strict=True)
        for line in three
    ]
    lines[::3] = ['{"completion": "fox"}'] * 20  # the first file has little
    run(write(tmp_path / "corpus.jsonl", lines), tmp_path / "out", dev=0, test=0)
    rules = Rules(gpt2_like(), LENGTH, "greedy::drop")
    files = [rules.file(lines[place::3]) for place in range(3)]
    counts = [len(file) for file in files]
    assert max(counts) - min(counts) > 1
    for number, sequences in enumerate(balanced(files), 1):  # type: ignore[arg-type]
        assert read_sequences(tmp_path / "out" / f"train_{number}_of_3.hdf5") == sequences


def test_a_ratio_that_comes_to_no_file_is_said(tmp_path: Path) -> None:
    from samba_onnx.data_prep import DatasetOptions, SplitOptions, pipeline

    source = write(tmp_path / "corpus.jsonl", LINES)
    splits = SplitOptions(4, dev_ratio=0.1, test_ratio=0.1)
    listener = Listener()
    chosen = DatasetOptions(splits=splits, num_workers=1)
    result = pipeline(source, tmp_path / "out", gpt2_like(), None, chosen, listener)
    assert (result.metadata["number_of_dev_files"], result.metadata["number_of_test_files"]) == (
        1,
        0,
    )
    (warning,) = listener.warnings
    assert warning.startswith("test_ratio 0.1 of 5 files comes to no test file")
    log = (tmp_path / "out" / "logs.log").read_text()
    assert warning in log
    assert f"prepares {source}\n" in log


def test_what_stands_beside_the_files(tmp_path: Path) -> None:
    source = write(tmp_path / "corpus.jsonl", LINES)
    out = tmp_path / "out"
    result = run(source, out, categories=("b", "a"), keep_split_jsonls=True)
    metadata = yaml.safe_load((out / "metadata.yaml").read_text())
    counts = [len(read_sequences(out / f"train_{number}_of_3.hdf5")) for number in (1, 2, 3)]
    assert (
        metadata
        == result.metadata
        == {
            "max_seq_length": LENGTH,
            "token_type_ids": True,
            "vocab_size": gpt2_like().vocab_size,
            "tokenizer_model_type": None,
            "number_of_training_files": 3,
            "number_of_dev_files": 1,
            "number_of_test_files": 1,
            "max_batch_size_train": min(counts),
            "max_batch_size_dev": len(HDF5Dataset(out, "dev")),
            **{
                f"{kind}_{name}": getattr(result.metrics[kind], name)
                for kind in ("train", "dev")
                for name in COUNTS
            },
        }
    )
    assert list(metadata) == sorted(metadata)
    assert max(counts) - min(counts) <= 1
    assert json.loads((out / "category_to_id.json").read_text()) == {"b": 0, "a": 1}
    copy = AutoTokenizer.from_pretrained(out / "tokenizer")
    assert copy.encode("the fox") == gpt2_like().encode("the fox")
    assert (out / "splits" / "dev_1_of_1.jsonl").read_text().splitlines() == LINES[4::5]
    log = (out / "logs.log").read_text()
    assert "Sequence utilization" in log
    assert "max_seq_length" in log
    sums = json.loads((out / "sha256" / "files_metadata.json").read_text())
    assert sums.keys() == contents(out).keys()
    for name, record in sums.items():
        content = (out / name).read_bytes()
        assert record["sha256"] == hashlib.sha256(content).hexdigest()
        assert record["size"] == len(content)
        assert record["modified_time"] == (out / name).stat().st_mtime
    assert not list(out.glob(".*"))


def test_without_dev_files_the_metadata_has_the_eighteen_keys_of_the_documented_tool(
    tmp_path: Path,
) -> None:
    """Its counts agree with the files: nothing is added up that balancing moves."""
    source, out = write(tmp_path / "corpus.jsonl", LINES), tmp_path / "out"
    run(source, out, dev=0, test=0)
    metadata = yaml.safe_load((out / "metadata.yaml").read_text())
    assert metadata.keys() == {
        "max_batch_size_dev", "max_batch_size_train", "max_seq_length", "number_of_dev_files", "number_of_test_files",
        "number_of_training_files", "token_type_ids", "tokenizer_model_type", "vocab_size",
        *(f"train_{name}" for name in COUNTS),
    }  # fmt: skip
    with HDF5Dataset(out, "train", in_memory=True) as dataset:
        types = np.concatenate([each["token_type_ids"] for each in dataset])  # type: ignore[attr-defined]
    assert metadata["train_sequences"] == len(dataset)
    assert metadata["train_output_tokens"] == types.size
    assert metadata["train_prompt_tokens"] == (types == 0).sum()
    assert metadata["train_completion_tokens"] == np.isin(types, (1, 3)).sum()
    assert metadata["train_padding_tokens"] == (types == 2).sum()
    assert metadata["train_articles"] == len(LINES)


@pytest.mark.parametrize("shuffle", list(Shuffle))
@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_files_of_text_have_line_feeds(shuffle: Shuffle, end: str, tmp_path: Path) -> None:
    """As the documented tool writes them: it reads and writes text, so that a line ends as Python's do."""
    plain = write(tmp_path / "plain.jsonl", LINES)
    source = tmp_path / "corpus.jsonl"
    source.write_bytes("".join(f"{line}{end}" for line in LINES).encode())
    for each, out in ((plain, "a"), (source, "b")):
        run(each, tmp_path / out, shuffle=shuffle, keep_split_jsonls=True)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    texts = [text for name, text in contents(tmp_path / "b").items() if name.endswith("jsonl")]
    assert len(texts) == 5
    assert not any(b"\r" in text for text in texts)


@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
def test_a_line_that_cannot_be_read_is_found_whatever_lines_end_with(
    end: bytes, tmp_path: Path
) -> None:
    source = tmp_path / "corpus.jsonl"
    source.write_bytes(end.join(line.encode() for line in [*LINES[:20], "oops", *LINES[21:]]))
    with pytest.raises(DataError, match=r"corpus\.jsonl:21: this is no JSON"):
        run(source, tmp_path / "out", dev=0, test=0)


def test_the_model_of_the_tokenizer_is_named_and_copied(tmp_path: Path) -> None:
    from transformers import GPT2Config

    from samba_onnx.data_prep import load_tokenizer, pipeline
    from tests.tools.data_prep.building import options

    gpt2_like().save_pretrained(tmp_path / "tokenizer")
    GPT2Config(n_embd=4).to_json_file(tmp_path / "tokenizer" / "config.json")
    tokenizer, config = load_tokenizer(str(tmp_path / "tokenizer"))
    source = write(tmp_path / "corpus.jsonl", LINES)
    result = pipeline(source, tmp_path / "out", tokenizer, config, options())
    assert result.metadata["tokenizer_model_type"] == str(GPT2Config)
    copy = json.loads((tmp_path / "out" / "tokenizer" / "config.json").read_text())
    assert copy["n_embd"] == 4


@pytest.mark.parametrize("shuffle", [Shuffle.ON_RAM, Shuffle.LARGE_FILE])
def test_a_seed_makes_shuffling_repeatable(shuffle: Shuffle, tmp_path: Path) -> None:
    source = write(tmp_path / "corpus.jsonl", LINES)
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        run(source, tmp_path / name, shuffle=shuffle, seed=seed, keep_split_jsonls=True)
    a, b, c = (contents(tmp_path / name) for name in "abc")
    assert a == b
    assert a["splits/train_1_of_3.jsonl"] != c["splits/train_1_of_3.jsonl"]
    texts = [text for name, text in a.items() if name.endswith(".jsonl")]
    assert sorted(b"".join(texts).decode().splitlines()) == sorted(LINES)


def test_a_folder_is_read_file_by_file(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "b.txt").write_text("three\nfour")
    (folder / "a.txt").write_text("one\ntwo")
    run(folder, tmp_path / "out", train=2, dev=0, test=0, keep_split_jsonls=True)
    splits = tmp_path / "out" / "splits"
    assert (splits / "train_1_of_2.txt").read_text() == "one\nthree\n"
    assert (splits / "train_2_of_2.txt").read_text() == "two\nfour"
    assert default_output(folder) == tmp_path / "texts_prepared"
    assert default_output(Path("corpus.jsonl")) == Path("corpus")


def stop_after(count: int, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> list[str]:
    """Let the preparation of files end with an error after some; returns what was prepared."""
    prepared: list[str] = []
    prepare = engines.prepare_file

    def stopping(task: Any, *others: Any) -> Any:
        if len(prepared) == count:
            raise error
        prepared.append(task.target.stem)
        return prepare(task, *others)

    monkeypatch.setattr(engines, "prepare_file", stopping)
    return prepared


def test_an_interrupted_run_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "corpus.jsonl", LINES)
    run(source, tmp_path / "whole")
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        stop_after(3, patch, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            run(source, out)
    assert (out / ".data_prep_state.json").exists()
    assert "ERROR ended by KeyboardInterrupt" in (out / "logs.log").read_text()
    (out / "train_2_of_3.hdf5").write_bytes(b"damaged")
    (out / ".dev_1_of_1.hdf5.0.tmp").write_bytes(b"of a process that was killed")
    (out / "json_error_log").mkdir()
    (out / "json_error_log" / ".dev_1_of_1.log.0.tmp").write_bytes(b"of the same")
    with monkeypatch.context() as patch:
        prepared = stop_after(9, patch, AssertionError())
        listener = Listener()
        result = run(source, out, listener)
    assert prepared == ["train_2_of_3", "dev_1_of_1"]
    assert listener.warnings == ["2 of 4 files are finished already, and are kept"]
    assert "splitting the text" not in listener.steps
    assert contents(out) == contents(tmp_path / "whole")
    assert result.metrics["train"].articles == 36


def test_an_interrupted_balancing_is_made_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "corpus.jsonl", LINES)
    run(source, tmp_path / "whole")
    out = tmp_path / "out"
    from samba_onnx.tools.data_prep import balancing

    with monkeypatch.context() as patch:
        patch.setattr(balancing, "_shorten", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            run(source, out)
    run(source, out)
    assert contents(out) == contents(tmp_path / "whole")


def test_an_interrupted_run_is_not_mixed_with_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "corpus.jsonl", LINES)
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        stop_after(1, patch, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            run(source, out)
    with pytest.raises(UsageError, match=r"packing was .* and is now .* --overwrite_output_path"):
        run(source, out, packing="full")
    write(source, LINES[1:])
    with pytest.raises(UsageError, match="begun otherwise: input was"):
        run(source, out)
    run(source, out, overwrite_output_path=True)
    (out / ".data_prep_state.json").write_text("[]")
    with pytest.raises(DataError, match="state of an interrupted run cannot be read"):
        run(source, out)


def test_nothing_is_replaced_unasked(tmp_path: Path) -> None:
    source = write(tmp_path / "corpus.jsonl", LINES)
    out = tmp_path / "out"
    run(source, out)
    before = contents(out)
    with pytest.raises(UsageError, match="output folder is not empty"):
        run(source, out)
    assert contents(out) == before
    (out / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"not of a dataset, as notes\.txt"):
        run(source, out, overwrite_output_path=True)
    (out / "notes.txt").unlink()
    inner = write(out / "test_files" / "corpus.jsonl", LINES)
    with pytest.raises(UsageError, match="the input would be overwritten"):
        run(inner, out, overwrite_output_path=True)
    inner.unlink()
    (out / "my.log").write_text("mine\n")
    run(source, out, overwrite_output_path=True, seed=3, log_file_path=out / "my.log")
    assert (out / "my.log").read_text().startswith("mine\n")
    (out / "my.log").unlink()
    assert contents(out) == before


def test_two_runs_do_not_write_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "corpus.jsonl", LINES)
    prepare = engines.prepare_file

    def again(*words: Any) -> Any:
        with pytest.raises(UsageError, match="another run is writing"):
            run(source, tmp_path / "out")
        return prepare(*words)

    monkeypatch.setattr(engines, "prepare_file", again)
    run(source, tmp_path / "out")


def test_a_full_disk_keeps_what_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is the one that HDF5 raises on a file system without space."""
    from samba_onnx.tools.data_prep.hdf5_files import SequenceFile

    source, out = write(tmp_path / "corpus.jsonl", LINES), tmp_path / "out"
    finish = SequenceFile.finish
    calls: list[object] = []

    def full(self: SequenceFile) -> None:
        calls.append(self)
        if len(calls) == 3:
            raise OSError(28, "Can't write data (error message = 'No space left on device')")
        finish(self)

    with monkeypatch.context() as patch:
        patch.setattr(SequenceFile, "finish", full)
        with pytest.raises(OutputError, match=r"train_3_of_3\.hdf5: cannot write: no space left"):
            run(source, out)
    assert sorted(path.name for path in out.glob("*.hdf5")) == [
        "train_1_of_3.hdf5",
        "train_2_of_3.hdf5",
    ]
    run(source, out)
    run(source, tmp_path / "whole")
    assert contents(out) == contents(tmp_path / "whole")


def test_progress_is_told_in_bytes_and_lines(tmp_path: Path) -> None:
    source = write(tmp_path / "corpus.jsonl", LINES)
    listener = Listener()
    run(source, tmp_path / "out", listener, test=0)
    assert listener.size == 2 * source.stat().st_size  # split, then prepared
    assert listener.articles == 2 * len(LINES)
    assert listener.steps[:2] == ["splitting the text", "tokenizing and packing"]


def test_counts_add_up() -> None:
    fields = [field.name for field in dataclasses.fields(Metrics)]
    one = Metrics(**{name: place for place, name in enumerate(fields)})
    assert one + one == Metrics(**{name: 2 * place for place, name in enumerate(fields)})
    rows = dict(
        Metrics(
            articles=4,
            input_tokens=200,
            prompt_tokens=30,
            completion_tokens=90,
            padding_tokens=40,
            tokens_dropped_from_packing=80,
            tokens_dropped_from_all_prompt=5,
        ).rows()
    )
    assert rows["Dataset tokens"] == "160"
    assert (rows["Average completion length"], rows["Average prompt length"]) == ("22.50", "7.50")
    assert (rows["Data utilization"], rows["Dropped from packing"]) == ("60.00 %", "40.00 %")
    assert rows["Dropped from all prompt"] == "2.50 %"
    assert rows["Sequence utilization"] == "75.00 %"
    assert rows["Sequence completion utilization"] == "56.25 %"
    assert dict(Metrics().rows())["Data utilization"] == "-"
    assert runs.line_warnings(Metrics(), Path("x")) == []
