"""What the data preparation does, written down as plainly as its rules: token by token, in loops."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py

Token = tuple[int, int, int]
"""Id, type, category."""


@dataclass
class Rules:
    """The flags, by their names on the command line."""

    tokenizer: Any
    max_seq_length: int = 8
    input_packing_config: str = "full"
    packing_boundary: str = "jsonl"
    attention_boundary: str = "jsonl"
    disable_space_separator: bool = False
    keep_prompt_only_sequences: bool = False
    prompt_prefix: str = ""
    prompt_postfix: str = ""
    categories: list[str] | None = None

    def pair(self, prompt: str, completion: str, category: int) -> list[Token]:
        """Tokens of a prompt with its completion, before any is a separator."""
        end, begin = self.tokenizer.eos_token_id, self.tokenizer.bos_token_id
        tokens: list[Token] = []
        if prompt:
            ids = self.tokenizer.encode(self.prompt_prefix + prompt + self.prompt_postfix)
            if ids and ids[-1] == end:
                ids.pop()
            tokens.extend((i, 0, category) for i in ids)
        if completion:
            ids = self.tokenizer.encode(completion)
            if prompt and ids and ids[0] == begin:
                ids.pop(0)
            if ids and ids[-1] == end:
                ids.pop()
            tokens.extend((i, 1, category) for i in ids)
        if tokens:
            tokens.append((end, 1, category))
        return tokens

    def line(self, line: str, is_json: bool) -> list[list[Token]]:
        """Articles of a line."""
        if not is_json:
            return [self._bounded(self.pair("", line, -1))]
        content = json.loads(line)
        pairs = content if isinstance(content, list) else [content]
        articles: list[list[Token]] = []
        article: list[Token] = []
        for number, pair in enumerate(pairs):
            prompt, completion = pair.get("prompt") or "", pair["completion"] or ""
            if completion == "" and not self.keep_prompt_only_sequences:
                continue
            if not self.disable_space_separator:
                while prompt.endswith(" "):
                    prompt = prompt[:-1]
                while completion.startswith(" "):
                    completion = completion[1:]
                if pair["completion"]:
                    completion = " " + completion
            category = -1
            if self.categories is not None and "category" in pair:
                category = self.categories.index(pair["category"])
            article += self.pair(prompt, completion, category)
            if self.attention_boundary == "prompt_completion_pair":
                article = self._bounded(article)
            if self.packing_boundary == "prompt_completion_pair" and number < len(pairs) - 1:
                articles.append(article)
                article = []
        return [*articles, self._bounded(article)]

    @staticmethod
    def _bounded(article: list[Token]) -> list[Token]:
        """The same with a separator at its end."""
        return [*article[:-1], (article[-1][0], 3, article[-1][2])] if article else []

    def sequences(self, articles: list[list[Token]]) -> list[list[Token]]:
        """Articles in sequences."""
        style, _, overflow = self.input_packing_config.partition("::")
        done: list[list[Token]] = []
        sequence: list[Token] = []
        for article in articles:
            if style == "full":
                for token in article:
                    if len(sequence) == self.max_seq_length:
                        done.append(sequence)
                        sequence = []
                    sequence = [*sequence, token]
            elif len(article) + len(sequence) <= self.max_seq_length and style == "greedy":
                sequence = sequence + article
            else:
                if sequence:
                    done.append(sequence)
                excess = len(article) - self.max_seq_length
                if excess > 0:
                    cut = {
                        "drop": [],
                        "truncate_left": article[excess:],
                        "truncate_right": article[:-excess],
                    }
                    article = cut[overflow]
                sequence = article
                if style == "single" and sequence:
                    done.append(sequence)
                    sequence = []
        if sequence:
            done.append(sequence)
        padding = self.tokenizer.pad_token_id
        pad = (self.tokenizer.eos_token_id if padding is None else padding, 2, -1)
        padded = [one + [pad] * (self.max_seq_length - len(one)) for one in done]
        if self.keep_prompt_only_sequences:
            return padded
        return [one for one in padded if any(kind == 1 for _, kind, _ in one)]

    def file(self, lines: list[str], is_json: bool = True) -> list[list[Token]]:
        """Sequences of lines."""
        return self.sequences([article for line in lines for article in self.line(line, is_json)])


def read_sequences(path: Path) -> list[list[Token]]:
    """What an HDF5 file holds; -1 for categories that it does not have."""
    with h5py.File(path) as file:
        ids, kinds = file["input_ids"][:].tolist(), file["token_type_ids"][:].tolist()
        categories = [[-1] * len(row) for row in ids]
        if "category_ids" in file:
            categories = file["category_ids"][:].tolist()
    rows = zip(ids, kinds, categories, strict=True)
    return [list(zip(*row, strict=True)) for row in rows]
