"""Articles as tokens: which belong to a prompt, which to a completion, and where articles and attention end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from samba_onnx.data_prep import PreparationOptions, UnitBoundary
from samba_onnx.tools.data_prep.articles import Article, Pair
from samba_onnx.tools.data_prep.token_types import TokenType
from samba_onnx.tools.data_prep.tokenizer_record import describe_tokenizer
from samba_onnx.tools.data_prep.tokenizing import ArticleTokenizer
from tests.tools.data_prep.tokenizers_of_tests import word_like

PACKED, ATTENDED = ({f"{what}_boundary": UnitBoundary.PAIR} for what in ("packing", "attention"))
FOX, FORTY = Pair("the", "quick fox", -1), Pair("what", "forty", -1)
NOTHING = Pair("", "", -1)


def tokenized(*articles: Article, **options: Any) -> list[str]:
    """Each article in words, with the first letter of what a word is to training."""
    tokenizer = word_like()
    maker = ArticleTokenizer(PreparationOptions(**options), describe_tokenizer(tokenizer, None, ""))
    made = maker.tokenize(articles)
    assert (made.planes.dtype, made.lengths.dtype) == (np.int32, np.int64)
    assert made.lengths.sum() == made.planes.shape[1]
    words = [
        f"{tokenizer.convert_ids_to_tokens(number).strip('<|>')}/{TokenType(kind).name[0].lower()}"
        for number, kind in made.planes[:2].T.tolist()
    ]
    ends = np.cumsum(made.lengths).tolist()
    return [" ".join(words[end - size : end]) for end, size in zip(ends, made.lengths, strict=True)]


BOUNDARIES: dict[str, tuple[Article, dict[str, Any], list[str]]] = {
    "a line": (
        Article((FOX, FORTY), True),
        {},
        ["the/p quick/c fox/c end/c what/p forty/c end/s"],
    ),
    "attention ends with a pair": (
        Article((FOX, FORTY), True),
        ATTENDED,
        ["the/p quick/c fox/c end/s what/p forty/c end/s"],
    ),
    "a pair is packed": (
        Article((FOX, FORTY), True),
        PACKED,
        ["the/p quick/c fox/c end/c", "what/p forty/c end/s"],
    ),
    "both": (
        Article((FOX, FORTY), True),
        PACKED | ATTENDED,
        ["the/p quick/c fox/c end/s", "what/p forty/c end/s"],
    ),
    "three": (
        Article((FOX, FORTY, FOX), True),
        PACKED,
        ["the/p quick/c fox/c end/c", "what/p forty/c end/c", "the/p quick/c fox/c end/s"],
    ),
    "the last pair of the line was left out": (
        Article((FOX, FORTY), False),
        PACKED,
        ["the/p quick/c fox/c end/c", "what/p forty/c end/c"],
    ),
    "the last pair of a packed line was left out": (
        Article((FOX, FORTY), False),
        {},
        ["the/p quick/c fox/c end/c what/p forty/c end/s"],
    ),
    "no pair is left": (Article((), False), {}, []),
    "a pair of nothing": (Article((NOTHING,), True), {}, []),
    "a pair of nothing ends no attention": (Article((NOTHING,), True), ATTENDED, []),
    "a pair of nothing after another": (
        Article((FOX, NOTHING), True),
        {},
        ["the/p quick/c fox/c end/s"],
    ),
    "no completion": (Article((Pair("the fox", "", -1),), True), {}, ["the/p fox/p end/s"]),
    "no prompt": (Article((Pair("", "the fox", -1),), True), {}, ["the/c fox/c end/s"]),
    "what stands around a prompt": (
        Article((FOX, Pair("", "forty", -1)), True),
        {"prompt_prefix": "over ", "prompt_postfix": " lazy"},
        ["over/p the/p lazy/p quick/c fox/c end/c forty/c end/s"],
    ),
}


@pytest.mark.parametrize(("article", "options", "wanted"), BOUNDARIES.values(), ids=BOUNDARIES)
def test_where_articles_and_attention_end(
    article: Article, options: dict[str, Any], wanted: list[str]
) -> None:
    assert tokenized(article, **options) == wanted
    # Nor does it matter what stands before and behind.
    around = Article((FORTY,), True)
    (alone,) = tokenized(around, **options)
    assert tokenized(around, article, around, **options) == [alone, *wanted, alone]


def test_every_token_has_the_category_of_its_pair() -> None:
    pairs = (Pair("the", "fox", 1), Pair("", "forty", -1))
    options = PreparationOptions(categories=("news", "code"))
    record = describe_tokenizer(word_like(), None, "")
    made = ArticleTokenizer(options, record).tokenize([Article(pairs, True)])
    assert made.planes[2].tolist() == [1, 1, 1, -1, -1]
    plain = ArticleTokenizer(PreparationOptions(), record).tokenize([Article(pairs, True)])
    assert plain.planes.tolist() == made.planes[:2].tolist()
