"""What the preparation has to know of a tokenizer, and how it is loaded and saved."""

from __future__ import annotations

import json
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samba_onnx.errors import UsageError
from samba_onnx.tools.data_prep.hdf5_files import write_errors
from samba_onnx.tools.data_prep.libraries import library

SAMPLES = (
    "Hello world",
    "two  spaces,\n\n a tab\tand\r\nlines \n",
    "don't 12345 3.14 x=y[0];  ",
    " leading, \u00e9t\u00e9 \u00fcber \u4e2d\u6587 \u0440\u0443\u0441 \U0001f600 \u0301x\u00a0y",
    "",
)
"""Texts on which encoders are compared with the tokenizer's own ``encode`` before one is used."""


@dataclass(frozen=True)
class TokenizerRecord:
    """A tokenizer, in few enough words that worker processes need no transformers."""

    end: int
    """Id of the end-of-sequence token."""
    begin: int | None
    """Id of the begin-of-sequence token."""
    padding: int
    """Id of the padding token, or of the end where there is none."""
    vocabulary: int
    """Number of tokens without those that were added."""
    model_type: str | None
    """Python's name for the class of the model's configuration; None where there is none."""
    backend: str
    """JSON for the tokenizers library; empty if only transformers has the tokenizer."""
    folder: str
    """Where the tokenizer is saved."""


def load_tokenizer(name: str, special_tokens: str | None = None) -> tuple[Any, Any]:
    """Load a tokenizer of transformers, and the configuration of its model if there is one.

    Args:
        name: A folder, or a name that transformers finds.
        special_tokens: JSON of special tokens to add, as ``{"pad_token": "<pad>"}``.

    Returns:
        The tokenizer, and the configuration or None.

    Raises:
        UsageError: There is no such tokenizer, it has no end-of-sequence token, or the JSON is
            broken or names tokens that a tokenizer does not have.
    """
    transformers = library("transformers")
    transformers.logging.set_verbosity_error()  # of texts that are longer than a model takes
    # Each of its many tries to reach the hub would be a line of its own, before our one that counts.
    library("huggingface_hub.utils.logging").set_verbosity_error()
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(name)
    except Exception as error:  # transformers has many, of many kinds
        words = str(error).strip().splitlines() or [type(error).__name__]
        raise UsageError(
            f"pretrained_tokenizer {name}: cannot be loaded ({words[0]}): give a folder that "
            "save_pretrained of a tokenizer has written"
        ) from None
    if special_tokens is not None:
        _add_special_tokens(tokenizer, special_tokens)
    if tokenizer.eos_token_id is None:
        raise UsageError(
            f"pretrained_tokenizer {name}: it has no end-of-sequence token, which ends every "
            'article: name one with --special_tokens_dict \'{"eos_token": "<|endoftext|>"}\''
        )
    try:
        config = transformers.AutoConfig.from_pretrained(name)
    except Exception:  # a tokenizer may well come without a model
        config = None
    return tokenizer, config


def _add_special_tokens(tokenizer: Any, text: str) -> None:
    tokens = _json(text)
    if tokens is None:  # as scripts have it that quote the other way round
        tokens = _json(text.replace("'", '"'))
    if not isinstance(tokens, dict):
        raise UsageError(
            f'special_tokens_dict {text}: expected a JSON object, as {{"pad_token": "<pad>"}}'
        )
    try:
        tokenizer.add_special_tokens(tokens)
    except (
        TypeError,
        ValueError,
    ) as error:  # a key that transformers lacks, a value that is no text
        raise UsageError(f"special_tokens_dict {text}: {error}") from None


def _json(text: str) -> Any:
    """Return what a text says as JSON; None where it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def save_tokenizer(tokenizer: Any, config: Any, folder: Path) -> None:
    """Write a copy of a tokenizer, with ``config.json`` of its model; in whole or not at all.

    Args:
        tokenizer: A tokenizer of transformers.
        config: The configuration of its model, or None.
        folder: Where; what it holds is replaced.

    Raises:
        OutputError: It cannot be written; there is none then.
    """
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(6)}.tmp")
    try:
        with write_errors(folder):
            temporary.mkdir()
            tokenizer.save_pretrained(temporary)
            if config is not None:
                config.to_json_file(temporary / "config.json")
            shutil.rmtree(folder, ignore_errors=True)
            temporary.rename(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def describe_tokenizer(tokenizer: Any, config: Any, folder: str) -> TokenizerRecord:
    """Return the record of a tokenizer.

    Args:
        tokenizer: A tokenizer of transformers.
        config: The configuration of its model, or None.
        folder: Where it is saved in transformers' format.
    """
    from samba_onnx.tools.data_prep.encoding import make_encoder

    padding = tokenizer.pad_token_id
    fields: dict[str, Any] = {
        "end": tokenizer.eos_token_id,
        "begin": tokenizer.bos_token_id,
        "padding": tokenizer.eos_token_id if padding is None else padding,
        "vocabulary": tokenizer.vocab_size,
        "model_type": None if config is None else str(type(config)),
        "folder": folder,
    }
    expected = [list(tokenizer.encode(text)) for text in SAMPLES]
    if getattr(tokenizer, "is_fast", False) and not getattr(tokenizer, "split_special_tokens", 0):
        record = TokenizerRecord(backend=tokenizer.backend_tokenizer.to_str(), **fields)
        # A class of transformers may do more than its backend: then it is asked itself.
        if make_encoder(record).encode(SAMPLES) == expected:
            return record
    return TokenizerRecord(backend="", **fields)
