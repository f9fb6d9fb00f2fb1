"""What lines say: pairs of prompt and completion, chats, and every way in which a line is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from samba_onnx.errors import DataError
from samba_onnx.tools.data_prep.articles import (
    Article,
    JsonReader,
    Pair,
    UnknownCategoryError,
    replace_surrogates,
    text_article,
)
from samba_onnx.tools.data_prep.preparation_options import PreparationOptions

CATEGORIES = ("news", "code")


def read(line: Any, **options: Any) -> Article:
    """Return what a line says; of anything but text its JSON."""
    text = line if isinstance(line, str) else json.dumps(line)
    return JsonReader(PreparationOptions(**{"space_separator": False, **options})).read(text)


def pair(prompt: Any, completion: Any, **more: Any) -> dict[str, Any]:
    return {"prompt": prompt, "completion": completion, **more}


def turn(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


PLAIN: dict[str, tuple[Any, dict[str, Any], Article]] = {
    "an object": (pair("a", "b"), {}, Article((Pair("a", "b", -1),), True)),
    "a list": (
        [pair("a", "b"), pair("c", "d")],
        {},
        Article((Pair("a", "b", -1), Pair("c", "d", -1)), True),
    ),
    "an empty list": ([], {}, Article((), False)),
    "no prompt": ({"completion": "b"}, {}, Article((Pair("", "b", -1),), True)),
    "null": (pair(None, "b"), {}, Article((Pair("", "b", -1),), True)),
    "nothing to learn": (pair("a", ""), {}, Article((), False)),
    "nothing to learn at last": (
        [pair("a", "b"), pair("c", None)],
        {},
        Article((Pair("a", "b", -1),), False),
    ),
    "nothing to learn at first": (
        [pair("a", ""), pair("c", "d")],
        {},
        Article((Pair("c", "d", -1),), True),
    ),
    "nothing to learn, kept": (
        pair("a ", ""),
        {"keep_prompt_only_sequences": True, "space_separator": True},
        Article((Pair("a", "", -1),), True),
    ),
    "spaces that stay": (pair("a ", " b"), {}, Article((Pair("a ", " b", -1),), True)),
    "spaces": (pair(" aX  ", "  Xb "), {"space_separator": True}, Article((Pair(" aX", " Xb ", -1),), True)),
    "other white space": (
        pair("a\n", "\tb"),
        {"space_separator": True},
        Article((Pair("a\n", " \tb", -1),), True),
    ),
    "spaces of a chat": (
        pair("a ", " b"),
        {"space_separator": True, "apply_chat_template": True},
        Article((Pair("a ", " b", -1),), True),
    ),
    "other keys": (
        {"q": "a", "r": "b", "prompt": 5},
        {"prompt_keyword": "q", "completion_keyword": "r"},
        Article((Pair("a", "b", -1),), True),
    ),
    "a category": (
        [pair("a", "b", category="code"), pair("c", "d")],
        {"categories": CATEGORIES},
        Article((Pair("a", "b", 1), Pair("c", "d", -1)), True),
    ),
    "a category that nobody asked for": (
        pair("a", "b", category=3),
        {},
        Article((Pair("a", "b", -1),), True),
    ),
    "half a character": (
        '[{"completion": "x\\ud800y"}, {"completion": "z"}]',
        {},
        Article((Pair("", "x\ufffdy", -1), Pair("", "z", -1)), True, replaced=True),
    ),
    "two halves": (
        '{"completion": "\\ud83d\\ude00"}',
        {},
        Article((Pair("", "\U0001f600", -1),), True),
    ),
}  # fmt: skip
CHAT = {"apply_chat_template": True}
TURNS = [turn("user", "a"), turn("assistant", "b")]
CHATS: dict[str, tuple[Any, dict[str, Any], Article]] = {
    "turns": (TURNS * 2, CHAT, Article((Pair("a", "b", -1),) * 2, True)),
    "a system": (
        {"messages": [turn("system", "s"), *TURNS]},
        CHAT,
        Article((Pair("a", "b", -1),), True, "s"),
    ),
    "a system of nothing": (
        [{"role": "system"}, *TURNS],
        CHAT,
        Article((Pair("a", "b", -1),), True, ""),
    ),
    "no roles": ([pair("a", "b")], CHAT, Article((Pair("a", "b", -1),), True)),
    "no messages": ([], CHAT, Article((), False)),
    "nothing said": ([{"role": "user"}, turn("assistant", "b")], CHAT, Article((Pair("", "b", -1),), True)),
    "categories": (
        [
            turn("user", "a", category="news"), turn("assistant", "b", category="code"),
            turn("user", "c", category="news"), turn("assistant", "d"),
        ],
        {**CHAT, "categories": CATEGORIES},
        Article((Pair("a", "b", 1), Pair("c", "d", 0)), True),
    ),
    "half a character of the system": (
        '[{"role": "system", "content": "\\ud800"}, {"role": "user", "content": "a"},'
        ' {"role": "assistant", "content": "b"}]',
        CHAT,
        Article((Pair("a", "b", -1),), True, "\ufffd", replaced=True),
    ),
}  # fmt: skip
SAID = PLAIN | CHATS


@pytest.mark.parametrize(("line", "options", "wanted"), SAID.values(), ids=SAID.keys())
def test_what_a_line_says(line: Any, options: dict[str, Any], wanted: Article) -> None:
    assert read(line, **options) == wanted


def test_a_reader_remembers_nothing_of_the_line_before() -> None:
    reader = JsonReader(PreparationOptions())
    assert reader.read('{"completion": "\\udc00"}').replaced
    assert not reader.read('{"completion": "b"}').replaced


WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "empty": (" \n", {}, "the line is empty: expected a JSON object"),
    "no JSON": ("{", {}, "this is no JSON: Expecting property name"),
    "deep": ("[" * 100_000, {}, "the JSON is nested too deeply"),
    "null": (None, {}, "expected a JSON object, but this is null"),
    "true": (True, {}, "expected a JSON object, but this is a truth value"),
    "a number": (5, {}, "expected a JSON object, but this is a number"),
    "a fraction": (0.5, {}, "expected a JSON object, but this is a number"),
    "text": ('"a"', {}, "expected a JSON object, but this is text"),
    "a list": ([[]], {}, "expected a JSON object, but this is a list"),
    "no completion": (
        {"prompt": "a", "x": 1},
        {},
        "the completion 'completion' is missing: there are 'prompt', 'x'",
    ),
    "no keys": ({}, {}, "the completion 'completion' is missing: there are no keys"),
    "a completion that is no text": (
        pair("a", {}),
        {},
        "expected text in 'completion', but this is an object",
    ),
    "a prompt that is no text": (pair(1, "b"), {}, "expected text in 'prompt', but this is a number"),
    "a system that is no text": (
        [turn("system", 1), *TURNS],
        CHAT,
        "expected text in 'content', but this is a number",
    ),
    "roles": (
        [turn("user", "a"), turn("tool", "b")],
        CHAT,
        "expected messages of user and assistant in turn, after one of the system at most, but the "
        "roles are user, tool",
    ),
    "half a turn": ([turn("user", "a")], CHAT, "but the roles are user$"),
    "a system alone": ([turn("system", "a")], CHAT, "but the roles are none$"),
    "a turn among others": ([*TURNS, pair("a", "b")], CHAT, "the completion 'completion' is missing"),
    "messages without a template": (
        {"messages": TURNS},
        {},
        "the completion 'completion' is missing: there are 'messages'",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("line", "options", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_with_a_line(line: Any, options: dict[str, Any], message: str) -> None:
    text = "null" if line is None else line
    with pytest.raises(DataError, match="^" + message if message[0] != "b" else message) as caught:
        read(text, **options)
    assert not isinstance(caught.value, UnknownCategoryError)


@pytest.mark.parametrize(
    ("category", "categories", "message"),
    [
        ("x", CATEGORIES, "the category 'x' is unknown: there are news, code"),
        (["news"], CATEGORIES, r"the category \['news'\] is unknown: there are news, code"),
        ("x", (), "the category 'x' is unknown: there are none"),
    ],
)
def test_a_category_that_nobody_knows(
    category: Any, categories: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UnknownCategoryError, match=message):
        read(pair("a", "b", category=category), categories=categories)


def test_text_is_a_completion_as_it_is() -> None:
    assert text_article(" a \n") == Article((Pair("", " a \n", -1),), True)
    assert replace_surrogates("a\udc00b\ud83d\ude00") == "a\ufffdb\U0001f600"
