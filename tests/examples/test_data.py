"""The data that the examples make have the formats of the data that they stand for, and can be learned."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from transformers import AutoTokenizer

from examples import data, formats
from samba_onnx.data_prep import HDF5Dataset
from tests.examples.mnist import read_array


def make(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> None:
    monkeypatch.setattr(sys, "argv", ["data.py", *map(str, words)])
    data.main()


def test_digits_are_in_the_files_of_mnist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sizes = ("--train", "30", "--test", "20")
    make(monkeypatch, "digits", tmp_path / "plain", *sizes)
    make(monkeypatch, "digits", tmp_path / "packed", *sizes, "--packed")
    for part, count in (("train", 30), ("t10k", 20)):
        for kind, magic, shape in (("images-idx3", 2051, (28, 28)), ("labels-idx1", 2049, ())):
            name = f"MNIST/raw/{part}-{kind}-ubyte"
            content = (tmp_path / "plain" / name).read_bytes()
            values = read_array(content, magic)
            assert values.shape == (count, *shape)
            assert (formats.read_idx(tmp_path / "plain" / name) == values).all()
            assert (formats.read_idx(tmp_path / "packed" / name) == values).all()
            assert gzip.decompress((tmp_path / "packed" / f"{name}.gz").read_bytes()) == content
    digits = formats.Mnist(tmp_path / "plain", train=False, transform=np.mean)
    image, label = digits[3]
    assert 0 < image < 255
    assert 0 <= label <= 9
    assert len(digits) == 20


def test_digits_can_be_told_apart() -> None:
    """By the nearest mean image of those to train on."""
    images, labels = data.draw_digits(600, np.random.default_rng(0))
    means = np.stack([images[:500][labels[:500] == digit].mean(0) for digit in range(10)])
    distances = ((images[500:, None].astype(float) - means) ** 2).sum((2, 3))
    assert (distances.argmin(1) == labels[500:]).mean() > 0.5  # of chance, 0.1


def test_sums_are_packed_as_by_the_data_preparation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sizes = ("--train", "40", "--dev", "5", "--max-seq-length", "16")
    make(monkeypatch, "sums", tmp_path, *sizes)
    folder = tmp_path / "sums"
    articles = formats.read_json_lines(folder / "train.jsonl")
    lines = (folder / "train.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == articles
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    with h5py.File(folder / "hdf5" / "train_1_of_1.hdf5") as file:
        for name in ("input_ids", "token_type_ids"):
            assert (file[name].dtype, file[name].compression) == (np.int32, "gzip")
            assert file[name].maxshape == (None, 16)
    # Of 6 tokens each: four of the prompt, one that completes it, and the end.
    sequences = HDF5Dataset(folder / "hdf5")
    items = [sequences[index] for index in range(len(sequences))]
    ids = np.concatenate([item["input_ids"] for item in items])
    kinds = np.concatenate([item["token_type_ids"] for item in items])
    assert len(items) == 40 * 6 // 16
    assert tokenizer.decode(ids[:6]) == (
        f"{articles[0]['prompt']} {articles[0]['completion']} {tokenizer.eos_token}"
    )
    assert (kinds.reshape(-1, 6) == [0, 0, 0, 0, 1, 3]).all()
    # 5 * 6 tokens and 2 of padding, whose type is 2.
    with h5py.File(folder / "hdf5" / "dev_1_of_1.hdf5") as file:
        assert file["token_type_ids"][1].tolist()[-3:] == [3, 2, 2]
        assert file["input_ids"][1].tolist()[-2:] == [tokenizer.pad_token_id] * 2


def test_the_same_seed_makes_the_same_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        for kind, *options in (("digits", "--test", "10", "--packed"), ("sums", "--dev", "10")):
            make(monkeypatch, kind, tmp_path / name, "--train", "10", "--seed", seed, *options)
    files = [path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.*")]
    files = [file for file in files if (tmp_path / "a" / file).is_file() and file.suffix != ".log"]
    assert len(files) >= 11
    for file in files:
        content = (tmp_path / "a" / file).read_bytes()
        assert content == (tmp_path / "b" / file).read_bytes(), file
    drawn = "MNIST/raw/train-labels-idx1-ubyte.gz", "sums/train.jsonl"
    for name in drawn:
        assert (tmp_path / "a" / name).read_bytes() != (tmp_path / "c" / name).read_bytes()


def test_files_of_other_formats_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\x00\x00\x0d\x01" + bytes(8))
    with pytest.raises(ValueError, match="no idx file"):
        formats.read_idx(tmp_path / "a")
    data.write_idx(tmp_path / "b", np.zeros((2, 3), np.uint8), packed=False)
    (tmp_path / "b").write_bytes((tmp_path / "b").read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"5 values, but its shape is \[2, 3\]"):
        formats.read_idx(tmp_path / "b")
    with pytest.raises(FileNotFoundError):
        formats.read_idx(tmp_path / "c")
