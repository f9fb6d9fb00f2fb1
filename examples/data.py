"""Make data for the programs in this folder, in the formats that real data come in.

Digits, in the four files of MNIST; and sums in words, as lines of JSON, as the tokenizer that reads
them, and as the HDF5 files that the data preparation makes of the two::

    python examples/data.py digits data
    python examples/data.py sums data

Both can be learned, and the same seed always makes the same files.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedTokenizerFast

from samba_onnx.data_prep import PreparationOptions, data_prep

Bytes = npt.NDArray[np.uint8]

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


def make_sums(args: argparse.Namespace) -> None:
    """Write lines of JSON, a tokenizer, and the HDF5 files that the data preparation makes of both."""
    folder = args.folder / "sums"
    (folder / "hdf5").mkdir(parents=True, exist_ok=True)
    tokenizer = word_tokenizer()
    tokenizer.save_pretrained(folder / "tokenizer")
    random = np.random.default_rng(args.seed)
    for part, count in (("train", args.train), ("dev", args.dev), ("test", args.dev)):
        lines = "".join(f"{json.dumps(article)}\n" for article in draw_sums(count, random))
        (folder / f"{part}.jsonl").write_text(lines, encoding="utf-8")
        if part != "test":  # which stays text
            data_prep(
                folder / f"{part}.jsonl",
                folder / "hdf5" / f"{part}_1_of_1.hdf5",
                tokenizer,
                PreparationOptions(max_seq_length=args.max_seq_length),
                overwrite_output_path=True,
            )
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
