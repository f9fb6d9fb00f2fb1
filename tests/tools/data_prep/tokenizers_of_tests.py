"""Small tokenizers of the kinds that models have, trained on a few words."""

from __future__ import annotations

import functools
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

END, BEGIN, PAD = "<|end|>", "<|begin|>", "<|pad|>"
CORPUS = (
    "the quick brown fox jumps over the lazy dog, and doesn't look back at 1234 or 56;",
    "what is the answer? the answer is forty two.\n\nnothing else\tmatters much",
    "\u00e9t\u00e9 \u00fcber \u4e2d\u6587 \u0440\u0443\u0441\u0441\u043a\u0438\u0439 x = f(y)[0] + 3.14159",
)
LLAMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT = (
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]\n{{ m.content | trim }}{{ eos_token }}\n"
    "{% endfor %}"
)


@functools.cache
def gpt2_like() -> Any:
    """Byte pairs after GPT-2's pattern; no token is added by itself, and padding is the end."""
    return wrapped(bytes_tokenizer(pre_tokenizers.ByteLevel(add_prefix_space=False)), eos_token=END)


@functools.cache
def llama_like() -> Any:
    """Byte pairs after Llama 3's pattern; begin and end are added by itself."""
    split = pre_tokenizers.Split(Regex(LLAMA), "isolated")
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer = bytes_tokenizer(pre_tokenizers.Sequence([split, level]))
    ids = [(token, tokenizer.token_to_id(token)) for token in (BEGIN, END)]
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(f"{BEGIN} $A {END}", special_tokens=ids),
        ]
    )
    result = wrapped(tokenizer, eos_token=END, bos_token=BEGIN, pad_token=PAD)
    result.chat_template = CHAT
    return result


@functools.cache
def word_like() -> Any:
    """A token for every word, without byte pairs; what it does not know is one token."""
    words = sorted({word for line in CORPUS for word in line.split()})
    model = models.WordLevel({word: i for i, word in enumerate([END, PAD, "?", *words])}, "?")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return wrapped(tokenizer, eos_token=END, pad_token=PAD, unk_token="?")


def bytes_tokenizer(pre_tokenizer: Any) -> Any:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[END, BEGIN, PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def wrapped(tokenizer: Any, **tokens: str) -> Any:
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokens)


ALL = {"gpt2": gpt2_like, "llama": llama_like, "words": word_like}
