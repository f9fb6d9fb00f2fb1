"""Text into packed HDF5: articles per second and memory, against a plain script, and what packing takes."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import h5py
import numpy as np
import psutil

from benchmarks.processes import measure
from benchmarks.table import Row

LENGTH = 1024
WORKERS = 2
MEMORY = 1e9
"""Bytes that all processes together may have in memory."""
PACKING = "greedy::drop"
END = "<|endoftext|>"
VARIABLE = "SAMBA_BENCHMARK_TEXT"
"""Environment variable with the bytes of text; 100 MB if it is not set."""


def rows(folder: Path, *, quick: bool = False, turns: int = 3) -> Iterator[Row]:
    """Yield ratios of time and memory.

    Args:
        folder: Where text and HDF5 files may be, some three times the text.
        quick: Take 10 MB of text.
        turns: Runs of each side, in turn.

    Yields:
        Wall and CPU time of a dataset on two workers against the plain script; the memory of all its
        processes together; the part of the time that packing takes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    size = int(float(os.environ.get(VARIABLE, "1e7" if quick else "1e8")))
    text, tokenizer = folder / "text.jsonl", folder / "tokenizer"
    articles = write_text(text, size)
    train_tokenizer(text, tokenizer)
    yield from _same_sequences(text, tokenizer, folder)
    pairs, peaks = [], []
    for _ in range(1 if size > 5e8 else turns):
        plain = measure(_plain(text, tokenizer, folder))
        seconds, processor, peak = _watched(_ours(text, tokenizer, folder))
        pairs.append((seconds / plain.wall_seconds, processor / plain.cpu_seconds))
        peaks.append(peak)
        note = f"{articles / seconds:,.0f} and {articles / plain.wall_seconds:,.0f} articles/s"
    what = f"data-prep, {size / 1e6:,.0f} MB of text, {WORKERS} workers"
    baseline = "tokenizers and h5py, line by line"
    wall, cpu = (statistics.median(ratios) for ratios in zip(*pairs, strict=True))
    yield Row(f"{what}: wall time", baseline, wall, 0.5, f"({note})")
    yield Row(f"{what}: CPU time", baseline, cpu)
    yield Row(f"{what}: memory of all processes", "1 GB", max(peaks) / MEMORY, 1.0)
    share = packing_share(text, tokenizer, folder)
    yield Row("time of packing", "the whole preparation of a file", share, 0.1)


