"""``samba-port data-prep``: what it prints, its exit status, and the spellings of the documented tool."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from samba_onnx.tools.data_prep.data_progress import DataProgress
from tests.cli.conftest import SambaPort
from tests.tools.data_prep.building import pairs, write
from tests.tools.data_prep.reference import Rules, read_sequences
from tests.tools.data_prep.tokenizers_of_tests import END, gpt2_like

LINES = pairs(40)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    gpt2_like().save_pretrained("tokenizer")
    write(tmp_path / "corpus.jsonl", LINES)
    return tmp_path


def test_a_dataset_of_all_flags(folder: Path, samba_port: SambaPort) -> None:
    (folder / "categories.json").write_text('["news"]')
    result = samba_port(
        *("data-prep", "pipeline", "--input_file_path=corpus.jsonl", "--output_path=out"),
        *("--pretrained_tokenizer=./tokenizer", "--max_seq_length=16", "--num_workers=1"),
        *(
            "--input_packing_config=single::truncate_left",
            "--packing_boundary=prompt_completion_pair",
        ),
        *(
            "--attention_boundary=prompt_completion_pair",
            "--prompt_prefix=Q: ",
            "--prompt_postfix=\nA:",
        ),
        *(
            "--disable_space_separator",
            "--keep_prompt_only_sequences",
            "--categories_path=categories.json",
        ),
        *(
            "--num_training_splits=2",
            "--num_dev_splits=1",
            "--num_test_splits=1",
            "--shuffle=False",
        ),
        *("--do_not_balance_hdf5", "--keep_split_jsonls", "--log_file_path=my.log"),
        *("--special_tokens_dict", "{'pad_token': '<|pad|>'}", "--json", "answer.json"),
    )
    assert (result.status, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0].startswith("30 articles became ")
    assert lines[0].endswith(" sequences in out")
    assert [line.split()[0] for line in lines[3:5]] == ["Sequences", "Articles"]
    assert lines[4].split() == ["Articles", "20", "10"]
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder / "out" / "tokenizer")
    assert tokenizer.pad_token == "<|pad|>"
    rules = Rules(
        tokenizer, 16, "single::truncate_left", "prompt_completion_pair", "prompt_completion_pair",
        True, True, "Q: ", "\nA:", ["news"],
    )  # fmt: skip
    for place, name in ((0, "train_1_of_2"), (1, "train_2_of_2"), (3, "dev_1_of_1")):
        assert read_sequences(folder / "out" / f"{name}.hdf5") == rules.file(LINES[place::4])
    assert (folder / "out" / "splits" / "dev_1_of_1.jsonl").exists()
    assert "metrics" in (folder / "my.log").read_text()
    document = json.loads((folder / "answer.json").read_text())
    assert document["result"]["metrics"]["train"]["articles"] == 20
    assert document["result"]["metadata"]["number_of_test_files"] == 1


def test_one_file(folder: Path, samba_port: SambaPort) -> None:
    words = (
        "data-prep",
        "data_prep",
        "--input_path=corpus.jsonl",
        "--pretrained_tokenizer=tokenizer",
    )
    result = samba_port(*words, "--max_seq_length=16", "-q")
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith("40 articles became ")
    assert result.out.count("\n") == 1
    expected = Rules(gpt2_like(), 16).file(LINES)
    assert read_sequences(folder / "corpus.hdf5") == expected
    result = samba_port(*words)
    assert (result.status, result.out) == (2, "")
    assert result.err == (
        "samba-port data-prep: error: corpus.hdf5: it exists: --overwrite_output_path replaces it\n"
    )
    result = samba_port(*words, "--overwrite_output_path", "--silent", "--max_seq_length=16")
    assert (result.status, result.out, result.err) == (0, "", "")
    assert read_sequences(folder / "corpus.hdf5") == expected


def test_sequences_are_printed_as_text(folder: Path, samba_port: SambaPort) -> None:
    write(folder / "two.jsonl", ['{"prompt": "the fox", "completion": "jumps\\n\\u001b[2J"}'] * 2)
    samba_port(
        *("data-prep", "data_prep", "--input_path=two.jsonl", "--pretrained_tokenizer=tokenizer"),
        *("--max_seq_length=24", "--input_packing_config=single::drop"),
    )
    result = samba_port("data-prep", "decode", "two.hdf5", "--first", 2)
    assert (result.status, result.err) == (0, "")
    rows = [line.split(maxsplit=2) for line in result.out.splitlines()]
    assert rows[0] == ["Sequence", "2"]
    assert [row[0] for row in rows[1:]] == ["prompt", "completion", "separator", "padding"]
    assert rows[1][2] == "the fox"
    assert rows[2][2] == r"jumps\n\x1b[2J"  # a terminal must not obey it
    assert rows[3][1:] == ["1", END]
    assert sum(int(row[1]) for row in rows[1:]) == 24
    document = json.loads(samba_port("data-prep", "decode", "two.hdf5", "--json", "-").out)
    assert [item["number"] for item in document["sequences"]] == [1, 2]
    assert document["sequences"][0]["stretches"][1]["text"] == " jumps\n\x1b[2J"
    for words, message in (
        (("two.hdf5", "--first", 3), "sequence 3: two.hdf5 has sequences 1 to 2"),
        (("two.jsonl",), "two.jsonl: this is no HDF5 file"),
        (("three.hdf5",), "three.hdf5: there is no such file"),
    ):
        result = samba_port("data-prep", "decode", *words)
        assert (result.status, result.out) == (2, "")
        assert message in result.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--shuffle=maybe",), "--shuffle maybe: expected one of False, on_RAM, large_file"),
        (("--engine=spark",), "--engine spark: expected one of local, ray"),
        (("--packing_boundary=line",), "expected one of jsonl, prompt_completion_pair"),
        (("--input_packing_config=greedy",), "expected one of full, greedy::drop"),
        (("--max_seq_length=0",), "max_seq_length 0: expected 1 to 16777216"),
        (("--num_workers=0",), "num_workers 0: expected at least 1"),
        (("--seed=-1",), "seed -1: expected at least 0"),
        (("--categories_path=corpus.jsonl",), "--categories_path corpus.jsonl: cannot be read"),
        (("--num_dev_splits=1",), "give all three, or ratios"),
        (("--num_training_splits=41",), "40 lines cannot be split into 41 files"),
        (("--num_training_splits=x",), "--num_training_splits"),
        (("--output_path=corpus.jsonl/x",), "corpus.jsonl"),
    ],
)
def test_bad_use_is_one_line(
    words: tuple[str, ...], message: str, folder: Path, samba_port: SambaPort
) -> None:
    result = samba_port(
        *("data-prep", "pipeline", "--input_path=corpus.jsonl", "--pretrained_tokenizer=tokenizer"),
        *words,
    )
    assert (result.status, result.out) == (2, "")
    assert message in result.err
    assert result.err.count("\n") == 1
    assert not (folder / "corpus").exists()


@pytest.mark.parametrize("option", ["--log_file_path", "--json"])
@pytest.mark.parametrize("source", ["corpus.jsonl", "texts"])
def test_the_input_is_never_written_over(
    option: str, source: str, folder: Path, samba_port: SambaPort
) -> None:
    (folder / "texts").mkdir()
    write(folder / "texts" / "one.jsonl", LINES)
    name = "corpus.jsonl" if source == "corpus.jsonl" else "texts/one.jsonl"
    result = samba_port(
        *("data-prep", "pipeline", f"--input_path={source}", "--pretrained_tokenizer=tokenizer"),
        *("--output_path=out", option, name),
    )
    assert (result.status, result.out) == (2, "")
    assert f"{option} {name} would overwrite the input {name}" in result.err
    assert (folder / name).read_text().splitlines() == LINES
    assert not (folder / "out").exists()


def test_an_answer_does_not_replace_what_it_is_about(folder: Path, samba_port: SambaPort) -> None:
    words = ("--pretrained_tokenizer=tokenizer", "--json", "corpus.jsonl")
    for command in (("data_prep", "--input_path=corpus.jsonl"), ("decode", "corpus.jsonl")):
        result = samba_port("data-prep", *command, *words)
        assert result.status == 2
        assert "--json corpus.jsonl would overwrite the input corpus.jsonl" in result.err
    assert (folder / "corpus.jsonl").read_text().splitlines() == LINES


def test_progress_shows_rate_and_remaining_time(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr("samba_onnx.tools.data_prep.data_progress.REFRESH_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    with DataProgress("samba-port data-prep pipeline") as progress:
        progress.begin("tokenizing", 1000)
        progress.advance(250, 3)
        progress.advance(250, 4)
        assert progress._progress is not None
        (task,) = progress._progress.tasks
        assert (task.completed, task.total) == (500, 1000)
        assert task.fields["rate"].endswith(" articles/s")
        progress.warn("look\nhere")
    assert "samba-port data-prep pipeline: look here" in capfd.readouterr().err
    with DataProgress("x", silent=True) as silent:
        silent.advance(1, 1)
        silent.warn("nobody hears")
    assert "nobody" not in capfd.readouterr().err
