"""Words that are remembered give the ids that the tokenizer gives; where they might not, it is asked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from samba_onnx.tools.data_prep import word_memory
from samba_onnx.tools.data_prep.encoding import (
    LibraryEncoder,
    RememberingEncoder,
    TransformersEncoder,
    make_encoder,
)
from samba_onnx.tools.data_prep.tokenizer_record import describe_tokenizer
from samba_onnx.tools.data_prep.word_memory import splits_at_spaces
from tests.tools.data_prep.test_token_for_token import TEXTS
from tests.tools.data_prep.tokenizers_of_tests import ALL, END, gpt2_like, llama_like, word_like

SPACES = st.text(st.sampled_from("a1.,'s \t\n\r\u00a0\u2003\x1c\u0301\u00e9\u4e2d"), max_size=24)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_remembered_words_are_what_the_tokenizer_says(kind: str) -> None:
    tokenizer = ALL[kind]()
    encoder = make_encoder(describe_tokenizer(tokenizer, None, ""))
    assert isinstance(encoder, RememberingEncoder)

    @settings(max_examples=150, deadline=None)
    @given(st.lists(TEXTS | SPACES, max_size=4))
    def compare(texts: list[str]) -> None:
        assert encoder.encode(texts) == [tokenizer.encode(text) for text in texts]

    compare()


def test_added_tokens_are_found_inside_of_words() -> None:
    tokenizer = gpt2_like()
    encoder = make_encoder(describe_tokenizer(tokenizer, None, ""))
    text = f"the fox{END}jumps"
    assert encoder.encode([text]) == [tokenizer.encode(text)]
    assert tokenizer.eos_token_id in encoder.encode([text])[0]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_memory, "MOST_CHARACTERS", 30)
    monkeypatch.setattr(word_memory, "WORDS_AT_ONCE", 2)
    tokenizer = gpt2_like().backend_tokenizer
    memory = word_memory.WordMemory(tokenizer)
    for number in range(20):
        texts = [f"a{number} b{number} c  c x\n y\n", "x" * 25, f" d{number} d"]
        assert memory.encode(texts) == LibraryEncoder(tokenizer).encode(texts)
        assert len(memory._first) + len(memory._spaced) < 20


def test_words_that_become_one_token_beside_each_other_are_encoded_alone() -> None:
    tokenizer = Tokenizer.from_str(gpt2_like().backend_tokenizer.to_str())
    tokenizer.add_tokens(["fox jumps", "jumps fox"])
    memory = word_memory.WordMemory(tokenizer)
    texts = ["the fox", "and jumps", "a fox jumps"]
    expected = LibraryEncoder(tokenizer).encode(texts)
    assert memory.encode(texts) == [*expected[:2], None]


CHANGES: dict[str, Any] = {
    "random merges": {"model": {"dropout": 0.1}},
    "another model": {"model": {"type": "Unigram"}},
    "lower case": {"normalizer": {"type": "Lowercase"}},
    "a space in front": {"pre_tokenizer": {"add_prefix_space": True}},
    "no pattern": {"pre_tokenizer": {"use_regex": False}},
    "another pre-tokenizer": {"pre_tokenizer": {"type": "Metaspace"}},
    "another post-processor": {"post_processor": {"type": "BertProcessing"}},
    "another post-processor among several": {
        "post_processor": {"type": "Sequence", "processors": [{"type": "BertProcessing"}]}
    },
}


@pytest.mark.parametrize("change", CHANGES)
def test_tokenizers_that_may_look_over_a_space_are_not_cut(change: str) -> None:
    parts = json.loads(gpt2_like().backend_tokenizer.to_str())
    assert splits_at_spaces(json.dumps(parts))
    for name, content in CHANGES[change].items():
        parts[name] = (parts[name] or {}) | content
    assert not splits_at_spaces(json.dumps(parts))


def test_a_pattern_that_is_not_known_is_not_cut() -> None:
    text = llama_like().backend_tokenizer.to_str()
    assert splits_at_spaces(text)
    assert not splits_at_spaces(text.replace("{1,3}", "{1,4}"))
    composed = json.loads(text) | {"normalizer": {"type": "NFC"}}
    assert splits_at_spaces(json.dumps(composed))
    composed["added_tokens"][0]["normalized"] = True
    assert not splits_at_spaces(json.dumps(composed))


def test_a_pattern_is_used_where_nothing_is_said_of_it() -> None:
    """As the library reads what its older versions wrote."""
    alone = json.loads(gpt2_like().backend_tokenizer.to_str())
    del alone["pre_tokenizer"]["use_regex"]
    assert splits_at_spaces(json.dumps(alone))
    behind = json.loads(llama_like().backend_tokenizer.to_str())
    del behind["pre_tokenizer"]["pretokenizers"][1]["use_regex"]
    assert not splits_at_spaces(json.dumps(behind))


def test_a_tokenizer_that_does_more_than_its_backend_is_asked_itself(tmp_path: Any) -> None:
    tokenizer = word_like()
    assert isinstance(make_encoder(describe_tokenizer(tokenizer, None, "")), LibraryEncoder)

    class Louder(type(tokenizer)):  # type: ignore[misc]
        def encode(self, text: str, **options: Any) -> list[int]:
            return [0, *super().encode(text, **options)]

    louder = Louder(tokenizer_object=tokenizer.backend_tokenizer, eos_token=END)
    tokenizer.save_pretrained(tmp_path)
    record = describe_tokenizer(louder, None, str(tmp_path))
    assert record.backend == ""
    encoder = make_encoder(record)
    assert isinstance(encoder, TransformersEncoder)
    assert encoder.encode(["the quick"]) == [tokenizer.encode("the quick")]


def test_padding_and_truncation_of_a_backend_are_not_applied() -> None:
    tokenizer = word_like()
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    backend["truncation"] = {
        "direction": "Right",
        "max_length": 2,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    encoder = LibraryEncoder(Tokenizer.from_str(json.dumps(backend)))
    text = "the quick brown fox"
    assert encoder.encode([text]) == [tokenizer.encode(text)]
