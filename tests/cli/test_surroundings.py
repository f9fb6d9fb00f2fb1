"""Errors that a version, a missing package or the platform is to blame for, not this program."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from samba_onnx.cli.surroundings import outdated
from tests.cli.conftest import SambaPort

Compiler = Callable[[Any], list[dict[str, Any]]]


def raised(action: Callable[[], object]) -> Exception:
    with pytest.raises((AttributeError, ImportError)) as caught:
        action()
    return caught.value


def test_nothing_here_is_too_old() -> None:
    assert outdated() == ()


def test_an_old_package_is_named_with_both_versions(
    samba_port: SambaPort, compiler: Compiler, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler(raised(lambda: onnx.TensorProto.INT_OF_TOMORROW))
    assert "internal error: AttributeError" in samba_port("analyze", model).err
    monkeypatch.setattr(
        importlib.metadata,
        "requires",
        lambda _: ["onnx>=1.23", "rich>=14", "torch>=2; extra == 'x'"],
    )
    monkeypatch.setattr(importlib.metadata, "version", {"onnx": "1.19.0", "rich": "14"}.__getitem__)
    result = samba_port("analyze", model)
    assert (result.status, len(result.err.splitlines())) == (2, 1)
    assert "error: onnx 1.19.0 is installed, 1.23 or newer is needed: upgrade" in result.err
    assert "internal" not in result.err


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda: os.no_such_call, "has no os.no_such_call, which is needed here"),  # type: ignore[attr-defined]
        (lambda: __import__("a_package_of_others"), "package 'a_package_of_others' is missing"),
    ],
)
def test_platform_and_packages(
    samba_port: SambaPort,
    compiler: Compiler,
    model: Path,
    action: Callable[[], object],
    message: str,
) -> None:
    compiler(raised(action))
    result = samba_port("analyze", model)
    assert (result.status, len(result.err.splitlines())) == (2, 1)
    assert message in result.err
    assert "internal" not in result.err
