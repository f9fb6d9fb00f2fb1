"""What the words of a command line become: options of the library, each of its own, and an answer."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from samba_onnx.data_prep import (
    DatasetOptions,
    EngineKind,
    Metrics,
    PackingConfig,
    PreparationOptions,
    Shuffle,
    SplitOptions,
    UnitBoundary,
)
from samba_onnx.errors import UsageError
from samba_onnx.tools.data_prep import data_prep as commands
from samba_onnx.tools.data_prep import data_progress, runs, single_file, tokenizer_record
from samba_onnx.tools.data_prep.runs import DatasetResult
from samba_onnx.tools.data_prep.single_file import SingleFileResult
from tests.tools.data_prep.test_decoding import written
from tests.tools.data_prep.tokenizers_of_tests import word_like

METRICS = Metrics(articles=1, sequences=2, lines_skipped=7)


class Prepared:
    """What was asked of the library, which prepares nothing here."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.tokenizers: list[Any] = []
        self.progress: list[Any] = []

    def pipeline(
        self,
        source: Path,
        output: Path | None,
        tokenizer: Any,
        config: Any,
        options: Any,
        reporter: Any,
    ) -> DatasetResult:
        reporter.warn("look")
        self.calls.append((source, output, tokenizer, config, options))
        return DatasetResult("there", {"train": METRICS, "dev": METRICS}, {"a": 1})

    def data_prep(
        self,
        source: Path,
        output: Path | None,
        tokenizer: Any,
        options: Any,
        reporter: Any,
        **others: Any,
    ) -> SingleFileResult:
        reporter.warn("look")
        self.calls.append((source, output, tokenizer, options, others))
        return SingleFileResult("there", METRICS, "12")

    def load_tokenizer(self, *words: Any) -> tuple[str, str]:
        self.tokenizers.append(words)
        return "a tokenizer", "a configuration"


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepared:
    here = Prepared()

    class Progress(data_progress.DataProgress):
        def __init__(self, *words: Any) -> None:
            here.progress.append(words)
            super().__init__(*words)

        def begin(self, step: str, total: int | None = None) -> None:
            here.progress.append(step)

    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.jsonl").write_text("{}\n")
    (tmp_path / "categories.json").write_text('["news", "\u00e9t\u00e9"]', encoding="utf-8")
    monkeypatch.setattr(runs, "pipeline", here.pipeline)
    monkeypatch.setattr(single_file, "data_prep", here.data_prep)
    monkeypatch.setattr(tokenizer_record, "load_tokenizer", here.load_tokenizer)
    monkeypatch.setattr(data_progress, "DataProgress", Progress)
    return here


def test_what_is_left_out_is_what_the_library_takes(prepared: Prepared) -> None:
    assert commands.pipeline("corpus.jsonl", "tokenizer") == 0
    assert prepared.calls.pop() == (
        Path("corpus.jsonl"), None, "a tokenizer", "a configuration", DatasetOptions(),
    )  # fmt: skip
    assert commands.data_prep("corpus.jsonl", "tokenizer") == 0
    kept = {"overwrite_output_path": False, "log_file_path": None}
    assert prepared.calls.pop() == (
        Path("corpus.jsonl"), None, "a tokenizer", PreparationOptions(), kept,
    )  # fmt: skip
    assert prepared.tokenizers == [("tokenizer", None)] * 2
    step = "loading the tokenizer"
    assert prepared.progress == [
        ("samba-port data-prep pipeline", False), step,
        ("samba-port data-prep data_prep", False, False), step,
    ]  # fmt: skip