def write_text(path: Path, size: int) -> int:
    """Write pairs in words of a made-up language: a few words are most of the text, as in others.

    One word in fifty is never seen again; there are numbers, names, punctuation, paragraphs, and
    letters beyond ASCII.

    Args:
        path: The file.
        size: Its bytes, about.

    Returns:
        The number of lines.
    """
    random = np.random.default_rng(0)
    syllables = [c + v for c in "bcdfghjklmnprstvwz" for v in "aeiou"] + [
        "\u00e9l",
        "st",
        "th",
        "\u00fcn",
    ]
    vocabulary = np.array(
        ["".join(random.choice(syllables, random.integers(1, 5))) for _ in range(100_000)], object
    )
    weights = 1 / np.arange(3, len(vocabulary) + 3)
    cumulated = np.cumsum(weights / weights.sum())
    marks = np.array(["", ",", ".", ".\n\n", "?", ";", "'s"], object)
    done = lines = 0
    with open(path, "w", encoding="utf-8") as file:
        while done < size:
            words = vocabulary[np.searchsorted(cumulated, random.random(200_000))]
            rare = random.integers(0, len(words), len(words) // 50)
            words[rare] = [f"{number:x}" for number in random.integers(0, 1 << 40, len(rare))]
            ended = random.choice(
                len(marks), len(words), p=[0.86, 0.06, 0.04, 0.01, 0.01, 0.01, 0.01]
            )
            words = words + marks[ended]
            begin = 0
            while begin < len(words) - 500 and done < size:
                middle = begin + int(random.integers(8, 40))
                end = middle + int(random.integers(40, 450))
                pair = {
                    "prompt": " ".join(words[begin:middle]),
                    "completion": " ".join(words[middle:end]).replace("\n ", "\n"),
                }
                done += file.write(json.dumps(pair, ensure_ascii=False) + "\n")
                lines, begin = lines + 1, end
    return lines


def train_tokenizer(text: Path, folder: Path) -> None:
    """Train byte pairs on the beginning of a text, and save them in transformers' format."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=32_000, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    with open(text, encoding="utf-8") as lines:
        sample = [
            json.loads(line)["completion"] for line, _ in zip(lines, range(3000), strict=False)
        ]
    tokenizer.train_from_iterator(sample, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END)  # type: ignore[no-untyped-call]
    fast.save_pretrained(folder)


def _plain(text: Path, tokenizer: Path, folder: Path) -> list[str]:
    words = (text, folder / "plain.hdf5", tokenizer / "tokenizer.json", LENGTH)
    return [sys.executable, "-m", "benchmarks.data_baseline", *map(str, words)]


def _ours(text: Path, tokenizer: Path, folder: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "samba_onnx.data_prep", "pipeline", f"--input_path={text}"),
        *(f"--output_path={folder / 'out'}", f"--pretrained_tokenizer={tokenizer}"),
        *(f"--max_seq_length={LENGTH}", f"--input_packing_config={PACKING}"),
        *(f"--num_workers={WORKERS}", "--overwrite_output_path", "--quiet"),
    ]


def _same_sequences(text: Path, tokenizer: Path, folder: Path) -> Iterator[Row]:
    """Stop unless both sides make the same of the first lines."""
    from samba_onnx.data_prep import PackingConfig, PreparationOptions, data_prep, load_tokenizer

    few = folder / "few.jsonl"
    with open(text, "rb") as lines:
        few.write_bytes(b"".join(line for line, _ in zip(lines, range(2000), strict=False)))
    options = PreparationOptions(max_seq_length=LENGTH, packing=PackingConfig.parse(PACKING))
    loaded, _ = load_tokenizer(str(tokenizer))
    data_prep(few, folder / "few.hdf5", loaded, options, overwrite_output_path=True)
    subprocess.run(_plain(few, tokenizer, folder), check=True)
    with h5py.File(folder / "few.hdf5") as ours, h5py.File(folder / "plain.hdf5") as theirs:
        for name in ("input_ids", "token_type_ids"):
            if not np.array_equal(ours[name], theirs[name]):
                raise RuntimeError(f"{name} of both sides differ")
    return iter(())


def _watched(command: list[str]) -> tuple[float, float, float]:
    """Run a command; return its wall and CPU seconds, and the most memory of all its processes."""
    begin, before, peak = time.perf_counter(), os.times(), 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            total = 0
            with suppress(psutil.Error):
                for one in (watched, *watched.children(recursive=True)):
                    with suppress(psutil.Error):
                        total += one.memory_info().rss
            peak = max(peak, total)
            time.sleep(0.2)
    if process.returncode:
        raise RuntimeError(f"{command[:4]} ended with {process.returncode}")
    after = os.times()
    used = after.children_user + after.children_system
    used -= before.children_user + before.children_system
    return time.perf_counter() - begin, used, peak


def packing_share(text: Path, tokenizer: Path, folder: Path) -> float:
    """Return the part of CPU time that packing takes of preparing some lines in one process."""
    from samba_onnx.data_prep import PackingConfig, PreparationOptions, data_prep, load_tokenizer
    from samba_onnx.tools.data_prep.packing import Packer

    some = folder / "some.jsonl"
    with open(text, "rb") as lines:
        some.write_bytes(b"".join(line for line, _ in zip(lines, range(20_000), strict=False)))
    spent = 0.0

    class Timed(Packer):
        def pack(self, articles: Any) -> Any:
            nonlocal spent
            begin = time.thread_time()
            try:
                return super().pack(articles)
            finally:
                spent += time.thread_time() - begin

    from samba_onnx.tools.data_prep import file_preparation

    loaded, _ = load_tokenizer(str(tokenizer))
    options = PreparationOptions(max_seq_length=LENGTH, packing=PackingConfig.parse(PACKING))
    with mock.patch.object(file_preparation, "Packer", Timed):  # the same, with a clock
        begin = time.process_time()
        data_prep(some, folder / "some.hdf5", loaded, options, overwrite_output_path=True)
        return spent / (time.process_time() - begin)
