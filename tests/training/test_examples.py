"""The example reaches what eager torch reaches on the same data and seed."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from examples import lenet
from samba_onnx.sessions import SambaSession

ROOT = Path(__file__).parents[2]
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


def digits(count: int, seed: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Draw digits of pixels, three times as large, near the middle of the image, in noise.

    No two pixels are alike: of equal values a maximum may take either, and no two computations of
    the same need to agree on which.
    """
    random = np.random.default_rng(seed)
    labels = random.integers(0, 10, count).astype(np.uint8)
    images = random.integers(0, 60, (count, 28, 28)).astype(np.uint8)
    for image, label in zip(images, labels, strict=True):
        glyph = np.array([[int(c) for c in row] for row in GLYPHS[label].split()])
        large = np.kron(glyph, np.ones((3, 3), int))
        top, left = random.integers(2, 6), random.integers(4, 10)
        part = image[top : top + 21, left : left + 15]
        part[large > 0] = random.integers(120, 256, large.sum())
    return images, labels


def write_idx(path: Path, values: npt.NDArray[np.uint8], packed: bool) -> None:
    sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
    content = bytes((0, 0, 8, values.ndim)) + sizes + values.tobytes()
    if packed:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(content))
    else:
        path.write_bytes(content)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    for part, count, packed in (("train", 1600, True), ("t10k", 400, False)):
        images, labels = digits(count, count)
        write_idx(folder / f"{part}-images-idx3-ubyte", images, packed)
        write_idx(folder / f"{part}-labels-idx1-ubyte", labels, packed)
    return folder


def eager_accuracy(folder: Path, epochs: int, size: int) -> float:
    """What plain torch reaches with the example's data, order and seed."""
    torch.manual_seed(0)
    model = lenet.LeNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(epochs):
        for images, labels in lenet.batches(lenet.read_data(folder, "train"), size, epoch):
            optimizer.zero_grad()
            model(images, labels)[0].backward()
            optimizer.step()
    return lenet.accuracy(model, lenet.read_data(folder, "t10k"))


def test_lenet_learns_as_in_eager_torch(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Roundings differ, so that an image on the border may fall to the other side: two of 400."""
    path = lenet.main(["compile", "-b", "16", "--output-folder", str(tmp_path)])
    assert path == str(tmp_path / "lenet" / "lenet.pef")
    run = ["run", "-b", "16", "--pef", path, "--data-dir", str(data), "--num-epochs", "2"]
    reached = lenet.main(run)
    assert abs(float(reached) - eager_accuracy(data, 2, 16)) <= 2 / 400
    assert float(reached) > 0.97
    assert "epoch 2: loss 0." in capsys.readouterr().out


def test_a_checkpoint_goes_on(data: Path, tmp_path: Path, session: SambaSession) -> None:
    path = str(lenet.main(["compile", "-b", "16", "--output-folder", str(tmp_path)]))
    run = ["run", "-b", "16", "--pef", path, "--data-dir", str(data)]
    saved = str(tmp_path / "lenet.pt")
    first = float(lenet.main([*run, "--checkpoint", saved]))
    session.reset()
    assert float(lenet.main([*run, "--resume", saved, "--seed", "1"])) > max(first, 0.9)


def test_files_that_are_no_data_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\x00\x00\x0d\x01" + bytes(8))
    with pytest.raises(ValueError, match="no idx file"):
        lenet.read_idx(tmp_path / "a")
    write_idx(tmp_path / "b", np.zeros((2, 3), np.uint8), packed=False)
    (tmp_path / "b").write_bytes((tmp_path / "b").read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"5 values, but its shape is \[2, 3\]"):
        lenet.read_idx(tmp_path / "b")
    with pytest.raises(FileNotFoundError):
        lenet.read_idx(tmp_path / "c")


@pytest.mark.slow
def test_the_commands_work_as_they_are_documented(data: Path, tmp_path: Path) -> None:
    """In processes of their own, from another folder."""
    documented = [
        line.split()[2:]
        for line in (lenet.__doc__ or "").splitlines()
        if line.strip().startswith("python examples/lenet.py")
    ]
    assert [words[0] for words in documented] == ["compile", "run", "run"]
    (tmp_path / "mnist").symlink_to(data)
    for number, words in enumerate(documented):
        extra = ["--checkpoint", "lenet.pt"] if number == 1 else []
        command = [sys.executable, str(ROOT / "examples" / "lenet.py"), *words, *extra]
        subprocess.run(command, cwd=tmp_path, check=True)
