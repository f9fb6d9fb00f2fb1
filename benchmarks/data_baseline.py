"""Tokenize and pack lines of JSON the plain way: line by line, with tokenizers and h5py.

``python -m benchmarks.data_baseline INPUT OUTPUT TOKENIZER LENGTH`` makes what ``samba-port data-prep
data_prep --input_packing_config=greedy::drop`` makes of one pair a line. It is what an engineer writes
in an afternoon, and what the data preparation is measured against.
"""

from __future__ import annotations

import json
import sys

import h5py
import numpy as np
from tokenizers import Tokenizer

ROWS = 128
"""Sequences that are written at once."""


def _end_of_text(tokenizer: Tokenizer) -> int:
    end = tokenizer.token_to_id("<|endoftext|>")
    if end is None:
        raise SystemExit("the tokenizer has no token <|endoftext|>")
    return end


def main(source: str, target: str, tokenizer_file: str, length: int) -> None:
    """Prepare one file.

    Args:
        source: Lines of JSON, each with ``prompt`` and ``completion``.
        target: The HDF5 file.
        tokenizer_file: ``tokenizer.json``; ``<|endoftext|>`` ends articles and pads.
        length: Tokens of a sequence.
    """
    tokenizer = Tokenizer.from_file(tokenizer_file)
    end = _end_of_text(tokenizer)
    with h5py.File(target, "w") as file, open(source, encoding="utf-8") as lines:
        datasets = [
            file.create_dataset(
                name, (0, length), np.int32, maxshape=(None, length), compression="gzip"
            )
            for name in ("input_ids", "token_type_ids")
        ]
        done: list[tuple[list[int], list[int]]] = []
        ids: list[int] = []
        kinds: list[int] = []

        def close() -> None:
            padding = length - len(ids)
            done.append((ids + [end] * padding, kinds + [2] * padding))

        def write() -> None:
            for dataset, rows in zip(datasets, zip(*done, strict=True), strict=True):
                dataset.resize(len(dataset) + len(rows), axis=0)
                dataset[-len(rows) :] = rows
            done.clear()

        for line in lines:
            pair = json.loads(line)
            prompt = tokenizer.encode(pair["prompt"].rstrip(" ")).ids
            completion = tokenizer.encode(" " + pair["completion"].lstrip(" ")).ids
            count = len(prompt) + len(completion) + 1
            if len(ids) + count > length:
                if ids:
                    close()
                ids, kinds = [], []
            if count <= length:
                ids += [*prompt, *completion, end]
                kinds += [0] * len(prompt) + [1] * len(completion) + [3]
            if len(done) >= ROWS:
                write()
        if ids:
            close()
        if done:
            write()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
