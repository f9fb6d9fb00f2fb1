"""Inputs and options that several tests share."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from samba_onnx.data_prep import (
    DatasetOptions,
    DatasetResult,
    PackingConfig,
    PreparationOptions,
    SplitOptions,
    pipeline,
)
from tests.tools.data_prep.tokenizers_of_tests import CORPUS, gpt2_like

LENGTH = 16


def pairs(count: int, seed: int = 0) -> list[str]:
    """Lines of JSON with pairs of a few words, and lists of some."""
    chance = random.Random(seed)
    words = [word for line in CORPUS for word in line.split()]

    def pair() -> dict[str, str]:
        return {
            "prompt": " ".join(chance.choices(words, k=chance.randint(0, 4))),
            "completion": " ".join(chance.choices(words, k=chance.randint(1, 6))),
        }

    return [
        json.dumps(pair() if chance.random() < 0.8 else [pair() for _ in range(3)])
        for _ in range(count)
    ]


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def options(
    train: int = 3, dev: int = 1, test: int = 1, packing: str = "greedy::drop", **others: Any
) -> DatasetOptions:
    preparation = {
        name: others.pop(name)
        for name in ("ignore_input_format_error", "categories", "apply_chat_template")
        if name in others
    }
    return DatasetOptions(
        preparation=PreparationOptions(
            max_seq_length=LENGTH, packing=PackingConfig.parse(packing), **preparation
        ),
        splits=SplitOptions(train, dev, test),
        **{"num_workers": 1} | others,
    )


def run(source: Path, output: Path, *others: Any, **chosen: Any) -> DatasetResult:
    """Run a pipeline with the tokenizer in the manner of GPT-2."""
    return pipeline(source, output, gpt2_like(), None, options(**chosen), *others)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a dataset but the log and the times, by its name."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in ("logs.log", "files_metadata.json")
    }
