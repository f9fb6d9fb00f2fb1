"""Make data for the programs in this folder, in the formats that real data come in.

Digits, in the four files of MNIST; and sums in words, as lines of JSON, as the tokenizer that reads
them, and as the HDF5 files that SambaNova's data preparation makes of the two::

    python examples/data.py digits data
    python examples/data.py sums data

Both can be learned, and the same seed always makes the same files.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import yaml
from transformers import PreTrainedTokenizerFast

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int32]

GLYPHS = (
    "01110 10001 10011 10101 11001 10001 01110",
    "00100 01100 00100 00100 00100 00100 01110",
    "01110 10001 00001 00010 00100 01000 11111",
    "11111 00010 00100 00010 00001 10001 01110",
    "00010 00110 01010 10010 11111 00010 00010",
    "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110",
    "11111 00001 00010 00100 01000 01000 01000",
    "01110 10001 10001 01110 10001 10001 01110",
    "01110 10001 10001 01111 00001 00010 01100",
)
"""The digits from 0 to 9, row by row."""

NUMBERS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    *("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen"),
    "eighteen",
)
"""The numbers that two digits add up to."""

END, PADDING, UNKNOWN = "<|endoftext|>", "<|pad|>", "<|unknown|>"
PROMPT, COMPLETION, PAD, SEPARATOR = 0, 1, 2, 3
"""What a token is, in ``token_type_ids``: SambaNova's data preparation numbers them so."""


def draw_digits(count: int, random: np.random.Generator) -> tuple[Bytes, Bytes]:
    """Draw digits of three times three pixels a dot, near the middle of noise.

    Args:
        count: How many.
        random: Where they come from.

    Returns:
        Images (count, 28, 28) and labels (count,).
    """
    labels = random.integers(0, 10, count).astype(np.uint8)
    images = random.integers(0, 60, (count, 28, 28)).astype(np.uint8)
    for image, label in zip(images, labels, strict=True):
        dots = np.array([[int(dot) for dot in row] for row in GLYPHS[label].split()])
        pixels = np.kron(dots, np.ones((3, 3), int)) > 0
        top, left = random.integers(2, 6), random.integers(4, 10)
        part = image[top : top + 21, left : left + 15]
        part[pixels] = random.integers(120, 256, pixels.sum())
    return images, labels


def write_idx(path: Path, values: Bytes, packed: bool) -> None:
    """Write bytes in the format of MNIST.

    The file begins with two zeros, the type of the values (8 for bytes), the number of dimensions,
    and their sizes, each in four bytes with the largest first; the values follow.

    Args:
        path: The file, without ``.gz``.
        values: An array of any shape.
        packed: Whether to compress it, and to add ``.gz`` to its name.
    """
    sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
    content = bytes((0, 0, 8, values.ndim)) + sizes + values.tobytes()
    if packed:
        # The time in its head would make every file another one.
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(content, mtime=0))
    else:
        path.write_bytes(content)


def make_digits(args: argparse.Namespace) -> None:
    """Write images and labels where torchvision's MNIST has them: in ``MNIST/raw``."""
    folder = args.folder / "MNIST" / "raw"
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(args.seed)
    for part, count in (("train", args.train), ("t10k", args.test)):
        images, labels = draw_digits(count, random)
        write_idx(folder / f"{part}-images-idx3-ubyte", images, args.packed)
        write_idx(folder / f"{part}-labels-idx1-ubyte", labels, args.packed)
    print(f"{args.train} and {args.test} digits are in {folder}")


def draw_sums(count: int, random: np.random.Generator) -> Iterator[dict[str, str]]:
    """Yield sums of two digits, such as ``four plus five is`` with the completion ``nine``.

    Args:
        count: How many.
        random: Where they come from.
    """
    for one, other in random.integers(0, 10, (count, 2)):
        yield {
            "prompt": f"{NUMBERS[one]} plus {NUMBERS[other]} is",
            "completion": NUMBERS[one + other],
        }


def word_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer to which every word of the sums is a token."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    words = [PADDING, END, UNKNOWN, *NUMBERS, "plus", "is"]
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, UNKNOWN))
    tokenizer.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # transformers annotates little
        tokenizer_object=tokenizer, eos_token=END, pad_token=PADDING, unk_token=UNKNOWN
    )


