"""Hostile files through the front door: one clear line, exit status 2, nothing written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import samba_onnx
from samba_onnx.errors import SambaError
from tests.pef.builders import write_toy
from tests.pef.hostile_pefs import hostile_pefs
from tests.reasons import plain, reasons, wrong_reason
from tests.safety.hostile_models import hostile_models
from tests.safety.test_hostile_models import REASONS
from tests.versions import is_older

PORT = Path(sys.executable).with_name("samba-port")
SECONDS = 60
"""Far above what any of them takes: a hang must fail, a busy machine must not."""
SAMPLE_SECONDS = 3
"""One of them never ends; the others, whose sample runs at all, take a tenth of it."""
OTHER_REASONS = is_older("onnx", "1.23") or is_older("onnxruntime", "1.31")
"""Older ones infer fewer sizes, so that time runs out before the plan says that there is no room; and die
of divisions that newer ones refuse."""


def _check_refused(command: list[str], name: str, leftovers: Path) -> str:
    """Return the message with which a command refuses a file."""
    answer = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert answer.returncode == 2, f"{name}: {answer.returncode} {answer.stdout}{answer.stderr}"
    assert "Traceback" not in answer.stderr, name
    assert 1 <= len(answer.stderr.strip().splitlines()) <= 2, f"{name}: {answer.stderr}"
    assert not list(leftovers.iterdir()), f"{name} left {list(leftovers.iterdir())}"
    return answer.stderr


def test_convert_refuses_every_hostile_model(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    seen = 0
    for case in hostile_models(tmp_path / "in"):
        output = tmp_path / "out" / "m.pef"
        with pytest.raises(SambaError) as refusal:
            samba_onnx.convert(case.path, output, sample_seconds=SAMPLE_SECONDS).close()
        if not OTHER_REASONS:
            assert not wrong_reason(REASONS, case.name, refusal.value, case.path), case.name
        message = str(refusal.value)
        assert len(message.splitlines()) == 1, f"{case.name}: {message}"
        assert not list((tmp_path / "out").iterdir()), case.name
        seen += 1
    assert seen >= 150


@pytest.mark.timeout(1800)  # some 20 processes, one after the other
@pytest.mark.parametrize("shard", range(12))
def test_the_command_line_refuses_every_hostile_model(shard: int, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    for number, case in enumerate(hostile_models(tmp_path / "in")):
        if number % 12 != shard or "\0" in str(case.path):
            continue  # no command line can say that
        command = [str(PORT), "convert", str(case.path), "-o", str(tmp_path / "out" / "m.pef")]
        command += ["--sample-seconds", str(SAMPLE_SECONDS)]
        message = _check_refused(command, case.name, tmp_path / "out")
        part = reasons(REASONS)[case.name].partition(": ")[2]
        # A message of two lines is broken between words.
        assert part in " ".join(plain(message, case.path).split()), case.name


# The shard varies fastest: a sample has each command.
@pytest.mark.parametrize("command", [["inspect", "--verify"], ["run", "--random", "0"], ["verify"]])
@pytest.mark.parametrize("shard", range(9))
def test_the_command_line_refuses_every_hostile_pef(
    command: list[str], shard: int, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    good = tmp_path / "good.pef"
    write_toy(good)
    for number, case in enumerate(hostile_pefs(tmp_path / "in", good)):
        # The reader's own tests take all of them; here it is the command, which cannot say a NUL.
        if number % 45 == 5 * shard and "\0" not in str(case.path):
            words = [str(PORT), command[0], str(case.path), *command[1:]]
            _check_refused(words, case.name, tmp_path / "out")
