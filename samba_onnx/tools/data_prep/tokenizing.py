"""From articles to tokens, each with what it is to training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from samba_onnx.tools.data_prep.articles import Article, Pair
from samba_onnx.tools.data_prep.chat import ChatTemplate
from samba_onnx.tools.data_prep.encoding import Encoder, make_encoder
from samba_onnx.tools.data_prep.preparation_options import PreparationOptions, UnitBoundary
from samba_onnx.tools.data_prep.token_types import Articles, TokenType
from samba_onnx.tools.data_prep.tokenizer_record import TokenizerRecord


@dataclass
class _Builder:
    """Tokens of articles, as they are put together: runs of one type and category."""

    ids: list[int] = field(default_factory=list)
    run_lengths: list[int] = field(default_factory=list)
    run_types: list[int] = field(default_factory=list)
    run_categories: list[int] = field(default_factory=list)
    separators: list[int] = field(default_factory=list)
    """Places of tokens that end what may be attended to."""
    ends: list[int] = field(default_factory=list)
    """Places after the last tokens of articles."""

    def add(self, ids: list[int], kind: TokenType, category: int) -> None:
        """Add a run of tokens."""
        self.ids += ids
        self.run_lengths.append(len(ids))
        self.run_types.append(kind)
        self.run_categories.append(category)

    def finish(self, categories: bool) -> Articles:
        """Return everything as arrays."""
        runs = [self.run_types, self.run_categories] if categories else [self.run_types]
        planes = np.empty((1 + len(runs), len(self.ids)), np.int32)
        planes[0] = self.ids
        for plane, values in zip(planes[1:], runs, strict=True):
            plane[:] = np.repeat(values, self.run_lengths)
        planes[1, self.separators] = TokenType.SEPARATOR
        return Articles(planes, np.diff([0, *self.ends]))


class ArticleTokenizer:
    """Makes tokens of articles."""

    def __init__(self, options: PreparationOptions, record: TokenizerRecord) -> None:
        """Get the tokenizer ready.

        Args:
            options: Boundaries, and what stands around prompts.
            record: The tokenizer.

        Raises:
            UsageError: A library is missing.
            DataError: The tokenizer lacks the chat template that the options ask for.
        """
        self._options = options
        self._record = record
        self._encoder: Encoder = make_encoder(record)
        self._chat = ChatTemplate(record.folder) if options.apply_chat_template else None

    def tokenize(self, articles: Sequence[Article]) -> Articles:
        """Return the tokens of some articles.

        Args:
            articles: What lines say.

        Returns:
            Arrays with the articles that are to be packed: one of each line, or one of each pair.

        Raises:
            DataError: The chat template refuses an article.
        """
        chats = [self._pairs(article) for article in articles]
        texts = [text for pairs in chats for pair in pairs for text in self._texts(pair)]
        encoded = iter(self._encoder.encode(texts))
        builder = _Builder()
        for article, pairs in zip(articles, chats, strict=True):
            self._add(builder, pairs, article.whole, encoded)
        return builder.finish(self._options.categories is not None)

    def _pairs(self, article: Article) -> tuple[Pair, ...]:
        return article.pairs if self._chat is None else self._chat.apply(article)

    def _texts(self, pair: Pair) -> Iterable[str]:
        """Yield what is encoded of a pair: what is empty adds nothing, not even special tokens."""
        if pair.prompt:
            yield self._options.prompt_prefix + pair.prompt + self._options.prompt_postfix
        if pair.completion:
            yield pair.completion

    def _add(
        self, builder: _Builder, pairs: tuple[Pair, ...], whole: bool, encoded: Iterator[list[int]]
    ) -> None:
        """Add the article of a line, or an article for each of its pairs."""
        by_pair = self._options.packing_boundary is UnitBoundary.PAIR
        attends_by_pair = self._options.attention_boundary is UnitBoundary.PAIR
        begin = len(builder.ids)
        for place, pair in enumerate(pairs):
            before = len(builder.ids)
            self._add_pair(builder, pair, encoded)
            if attends_by_pair and len(builder.ids) > before:
                builder.separators.append(len(builder.ids) - 1)
            # The last pair of a line ends with the line, below.
            if by_pair and not (whole and place == len(pairs) - 1):
                begin = len(builder.ids)
                builder.ends.append(begin)
        if len(builder.ids) > begin:
            builder.separators.append(len(builder.ids) - 1)
            builder.ends.append(len(builder.ids))

    def _add_pair(self, builder: _Builder, pair: Pair, encoded: Iterator[list[int]]) -> None:
        """Add a prompt, its completion, and the token that ends both."""
        end, begin = self._record.end, self._record.begin
        before = len(builder.ids)
        if pair.prompt:
            prompt = next(encoded)
            # Some tokenizers end every text; an article is ended once, below.
            if prompt and prompt[-1] == end:
                prompt = prompt[:-1]
            if self._chat is not None and prompt and prompt[0] == begin:
                prompt = prompt[1:]  # the template writes its own
            builder.add(prompt, TokenType.PROMPT, pair.category)
        if pair.completion:
            completion = next(encoded)
            # The prompt has begun the article.
            if pair.prompt and completion and completion[0] == begin:
                completion = completion[1:]
            if completion and completion[-1] == end:
                completion = completion[:-1]
            builder.add(completion, TokenType.COMPLETION, pair.category)
        if len(builder.ids) > before:
            builder.add([end], TokenType.COMPLETION, pair.category)