def pack(
    articles: Sequence[dict[str, str]], tokenizer: PreTrainedTokenizerFast, length: int
) -> tuple[Integers, Integers]:
    """Pack articles into sequences as SambaNova's data preparation does by default.

    They follow each other, and are cut wherever a sequence ends; the last one is padded. Every
    article ends with a separator.

    Args:
        articles: Prompts with their completions.
        tokenizer: Makes tokens of them.
        length: Tokens in a sequence.

    Returns:
        ``input_ids`` and ``token_type_ids``, both (sequences, length).
    """
    ids: list[int] = []
    kinds: list[int] = []
    for article in articles:
        prompt = tokenizer.encode(article["prompt"])
        completion = tokenizer.encode(article["completion"])
        ids += [*prompt, *completion, tokenizer.eos_token_id]
        kinds += [PROMPT] * len(prompt) + [COMPLETION] * len(completion) + [SEPARATOR]
    missing = -len(ids) % length
    ids += [tokenizer.pad_token_id] * missing
    kinds += [PAD] * missing
    return (
        np.array(ids, np.int32).reshape(-1, length),
        np.array(kinds, np.int32).reshape(-1, length),
    )


def write_hdf5(path: Path, ids: Integers, kinds: Integers) -> None:
    """Write sequences as SambaNova's data preparation does.

    Args:
        path: The file.
        ids: Token ids, (sequences, length).
        kinds: What each token is, of the same shape.
    """
    with h5py.File(path, "w") as file:
        for name, values in (("input_ids", ids), ("token_type_ids", kinds)):
            file.create_dataset(
                name, data=values, compression="gzip", maxshape=(None, values.shape[1])
            )


def write_sequences(
    folder: Path, part: str, sequences: tuple[Integers, Integers], files: int
) -> int:
    """Share sequences between files, and return the smallest number of sequences of a file."""
    shares = zip(*(np.array_split(values, files) for values in sequences), strict=True)
    lengths = []
    for number, (ids, kinds) in enumerate(shares, 1):
        write_hdf5(folder / f"{part}_{number}_of_{files}.hdf5", ids, kinds)
        lengths.append(len(ids))
    return min(lengths)


def make_sums(args: argparse.Namespace) -> None:
    """Write lines of JSON, a tokenizer, and the HDF5 files that they make."""
    folder = args.folder / "sums"
    (folder / "hdf5").mkdir(parents=True, exist_ok=True)
    tokenizer = word_tokenizer()
    tokenizer.save_pretrained(folder / "tokenizer")
    metadata: dict[str, Any] = {
        "max_seq_length": args.max_seq_length,
        "token_type_ids": True,
        "vocab_size": len(tokenizer),
        "tokenizer_model_type": "gpt2",
    }
    random = np.random.default_rng(args.seed)
    parts = (("train", args.train, args.files), ("dev", args.dev, 1), ("test", args.dev, 1))
    for part, count, files in parts:
        articles = list(draw_sums(count, random))
        lines = "".join(f"{json.dumps(article)}\n" for article in articles)
        (folder / f"{part}.jsonl").write_text(lines, encoding="utf-8")
        metadata[f"number_of_{'training' if part == 'train' else part}_files"] = files
        if part != "test":  # which stays text
            sequences = pack(articles, tokenizer, args.max_seq_length)
            smallest = write_sequences(folder / "hdf5", part, sequences, files)
            metadata[f"max_batch_size_{part}"] = smallest
    (folder / "hdf5" / "metadata.yaml").write_text(yaml.safe_dump(metadata, sort_keys=False))
    print(f"{args.train}, {args.dev} and {args.dev} sums are in {folder}")


def parser() -> argparse.ArgumentParser:
    """Return what understands the command line."""
    result = argparse.ArgumentParser(description="Make data for the programs in this folder")
    commands = result.add_subparsers(required=True)
    digits = commands.add_parser("digits", help="images of digits, in the format of MNIST")
    digits.set_defaults(make=make_digits)
    digits.add_argument("--test", type=int, default=400, help="images to test on")
    digits.add_argument("--packed", action="store_true", help="compress the files")
    sums = commands.add_parser("sums", help="sums in words: jsonl, tokenizer and HDF5")
    sums.set_defaults(make=make_sums)
    sums.add_argument("--dev", type=int, default=64, help="sums to evaluate on, and to test on")
    sums.add_argument("--max-seq-length", type=int, default=32, help="tokens in a sequence")
    sums.add_argument("--files", type=int, default=2, help="HDF5 files to train on")
    for command in (digits, sums):
        command.add_argument("folder", type=Path, help="where to put a folder with the files")
        command.add_argument("--train", type=int, default=1600, help="images or sums to train on")
        command.add_argument("--seed", type=int, default=0)
    return result


def main() -> None:
    """Make what the command line asks for."""
    args = parser().parse_args()
    args.make(args)


if __name__ == "__main__":
    main()