PREPARATION: dict[str, tuple[Any, dict[str, Any]]] = {
    "max_seq_length": (7, {"max_seq_length": 7}),
    "input_packing_config": ("greedy::drop", {"packing": PackingConfig.parse("greedy::drop")}),
    "packing_boundary": ("prompt_completion_pair", {"packing_boundary": UnitBoundary.PAIR}),
    "attention_boundary": ("prompt_completion_pair", {"attention_boundary": UnitBoundary.PAIR}),
    "prompt_keyword": ("q", {"prompt_keyword": "q"}),
    "completion_keyword": ("a", {"completion_keyword": "a"}),
    "prompt_prefix": ("Q: ", {"prompt_prefix": "Q: "}),
    "prompt_postfix": (" A: ", {"prompt_postfix": " A: "}),
    "disable_space_separator": (True, {"space_separator": False}),
    "keep_prompt_only_sequences": (True, {"keep_prompt_only_sequences": True}),
    "categories_path": ("categories.json", {"categories": ("news", "\u00e9t\u00e9")}),
    "apply_chat_template": (True, {"apply_chat_template": True}),
    "ignore_input_format_error": (True, {"ignore_input_format_error": True}),
}
DATASET: dict[str, tuple[Any, dict[str, Any]]] = {
    "num_training_splits": (5, {"splits": SplitOptions(num_training_splits=5)}),
    "num_dev_splits": (5, {"splits": SplitOptions(num_dev_splits=5)}),
    "num_test_splits": (5, {"splits": SplitOptions(num_test_splits=5)}),
    "dev_ratio": (0.5, {"splits": SplitOptions(dev_ratio=0.5)}),
    "test_ratio": (0.5, {"splits": SplitOptions(test_ratio=0.5)}),
    "shuffle": ("large_file", {"shuffle": Shuffle.LARGE_FILE}),
    "seed": (9, {"seed": 9}),
    "do_not_balance_hdf5": (True, {"balance": False}),
    "keep_split_jsonls": (True, {"keep_split_jsonls": True}),
    "num_workers": (33, {"num_workers": 33}),
    "engine": ("ray", {"engine": EngineKind.RAY}),
    "overwrite_output_path": (True, {"overwrite_output_path": True}),
    "log_file_path": ("my.log", {"log_file_path": Path("my.log")}),
}


@pytest.mark.parametrize("name", [*PREPARATION, *DATASET])
def test_a_word_is_one_option_of_a_dataset(name: str, prepared: Prepared) -> None:
    value, changed = (PREPARATION | DATASET)[name]
    commands.pipeline("corpus.jsonl", "tokenizer", **{name: value})
    if name in PREPARATION:
        changed = {"preparation": PreparationOptions(**changed)}
    assert prepared.calls[0][-1] == dataclasses.replace(DatasetOptions(), **changed)


@pytest.mark.parametrize("name", PREPARATION)
def test_a_word_is_one_option_of_a_file(name: str, prepared: Prepared) -> None:
    value, changed = PREPARATION[name]
    commands.data_prep("corpus.jsonl", "tokenizer", **{name: value})
    assert prepared.calls[0][3] == PreparationOptions(**changed)


@pytest.mark.parametrize("command", [commands.pipeline, commands.data_prep])
def test_paths_and_tokens_are_those_that_were_given(
    command: Callable[..., int], prepared: Prepared
) -> None:
    command(
        "corpus.jsonl", "tokenizer", output_path="out.hdf5", special_tokens_dict="{}",
        log_file_path="my.log", overwrite_output_path=True,
    )  # fmt: skip
    assert prepared.calls[0][1] == Path("out.hdf5")
    assert prepared.tokenizers == [("tokenizer", "{}")]
    if command is commands.data_prep:
        assert prepared.calls[0][-1] == {
            "overwrite_output_path": True,
            "log_file_path": Path("my.log"),
        }


def test_an_answer_has_one_line_a_table_and_a_document(
    prepared: Prepared, capsys: pytest.CaptureFixture[str]
) -> None:
    commands.pipeline("corpus.jsonl", "tokenizer", json="answer.json")
    printed = capsys.readouterr()
    lines = [" ".join(line.split()) for line in printed.out.splitlines()]
    assert lines[:3] == ["2 articles became 4 sequences in there", "", "train dev"]
    assert "Sequences 2 2" in lines
    assert printed.err == "samba-port data-prep pipeline: look\n"
    figures = dataclasses.asdict(METRICS)
    answer = json.loads(Path("answer.json").read_text())
    assert answer["result"]["metrics"]["train"].items() >= figures.items()
    assert answer == {
        "schema_version": 1,
        "headline": "2 articles became 4 sequences in there",
        "result": {"output": "there", "metrics": answer["result"]["metrics"], "metadata": {"a": 1}},
    }
    commands.data_prep("corpus.jsonl", "tokenizer", json="one.json")
    printed = capsys.readouterr()
    lines = [" ".join(line.split()) for line in printed.out.splitlines()]
    assert lines[:3] == ["1 article became 2 sequences in there", "", ""]
    assert "Sequences 2" in lines
    assert printed.err == "samba-port data-prep data_prep: look\n"
    answer = json.loads(Path("one.json").read_text())
    assert answer == {
        "schema_version": 1,
        "headline": "1 article became 2 sequences in there",
        "result": {"output": "there", "metrics": answer["result"]["metrics"], "sha256": "12"},
    }


