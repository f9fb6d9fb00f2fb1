"""Where torch is missing, tests of what needs it are skipped, and what must not need it fails."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest

from samba_onnx.errors import MissingLibraryError
from tests import without_torch
from tests.without_torch import reason_to_skip


def asked_in(module: str, package: str = "torch") -> ModuleNotFoundError:
    """Return what importing a missing package raises in a module of that name."""
    space = ModuleType(module).__dict__
    exec("def ask(name): raise ModuleNotFoundError(f'No module named {name!r}', name=name)", space)
    with pytest.raises(ModuleNotFoundError) as caught:
        space["ask"](package)
    return caught.value


@pytest.mark.parametrize(
    ("module", "package", "reason"),
    [
        ("samba_onnx.export.capture.captured_modules", "torch", "torch is not installed"),
        ("samba_onnx.sessions", "torch._C", "torch is not installed"),
        ("samba_onnx.compiling.torch.porting", "torch", "torch is not installed"),
        ("samba_onnx.compiling.torch_loading", "torch", "torch is not installed"),
        ("samba_onnx.tools.data_prep.dataset", "h5py", "h5py is not installed"),
        ("models.llama", "transformers", "transformers is not installed"),
        # What must do without it:
        ("samba_onnx.passes.rewrites.fold", "torch", ""),
        ("samba_onnx.tools.run.run", "torch", ""),
        ("samba_onnx.compiling.compiler", "transformers", ""),
        # What the ONNX half needs:
        ("samba_onnx.export.capture.captured_modules", "onnx", ""),
        ("models.llama", "samba_onnx.gone", ""),
    ],
)
def test_who_asks_for_what(module: str, package: str, reason: str) -> None:
    error = asked_in(module, package)
    assert reason_to_skip(error, has_torch=False) == reason
    assert reason_to_skip(error, has_torch=True) == ""


def test_what_users_are_told_is_a_reason_too() -> None:
    error = MissingLibraryError("samba_onnx.nn needs torch")
    assert reason_to_skip(error, has_torch=False) == "samba_onnx.nn needs torch"
    assert reason_to_skip(error, has_torch=True) == ""


def test_another_error_is_one() -> None:
    assert reason_to_skip(ValueError("torch"), has_torch=False) == ""
    assert reason_to_skip(ImportError("cannot import name", name="torch"), has_torch=False) == ""


def test_folders_that_need_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> ModuleType:
        raise asked_in("samba_onnx.nn" if "sessions" in name else "samba_onnx.pef")

    tests = without_torch.ROOT / "tests"
    monkeypatch.setattr(importlib, "import_module", absent)
    monkeypatch.setattr(
        without_torch, "reason_to_skip", lambda error: reason_to_skip(error, has_torch=False)
    )
    assert without_torch.reason_to_leave_out(tests) == ""
    assert without_torch.reason_to_leave_out(tests / "loading") == ""
    assert without_torch.reason_to_leave_out(tests / "sessions") == "torch is not installed"
    with pytest.raises(ModuleNotFoundError):
        without_torch.reason_to_leave_out(tests / "cli")
