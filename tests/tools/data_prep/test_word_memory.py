"""The memory of words: where texts are cut, what the tokenizer is still asked, and how much is kept."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from samba_onnx.tools.data_prep import word_memory
from samba_onnx.tools.data_prep.word_memory import WordMemory, _cut
from tests.tools.data_prep.tokenizers_of_tests import gpt2_like, llama_like


class Asked:
    """A tokenizer that remembers the texts that it was asked to encode."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.texts: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def encode(self, text: str, **options: Any) -> Any:
        self.texts.append(text)
        return self._tokenizer.encode(text, **options)

    def encode_batch_fast(self, texts: list[str], **options: Any) -> Any:
        self.texts += texts
        return self._tokenizer.encode_batch_fast(texts, **options)


def memory_of(tokenizer: Any) -> tuple[WordMemory, list[str]]:
    asked = Asked(tokenizer.backend_tokenizer)
    memory = WordMemory(asked)
    asked.texts.clear()
    return memory, asked.texts


def test_a_text_is_cut_at_the_spaces_that_stand_alone() -> None:
    """Neither beside other white space, nor at the end."""
    for text in map(
        "".join, itertools.chain(*(itertools.product("a \n", repeat=n) for n in range(7)))
    ):
        begins = [
            place
            for place, character in enumerate(text)
            if character == " "
            and not text[max(0, place - 1) : place].isspace()
            and text[place + 1 : place + 2].strip()
        ]
        parts = [text[begin + 1 : end] for begin, end in itertools.pairwise([*begins, len(text)])]
        assert _cut(text) == [text[: begins[0] if begins else None], *parts], repr(text)


def test_new_words_are_encoded_as_one_text_and_never_again() -> None:
    memory, asked = memory_of(gpt2_like())
    texts = ["the quick brown fox", "the lazy dog", "dog"]
    encoded = memory.encode(texts)
    assert encoded == [gpt2_like().encode(text) for text in texts]
    assert asked == ["the", "dog", " quick brown fox lazy dog"]
    assert memory.encode(texts) == encoded
    assert len(asked) == 3
    # What has white space inside may depend on what follows it.
    memory.encode(["the a\n b", "the c\td"])
    assert asked[3:] == [" c\td", " a\n b"]


@pytest.mark.parametrize("at_once", [1, 2, 3, 4, 5])
def test_a_word_is_encoded_once_however_many_are_encoded_together(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(word_memory, "WORDS_AT_ONCE", at_once)
    memory, asked = memory_of(gpt2_like())
    words = ["quick", "brown", "fox", "jumps"]
    assert memory.encode([" ".join(["the", *words])])[0] == gpt2_like().encode(
        "the quick brown fox jumps"
    )
    parts = [words[begin : begin + at_once] for begin in range(0, 4, at_once)]
    assert asked == ["the", *(f" {' '.join(part)}" for part in parts)]


@pytest.mark.parametrize("make", [gpt2_like, llama_like])
def test_special_tokens_stand_around_texts_and_not_around_words(make: Any) -> None:
    memory, _ = memory_of(make())
    texts = ["the fox  jumps\n over", "", "fox"]
    assert memory.encode(texts) == [make().encode(text) for text in texts]


def test_a_tokenizer_may_have_no_added_tokens() -> None:
    alphabet = {
        token: place for place, token in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))
    }
    tokenizer = Tokenizer(models.BPE(alphabet, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    assert WordMemory(tokenizer).encode(["a b"]) == [tokenizer.encode("a b").ids]


def remembered(memory: WordMemory) -> list[str]:
    words = [*memory._first, *memory._spaced]
    assert memory._characters == sum(map(len, words))
    return sorted(words)


def test_when_there_is_too_much_the_latest_words_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_memory, "MOST_CHARACTERS", 10)
    memory, _ = memory_of(gpt2_like())

    def encode(*texts: str) -> None:
        assert memory.encode(texts) == [gpt2_like().encode(text) for text in texts]

    encode("a bcd ef")
    encode("g hij")
    assert remembered(memory) == ["a", "bcd", "ef", "g", "hij"]  # as much as there may be
    encode("a hij kl", "x")
    assert remembered(memory) == ["hij", "kl"]  # half of it may stay
    encode("hij a kl")
    encode("a hijk lm")
    assert remembered(memory) == []  # more than half may not
    encode("a hijk lm a")
    assert remembered(memory) == ["a", "a", "hijk", "lm"]
