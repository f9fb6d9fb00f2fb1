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
