"""Optional libraries: one that is missing is named, and one that is broken is not called missing."""

from __future__ import annotations

import importlib
import json
from typing import NoReturn

import pytest

from samba_onnx.errors import MissingLibraryError
from samba_onnx.tools.data_prep.libraries import library


def missing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> NoReturn:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", fail)


def test_a_library_that_is_there_is_returned() -> None:
    assert library("json") is json
    assert library("os.path") is importlib.import_module("os.path")


@pytest.mark.parametrize("module", ["hub", "hub.utils.logging"])
def test_a_library_that_is_missing_is_named_with_its_extra(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing("hub", monkeypatch)
    for words, extra in (((module,), "data"), ((module, "ray"), "ray")):
        with pytest.raises(MissingLibraryError) as caught:
            library(*words)
        assert str(caught.value) == (
            f"data preparation needs hub, which is not installed: pip install 'samba-onnx[{extra}]'"
        )


@pytest.mark.parametrize("name", ["hub.utils", "another"])
def test_a_library_that_lacks_one_of_its_own_is_not_missing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing(name, monkeypatch)
    with pytest.raises(ModuleNotFoundError, match=f"No module named '{name}'"):
        library("hub.utils")
