"""A headless Chromium for the tests of pages, spoken to through a pipe; they are skipped where there is none."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
"""As little of a browser as there can be; nothing of it looks for updates."""


class Browser:
    """One window, with all that happened in it; the words are those of Chromium's debugging protocol."""

    def __init__(self, commands: BinaryIO, answers: BinaryIO) -> None:
        self._commands = commands
        self._answers = answers
        self._session = ""
        self._number = 0
        self.events: list[dict[str, Any]] = []
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        attached = self.command("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")

    def command(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Do something, and return what comes of it."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": name, "params": arguments}
        if self._session:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        self._commands.flush()
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def _next(self) -> dict[str, Any]:
        """Return the next message, and keep it if it tells of something that happened."""
        text = bytearray()
        while (character := self._answers.read(1)) != b"\0":
            assert character, "Chromium has ended"
            text += character
        message = dict(json.loads(text))
        if "method" in message:
            self.events.append(message)
        return message

    def go(self, address: str) -> None:
        """Show an address, and wait until it is loaded."""
        self.events.clear()
        self.command("Page.navigate", url=address)
        while not self._happened("Page.loadEventFired"):
            self._next()

    def open(self, page: Path, *, width: int = 1280, height: int = 900, **media: str) -> None:
        """Show a page in a window of a size, with media features as ``prefers-color-scheme``."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        features = [{"name": name.replace("_", "-"), "value": media[name]} for name in media]
        self.command("Emulation.setEmulatedMedia", features=features)
        # From nothing, since another address of the same page would not load it anew.
        self.go("about:blank")
        self.go(page.as_uri())

    def run(self, script: str) -> Any:
        """Return what a script in the page gives, also if it promises that only."""
        answer = self.command(
            "Runtime.evaluate",
            expression=script,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.run("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)))")

    def text(self, selector: str) -> str:
        """Return the text of an element."""
        return str(self.run(f"document.querySelector({json.dumps(selector)}).innerText"))

    def complaints(self) -> list[dict[str, Any]]:
        """Return what the console says since the page was opened."""
        kinds = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
        return [event for kind in kinds for event in self._happened(kind)]

    def requests(self) -> list[str]:
        """Return the addresses that were asked for since the page was opened."""
        return [e["params"]["request"]["url"] for e in self._happened("Network.requestWillBeSent")]

    def _happened(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["method"] == kind]


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """Start Chromium with an empty profile.

    Args:
        profile: A folder that does not exist.
    """
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no chromium on this machine")
    commands_in, commands_out = os.pipe()
    answers_in, answers_out = os.pipe()
    words = shlex.join([program, *QUIET, f"--user-data-dir={profile}"])
    # It reads commands from its file 3 and answers on its file 4.
    process = subprocess.Popen(
        ["bash", "-c", f"exec {words} 3<&{commands_in} 4>&{answers_out}"],
        pass_fds=(commands_in, answers_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(commands_in)
    os.close(answers_out)
    try:
        with os.fdopen(commands_out, "wb") as commands, os.fdopen(answers_in, "rb") as answers:
            yield Browser(commands, answers)
    finally:
        process.terminate()
        process.wait()
