"""Chats: what the template writes belongs to prompts or completions, and texts are what they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from samba_onnx.data_prep import PreparationOptions, data_prep
from samba_onnx.errors import DataError
from samba_onnx.tools.data_prep.articles import Article, Pair
from samba_onnx.tools.data_prep.chat import ChatTemplate, require_chat_template
from tests.tools.data_prep.building import run, write
from tests.tools.data_prep.reference import Rules, read_sequences
from tests.tools.data_prep.tokenizers_of_tests import END, gpt2_like, llama_like, wrapped

TURNS = [
    {"prompt": " the quick? ", "completion": "brown\n"},
    {"prompt": "and", "completion": "fox"},
]
TEMPLATES = {
    "headers": (
        "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{{ eos_token }}\n{% endfor %}",
        [("<|begin|><user> the quick? <|end|>\n<assistant>", "brown\n<|end|>\n"),
         ("<user>and<|end|>\n<assistant>", "fox<|end|>\n")],
    ),
    "every turn begins anew": (
        "{% for m in messages %}{% if m.role == 'user' %}<s>[INST] {{ m.content }} [/INST]"
        "{% else %} {{ m.content }} </s>{% endif %}{% endfor %}",
        [("<s>[INST]  the quick?  [/INST] ", "brown\n </s>"),
         ("<s>[INST] and [/INST] ", "fox </s>")],
    ),
    "a system's message of its own": (
        "{% if messages[0].role != 'system' %}SYS be kind\n{% endif %}"
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
        [("SYS be kind\nuser:  the quick? \nassistant: ", "brown\n\n"), ("user: and\nassistant: ", "fox\n")],
    ),
}  # fmt: skip


def with_template(tokenizer: Any, template: str | None) -> Any:
    tokenizer.chat_template = template
    return tokenizer


def expected(tokenizer: Any, chats: list[list[tuple[str, str]]]) -> list[Any]:
    """Plain packing of texts that have their template around them already."""
    rules = Rules(tokenizer, 16, disable_space_separator=True)
    articles = []
    for chat in chats:
        article: list[Any] = []
        for prompt, completion in chat:
            tokens = rules.pair(prompt, completion, -1)
            if tokens[0][0] == tokenizer.bos_token_id:
                tokens = tokens[1:]
            article += tokens
        articles.append(rules._bounded(article))
    return rules.sequences(articles)


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("make", [gpt2_like, llama_like])
def test_turns_are_where_the_template_puts_them(name: str, make: Any, tmp_path: Path) -> None:
    template, turns = TEMPLATES[name]
    before = make().chat_template
    try:
        tokenizer = with_template(make(), template)
        if tokenizer.bos_token is None:
            turns = [(prompt.replace("<|begin|>", ""), text) for prompt, text in turns]
        source = write(tmp_path / "chat.jsonl", [json.dumps(TURNS), json.dumps(TURNS[0])])
        chosen = PreparationOptions(max_seq_length=16, apply_chat_template=True)
        data_prep(source, None, tokenizer, chosen)
        assert read_sequences(tmp_path / "chat.hdf5") == expected(tokenizer, [turns, turns[:1]])
    finally:
        with_template(make(), before)


def test_messages_with_roles_are_turns(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": " the quick? "},
        {"role": "assistant", "content": "brown\n"},
        {"role": "user", "content": "and"},
        {"role": "assistant", "content": "fox"},
    ]
    system = {"role": "system", "content": "look"}
    lines = [json.dumps(TURNS), json.dumps(messages), json.dumps({"messages": messages})]
    chosen = PreparationOptions(max_seq_length=128, apply_chat_template=True)
    files = []
    for place, line in enumerate([*lines, json.dumps([system, *messages])]):
        source = write(tmp_path / f"{place}.jsonl", [line])
        data_prep(source, None, llama_like(), chosen)
        files.append(read_sequences(tmp_path / f"{place}.hdf5"))
    assert files[0] == files[1] == files[2] != files[3]
    text = llama_like().decode([token[0] for sequence in files[3] for token in sequence])
    assert text.startswith(f"<|begin|>[system]\nlook{END}\n[user]\n the quick? {END}")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ([{"role": "user", "content": "x"}], "the roles are user"),
        ([{"role": "assistant", "content": "x"}] * 2, "the roles are assistant, assistant"),
        ([{"role": "system", "content": "x"}], "the roles are none"),
        ({"text": "x"}, "'completion' is missing"),
    ],
)
def test_other_chats_are_refused(line: Any, message: str, tmp_path: Path) -> None:
    source = write(tmp_path / "chat.jsonl", [json.dumps(line)])
    with pytest.raises(DataError, match=message):
        data_prep(source, None, llama_like(), PreparationOptions(apply_chat_template=True))


def test_a_tokenizer_without_a_template_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    source = write(tmp_path / "chat.jsonl", [json.dumps(TURNS)])
    with pytest.raises(DataError, match="no chat template"):
        data_prep(source, None, gpt2_like(), PreparationOptions(apply_chat_template=True))
    with pytest.raises(DataError, match="no chat template"):
        run(source, tmp_path / "out", apply_chat_template=True)
    assert list(tmp_path.iterdir()) == [source]


def test_what_ends_no_turn_and_begins_none_belongs_to_the_completion(tmp_path: Path) -> None:
    write_turns = (
        "{% for m in messages %}{{ m.content }}{% if m.role == 'user' %}?{% elif loop.last %}."
        "{% else %};{% endif %}{% endfor %}"
    )
    wrapped(gpt2_like().backend_tokenizer, chat_template=write_turns).save_pretrained(tmp_path)
    chat = Article((Pair("a", "b", 3), Pair("c", "d", -1)), True)
    wanted = (Pair("a?", "b;", 3), Pair("c?", "d.", -1))
    assert ChatTemplate(str(tmp_path)).apply(chat) == wanted


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ messages[0].content }}{{ messages[1].content }}", "does not write every prompt"),
        ("{% for m in messages %}{{ m.content * 2 }}{% endfor %}", "does not write every prompt"),
        (
            "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}",
            "does not write every prompt",
        ),
        ("{{ raise_exception('no chats') }}", "refuses the chat: no chats"),
    ],
)
def test_a_template_that_does_not_write_every_text_once_is_refused(
    template: str, message: str, tmp_path: Path
) -> None:
    wrapped(gpt2_like().backend_tokenizer, chat_template=template).save_pretrained(tmp_path)
    chat = Article((Pair("a", "b", -1),) * 2, True)
    with pytest.raises(DataError, match=f"^the chat template {message}"):
        ChatTemplate(str(tmp_path)).apply(chat)


def test_a_tokenizer_that_knows_no_templates_has_none() -> None:
    with pytest.raises(DataError, match="no chat template"):
        require_chat_template(object())
