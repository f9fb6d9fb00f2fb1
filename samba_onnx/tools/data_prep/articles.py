"""From a line to pairs of prompt and completion, or to an error that says what is wrong with it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from samba_onnx.errors import DataError
from samba_onnx.tools.data_prep.preparation_options import PreparationOptions
from samba_onnx.tools.data_prep.token_types import NO_CATEGORY

CATEGORY_KEYWORD = "category"


class Pair(NamedTuple):
    """A prompt with its completion."""

    prompt: str
    completion: str
    category: int
    """Place of the category in the list, or -1."""


@dataclass(frozen=True)
class Article:
    """What a line says."""

    pairs: tuple[Pair, ...]
    """The pairs of the line that are not skipped."""
    whole: bool
    """Whether the last pair of the line is among them."""
    system: str | None = None
    """What a chat has before its first turn."""
    replaced: bool = False
    """Whether half characters were replaced in it."""


class UnknownCategoryError(DataError):
    """A line has a category that is not in the list: a mistake of the list as likely as of the line."""


def text_article(line: str) -> Article:
    """Return a line of text as an article: a completion without a prompt, as it is.

    Args:
        line: With the line break at its end, if there is one.
    """
    return Article((Pair("", line, NO_CATEGORY),), True)


class JsonReader:
    """Reads lines of JSON."""

    def __init__(self, options: PreparationOptions) -> None:
        """Take over what the user chose.

        Args:
            options: Keywords, categories, and what is skipped.
        """
        self._options = options
        names = options.categories
        self._ids = None if names is None else {name: i for i, name in enumerate(names)}
        self._replaced = False
        """Whether half characters were replaced in the line that is being read."""

    def read(self, line: str) -> Article:
        """Return what a line says.

        Args:
            line: A JSON object, or a list of some.

        Raises:
            DataError: It is something else, or lacks a completion, or has a category that nobody
                knows.
        """
        try:
            content = json.loads(line)
        # json has no error of its own for what is nested deeper than it can follow.
        except RecursionError:
            raise DataError("the JSON is nested too deeply") from None
        except ValueError as error:
            if not line.strip():
                raise DataError("the line is empty: expected a JSON object") from None
            raise DataError(f"this is no JSON: {error}") from None
        system, self._replaced = None, False
        if self._options.apply_chat_template:
            content, system = self._without_roles(content)
        items = content if isinstance(content, list) else [content]
        pairs = [self._pair(item) for item in items]
        kept = tuple(pair for pair in pairs if pair is not None)
        return Article(kept, bool(pairs) and pairs[-1] is not None, system, self._replaced)

    def _pair(self, item: Any) -> Pair | None:
        """Return a pair; None if it is skipped."""
        if not isinstance(item, dict):
            raise DataError(f"expected a JSON object, but this is {_kind(item)}")
        keyword = self._options.completion_keyword
        if keyword not in item:
            raise DataError(f"the completion {keyword!r} is missing: there are {_names(item)}")
        completion = self._text(item[keyword], keyword)
        prompt = self._text(item.get(self._options.prompt_keyword), self._options.prompt_keyword)
        if not completion and not self._options.keep_prompt_only_sequences:
            return None
        # A template writes itself what stands between the two.
        if self._options.space_separator and not self._options.apply_chat_template:
            prompt = prompt.rstrip(" ")
            completion = completion and " " + completion.lstrip(" ")
        return Pair(prompt, completion, self._category(item))

    def _text(self, value: Any, keyword: str) -> str:
        """Return a text, empty for null."""
        if value is None:
            return ""
        if not isinstance(value, str):
            raise DataError(f"expected text in {keyword!r}, but this is {_kind(value)}")
        text = replace_surrogates(value)
        self._replaced = self._replaced or text is not value
        return text

    def _category(self, item: dict[str, Any]) -> int:
        if self._ids is None or CATEGORY_KEYWORD not in item:
            return NO_CATEGORY
        name = item[CATEGORY_KEYWORD]
        if not isinstance(name, str) or name not in self._ids:
            known = ", ".join(self._ids) or "none"
            raise UnknownCategoryError(f"the category {name!r} is unknown: there are {known}")
        return self._ids[name]

    def _without_roles(self, content: Any) -> tuple[Any, str | None]:
        """Return pairs in place of messages with roles, and the system's message."""
        messages = content.get("messages") if isinstance(content, dict) else content
        is_chat = isinstance(messages, list) and all(
            isinstance(item, dict) and "role" in item for item in messages
        )
        if not is_chat or not messages:
            return content, None
        system = None
        if messages[0]["role"] == "system":
            system, messages = self._text(messages[0].get("content"), "content"), messages[1:]
        roles = [message["role"] for message in messages]
        if not roles or roles != ["user", "assistant"] * (len(roles) // 2):
            raise DataError(
                "expected messages of user and assistant in turn, after one of the system at most, "
                f"but the roles are {', '.join(map(str, roles)) or 'none'}"
            )
        turns = zip(messages[::2], messages[1::2], strict=True)
        return [self._turn(asked, answered) for asked, answered in turns], system

    def _turn(self, asked: dict[str, Any], answered: dict[str, Any]) -> dict[str, Any]:
        pair = {
            self._options.prompt_keyword: asked.get("content"),
            self._options.completion_keyword: answered.get("content"),
        }
        # Where both have one, that of the answer counts: it is what is trained.
        kinds = [
            message[CATEGORY_KEYWORD]
            for message in (answered, asked)
            if CATEGORY_KEYWORD in message
        ]
        return pair | {CATEGORY_KEYWORD: kinds[0]} if kinds else pair


def replace_surrogates(text: str) -> str:
    """Return a text with U+FFFD for half characters, which JSON can escape but UTF-8 cannot hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        # By way of UTF-16, in which two halves that belong together are one character again.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _names(item: dict[str, Any]) -> str:
    return ", ".join(map(repr, item)) or "no keys"


def _kind(value: Any) -> str:
    """Return what a value of JSON is, in words."""
    if value is None:
        return "null"
    words = {bool: "a truth value", int: "a number", float: "a number", str: "text", list: "a list"}
    return words.get(type(value), "an object")
