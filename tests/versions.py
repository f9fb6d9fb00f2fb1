"""What tests need of the packages that are installed: older ones, which pyproject.toml admits, lack it."""

from __future__ import annotations

import importlib.metadata
import re

import pytest


def is_older(package: str, version: str) -> bool:
    """Return whether an installed package is older than a version, such as ``1.20``."""
    installed = importlib.metadata.version(package)
    return _release(installed) < _release(version)


def needs(package: str, version: str) -> pytest.MarkDecorator:
    """Return a mark that skips a test where a package is older than a version."""
    installed = importlib.metadata.version(package)
    return pytest.mark.skipif(
        is_older(package, version), reason=f"{package} {installed} is older than {version}"
    )


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))
