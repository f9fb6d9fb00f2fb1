"""What is kept of a tokenizer, and how it is loaded and saved."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import transformers

from samba_onnx.errors import OutputError, UsageError
from samba_onnx.tools.data_prep.tokenizer_record import (
    describe_tokenizer,
    load_tokenizer,
    save_tokenizer,
)
from tests.tools.data_prep.tokenizers_of_tests import END, PAD, gpt2_like, llama_like, wrapped


def like(tokenizer: Any, **changes: Any) -> Any:
    """Nothing but what every tokenizer has, and some more."""
    names = ("eos_token_id", "bos_token_id", "pad_token_id", "vocab_size", "encode")
    return SimpleNamespace(**{name: getattr(tokenizer, name) for name in names}, **changes)


def test_a_record_has_the_ids_of_its_tokenizer() -> None:
    tokenizer = llama_like()
    record = describe_tokenizer(tokenizer, None, "there")
    assert (record.begin, record.end, record.padding) == (
        tokenizer.bos_token_id,
        tokenizer.eos_token_id,
        tokenizer.pad_token_id,
    )
    assert len({record.begin, record.end, record.padding}) == 3
    assert (record.vocabulary, record.model_type) == (tokenizer.vocab_size, None)
    assert record.folder == "there"


def test_the_end_is_the_padding_of_a_tokenizer_that_has_none() -> None:
    backend = gpt2_like().backend_tokenizer
    assert describe_tokenizer(wrapped(backend, eos_token=PAD), None, "").padding == 2
    zero = wrapped(backend, eos_token=PAD, pad_token=END)
    assert describe_tokenizer(zero, None, "").padding == zero.pad_token_id == 0


def test_a_model_is_known_by_the_class_of_its_configuration() -> None:
    record = describe_tokenizer(gpt2_like(), transformers.GPT2Config(), "")
    assert record.model_type == str(transformers.GPT2Config)


@pytest.mark.parametrize(
    ("changes", "is_used"),
    [
        ({"is_fast": True}, True),
        ({"is_fast": True, "split_special_tokens": False}, True),
        ({"is_fast": True, "split_special_tokens": True}, False),
        ({"is_fast": False}, False),
        ({}, False),
    ],
)
def test_a_backend_is_used_where_it_does_all_that_the_tokenizer_does(
    changes: dict[str, Any], is_used: bool
) -> None:
    backend = gpt2_like().backend_tokenizer
    tokenizer = like(gpt2_like(), backend_tokenizer=backend, **changes)
    assert describe_tokenizer(tokenizer, None, "").backend == (backend.to_str() if is_used else "")


def test_a_configuration_is_saved_with_its_tokenizer(tmp_path: Path) -> None:
    save_tokenizer(gpt2_like(), transformers.GPT2Config(n_embd=4), tmp_path / "tokenizer")
    assert json.loads((tmp_path / "tokenizer" / "config.json").read_text())["n_embd"] == 4
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer"]
    tokenizer, config = load_tokenizer(str(tmp_path / "tokenizer"))
    assert (tokenizer.eos_token, config.n_embd) == (gpt2_like().eos_token, 4)
    save_tokenizer(gpt2_like(), None, tmp_path / "tokenizer")
    assert not (tmp_path / "tokenizer" / "config.json").exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="gone/tokenizer: cannot write: "):
        save_tokenizer(gpt2_like(), None, tmp_path / "gone" / "tokenizer")


@pytest.mark.parametrize(
    ("error", "reason"),
    [(ValueError(" no tokenizer\nhere"), "no tokenizer"), (KeyError(), "KeyError")],
)
def test_of_what_transformers_says_the_first_line_is_shown(
    error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> None:
        raise error

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", fail)
    with pytest.raises(UsageError) as caught:
        load_tokenizer("there")
    assert str(caught.value) == (
        f"pretrained_tokenizer there: cannot be loaded ({reason}): give a folder that "
        "save_pretrained of a tokenizer has written"
    )
