"""Garbage that is not collected while torch traces."""

from __future__ import annotations

import ast
import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import samba_onnx
from samba_onnx.safety.collecting import collections_deferred

ROOT = Path(samba_onnx.__file__).parent
TRACERS = {"make_fx", "torch.export.export", "program.run_decompositions"}


@pytest.fixture(autouse=True)
def _enabled() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_nothing_is_collected_until_the_outermost_context_ends() -> None:
    with collections_deferred():
        with collections_deferred():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_ends_the_context() -> None:
    with pytest.raises(ValueError, match="here"), collections_deferred():
        raise ValueError("here")
    assert gc.isenabled()


def test_a_program_that_has_switched_collections_off_keeps_them_off() -> None:
    gc.disable()
    with collections_deferred():
        pass
    assert not gc.isenabled()


def test_a_thread_that_ends_first_does_not_switch_collections_on_for_another() -> None:
    is_inside, may_end = threading.Event(), threading.Event()

    def inside() -> None:
        with collections_deferred():
            is_inside.set()
            may_end.wait(60)

    thread = threading.Thread(target=inside)
    thread.start()
    is_inside.wait(60)
    with collections_deferred():
        pass
    assert not gc.isenabled()
    may_end.set()
    thread.join()
    assert gc.isenabled()


def test_whatever_lets_torch_trace_defers_collections() -> None:
    """A row for each function of ours that calls one of torch's tracers."""
    found = {}
    for path in (path for path in ROOT.rglob("*.py") if "tests" not in path.parts):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef) and _traces(function):
                decorators = [ast.unparse(each) for each in function.decorator_list]
                found[f"{path.name}: {function.name}"] = "collections_deferred()" in decorators
    assert len(found) >= 7
    assert [name for name, is_deferred in found.items() if not is_deferred] == []


def _traces(function: ast.FunctionDef) -> bool:
    calls = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
    return any(ast.unparse(call) in TRACERS for call in calls)
