"""Errors that a version, a missing package or the platform is to blame for, not this program."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

import samba_onnx
from samba_onnx.errors import InternalError
from samba_onnx.version import outdated
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
    _make_onnx_old(monkeypatch)
    result = samba_port("analyze", model)
    assert (result.status, len(result.err.splitlines())) == (2, 1)
    assert "error: onnx 1.19.0 is installed, 1.23 or newer is needed: upgrade" in result.err
    assert "internal" not in result.err


def _make_onnx_old(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = ["onnx>=1.23", "rich>=14", "torch>=2; extra == 'x'"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: needed)
    monkeypatch.setattr(importlib.metadata, "version", {"onnx": "1.19.0", "rich": "14"}.__getitem__)


@pytest.mark.parametrize("error", [RuntimeError("no such type"), InternalError("a pass failed")])
def test_whatever_an_old_package_leads_to_is_its_fault(
    error: Exception,
    samba_port: SambaPort,
    compiler: Compiler,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiler(error)
    assert "internal error: " in samba_port("analyze", model).err
    _make_onnx_old(monkeypatch)
    result = samba_port("analyze", model)
    assert (result.status, len(result.err.splitlines())) == (2, 1)
    assert "error: onnx 1.19.0 is installed, 1.23 or newer is needed: upgrade" in result.err
    assert "internal" not in result.err


def test_python_says_which_package_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(samba_onnx._HOMES, "Device", "samba_onnx.of_tomorrow")
    monkeypatch.delitem(vars(samba_onnx), "Device", raising=False)
    with pytest.raises(ModuleNotFoundError, match="of_tomorrow"):
        samba_onnx.Device  # noqa: B018  the access is the test
    _make_onnx_old(monkeypatch)
    with pytest.raises(ImportError, match=r"^onnx 1\.19\.0 is installed, 1\.23 or newer is needed"):
        samba_onnx.Device  # noqa: B018


def test_a_bare_checkout_states_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_not_installed(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", is_not_installed)
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "0.0.1")
    assert "typer 0.0.1 is installed, " in "; ".join(outdated())


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