def test_who_wants_less_gets_less(prepared: Prepared, capsys: pytest.CaptureFixture[str]) -> None:
    commands.pipeline("corpus.jsonl", "tokenizer", quiet=True)
    assert capsys.readouterr().out == "2 articles became 4 sequences in there\n"
    commands.data_prep("corpus.jsonl", "tokenizer", quiet=True)
    printed = capsys.readouterr()
    assert printed.out == "1 article became 2 sequences in there\n"
    assert printed.err == "samba-port data-prep data_prep: look\n"
    commands.data_prep("corpus.jsonl", "tokenizer", silent=True, json="one.json")
    assert capsys.readouterr() == ("", "")
    assert not Path("one.json").exists()
    assert [words for words in prepared.progress if isinstance(words, tuple)] == [
        ("samba-port data-prep pipeline", True),
        ("samba-port data-prep data_prep", True, False),
        ("samba-port data-prep data_prep", True, True),
    ]


@pytest.mark.parametrize("option", ["output_path", "log_file_path", "json"])
@pytest.mark.parametrize("source", ["corpus.jsonl", "categories.json"])
@pytest.mark.parametrize("command", [commands.pipeline, commands.data_prep])
def test_what_is_read_is_not_written_over(
    option: str, source: str, command: Callable[..., int], prepared: Prepared
) -> None:
    words = {option: source, "categories_path": "categories.json"}
    message = f"^--{option} {source} would overwrite the input {source}$"
    with pytest.raises(UsageError, match=message):
        command("corpus.jsonl", "tokenizer", **words)
    assert not prepared.calls


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("packing_boundary", "line", "--packing_boundary line: expected one of jsonl, "),
        ("attention_boundary", "line", "--attention_boundary line: expected one of jsonl, "),
        ("shuffle", "maybe", "--shuffle maybe: expected one of False, "),
        ("engine", "spark", "--engine spark: expected one of local, ray"),
        ("categories_path", "corpus.jsonl", '--categories_path corpus.jsonl: expected a JSON list of names, as ["news"]'),
        ("categories_path", "numbers.json", "--categories_path numbers.json: expected a JSON list of names"),
        ("categories_path", "gone.json", "--categories_path gone.json: cannot be read: "),
        ("categories_path", "broken.json", "--categories_path broken.json: cannot be read: Expecting"),
        ("categories_path", "latin.json", "--categories_path latin.json: cannot be read: 'utf-8'"),
    ],
)  # fmt: skip
def test_a_value_that_is_none_is_named_with_its_option(
    name: str, value: str, message: str, prepared: Prepared
) -> None:
    Path("numbers.json").write_text('["a", 5]')
    Path("broken.json").write_text("[")
    Path("latin.json").write_bytes('["\u00e9"]'.encode("latin-1"))
    with pytest.raises(UsageError) as caught:
        commands.pipeline("corpus.jsonl", "tokenizer", **{name: value})
    assert str(caught.value).startswith(message)


def test_sequences_are_shown_from_the_first_that_is_asked_for(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tokenizer_record, "load_tokenizer", lambda folder: (word_like(), prepared.tokenizers.append(folder)))  # fmt: skip
    path = str(written(Path("three.hdf5"), *[([3] * 4, [1] * 4)] * 3))

    def shown(*words: Any, **others: Any) -> str:
        assert commands.decode(path, *words, **others) == 0
        return capsys.readouterr().out

    row = f"  completion  4  {word_like().decode([3] * 4)}\n"
    assert shown() == f"Sequence 1\n{row}Sequence 2\n{row}Sequence 3\n{row}"
    assert shown("there", 2, 1) == f"Sequence 2\n{row}"
    assert shown("there", 2, quiet=True) == "sequence 2\nsequence 3\n"
    assert shown(json="all.json", quiet=True) == "3 sequences of three.hdf5\n"
    assert prepared.tokenizers == ["tokenizer", "there", "there", "tokenizer"]
    answer = json.loads(shown(first=3, json="-"))
    assert answer == json.loads(Path("all.json").read_text()) | {"sequences": answer["sequences"]}
    stretch = {"type": "completion", "tokens": 4, "text": word_like().decode([3] * 4)}
    assert answer == {
        "schema_version": 1,
        "path": "three.hdf5",
        "sequences": [{"number": 3, "stretches": [stretch]}],
    }
    assert shown(json="one.json", count=1) == f"Sequence 1\n{row}"
