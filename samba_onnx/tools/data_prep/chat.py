"""What a tokenizer's chat template writes around prompts and completions."""

from __future__ import annotations

import functools
from typing import Any

from samba_onnx.errors import DataError
from samba_onnx.tools.data_prep.articles import Article, Pair
from samba_onnx.tools.data_prep.libraries import library

_PROMPT, _COMPLETION = "\x01prompt\x01", "\x01completion\x01"
"""What stands for a prompt and a completion while the template writes around them: nothing that a
template would trim, or that stands in one."""


def require_chat_template(tokenizer: Any) -> None:
    """Refuse a tokenizer without a chat template, before hours go into splitting a text.

    Args:
        tokenizer: A tokenizer of transformers.

    Raises:
        DataError: It has none.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise DataError(
            "apply_chat_template: this tokenizer has no chat template: give one that has, or leave "
            "the option out"
        )


class ChatTemplate:
    """Puts the pairs of a chat into what the tokenizer's template writes.

    The template sees marks in place of texts, so that it cannot change a text; what it writes
    depends on the number of pairs and on the system's message alone, and is kept.
    """

    def __init__(self, folder: str) -> None:
        """Load the tokenizer.

        Args:
            folder: Where it is saved in transformers' format.

        Raises:
            DataError: It has no chat template.
        """
        self._tokenizer = library("transformers").AutoTokenizer.from_pretrained(folder)
        require_chat_template(self._tokenizer)
        self._surroundings = functools.lru_cache(maxsize=256)(self._render)

    def apply(self, article: Article) -> tuple[Pair, ...]:
        """Return the pairs of an article with what the template writes around them.

        Args:
            article: A chat.

        Returns:
            Pairs whose prompts begin where the completion before has ended, up to the completion.

        Raises:
            DataError: The template refuses the chat.
        """
        if not article.pairs:
            return ()
        around = self._surroundings(len(article.pairs), article.system)
        return tuple(
            Pair(before + pair.prompt + between, pair.completion + after, pair.category)
            for pair, (before, between, after) in zip(article.pairs, around, strict=True)
        )

    def _render(self, count: int, system: str | None) -> tuple[tuple[str, str, str], ...]:
        """Return what is written before, within and after each of ``count`` pairs."""
        messages: list[dict[str, Any]] = []
        if system is not None:
            messages.append({"role": "system", "content": system})
        for _ in range(count):
            messages.append({"role": "user", "content": _PROMPT})
            messages.append({"role": "assistant", "content": _COMPLETION})
        try:
            text = self._tokenizer.apply_chat_template(messages, tokenize=False)
        except Exception as error:  # whatever a template raises
            raise DataError(f"the chat template refuses the chat: {error}") from None
        first, *turns = text.split(_PROMPT)
        halves = [turn.split(_COMPLETION) for turn in turns]
        if len(halves) != count or any(len(half) != 2 for half in halves):
            raise DataError("the chat template does not write every prompt and completion once")
        tail = halves[-1][1]
        ends = [self._cut(half[1], first, tail) for half in halves[:-1]]
        befores = [first, *(before for _, before in ends)]
        afters = [*(after for after, _ in ends), tail]
        return tuple(
            (before, half[0], after)
            for before, half, after in zip(befores, halves, afters, strict=True)
        )

    @staticmethod
    def _cut(between: str, first: str, tail: str) -> tuple[str, str]:
        """Cut what stands between a completion and the next prompt where the next turn begins."""
        # Case 1: every turn begins as the first one does.
        if first and between.endswith(first):
            return between.removesuffix(first), first
        # Case 2: the first turn has more before it, as a system's message; a completion ends as
        # the last one does.
        if between.startswith(tail):
            return tail, between.removeprefix(tail)
        # Case 3: nothing tells where the turn begins.
        return between, ""
