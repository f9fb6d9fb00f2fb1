"""Ending a program at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from samba_onnx.sessions import exits

PROGRAM = """
import atexit, importlib.util
# By its file: the package would load torch in every process.
spec = importlib.util.spec_from_file_location("exits", {path!r})
exits = importlib.util.module_from_spec(spec)
spec.loader.exec_module(exits)

def handler(name):
    print("handler", name, flush=True)

def main(how):
    print("main", how, flush=True)
    if how == "raise":
        raise ValueError("no good")
    if how == "exit":
        raise SystemExit(3)
    if how == "text":
        raise SystemExit("leaving")

atexit.register(print, "bypassed", flush=True)
exits.atexit_register(handler, "first")
exits.atexit_register(handler, name="second")
{call}
print("after", flush=True)
"""


def run(call: str) -> subprocess.CompletedProcess[str]:
    code = PROGRAM.format(call=call, path=exits.__file__)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("how", "status", "message"),
    [
        ("return", 0, ""),
        ("raise", 1, "ValueError: no good"),
        ("exit", 3, ""),
    ],
)
def test_the_process_ends_and_own_handlers_run(how: str, status: int, message: str) -> None:
    done = run(f"exits.use_abexit(main, how={how!r})")
    assert done.returncode == status
    assert done.stdout.splitlines() == [f"main {how}", "handler second", "handler first"]
    assert message in done.stderr


def test_handlers_run_without_the_session_too() -> None:
    done = run("main('return')")
    assert done.returncode == 0
    lines = ["main return", "after", "handler second", "handler first", "bypassed"]
    assert done.stdout.splitlines() == lines


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Statuses with which this process would have ended; it has no handlers yet."""
    statuses: list[int] = []
    monkeypatch.setattr(exits, "_HANDLERS", [])
    monkeypatch.setattr(exits.atexit, "register", lambda _handler: None)
    monkeypatch.setattr(exits.os, "_exit", statuses.append)
    return statuses


def test_handlers_are_called_once_and_with_what_they_were_registered_with(ended: list[int]) -> None:
    calls: list[object] = []
    exits.atexit_register(lambda *args, **keywords: calls.append((args, keywords)), 1, two=2)
    exits.atexit_register(calls.append, "last")
    exits.use_abexit(lambda *args, **keywords: calls.append((args, keywords)), 3, four=4)
    assert calls == [((3,), {"four": 4}), "last", ((1,), {"two": 2})]
    assert exits.run_handlers() == 0
    assert len(calls) == 3
    assert ended == [0]


def leave(status: object) -> None:
    raise SystemExit(status)


@pytest.mark.parametrize(
    ("of_program", "of_first", "of_last", "expected"),
    [(3, None, None, 3), (0, None, 0, 0), (3, 4, 5, 4), ("words", None, 5, 5), (2, 4, "words", 4)],
)
def test_the_status_is_that_of_what_failed_last(
    ended: list[int],
    capsys: pytest.CaptureFixture[str],
    of_program: object,
    of_first: object,
    of_last: object,
    expected: int,
) -> None:
    exits.atexit_register(leave, of_first)
    exits.atexit_register(leave, of_last)
    exits.use_abexit(leave, of_program)
    assert ended == [expected]
    assert capsys.readouterr().err == "words\n" * [of_program, of_first, of_last].count("words")


def test_an_exception_is_shown_and_its_status_is_one(
    ended: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[object] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, *_rest: shown.append(kind))
    for raised, status in ((ValueError, 1), (KeyboardInterrupt, 1)):

        def fail(kind: type[BaseException] = raised) -> None:
            raise kind

        exits.use_abexit(fail)
        assert ended.pop() == status
    exits.use_abexit(leave, "words")
    assert ended == [1]
    assert shown == [ValueError, KeyboardInterrupt]
