"""Every hostile file is refused with one clear line, quickly, and without touching other files."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from samba_onnx.errors import ModelError
from samba_onnx.loading import load_model
from tests.reasons import reasons, wrong_reason
from tests.safety.hostile_models import HostileCase, hostile_models

REASONS = Path(__file__).with_name("hostile_reasons.json")
SECONDS = 5.0
"""Of processor time: far more than any case takes (the slowest 0.2 s). What waits for ever ends by pytest's own limit."""


class _Opened:
    """Remembers which paths Python opens; audit hooks cannot be removed, only switched off."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.active = False
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.active and event == "open":
            self.paths.append(str(arguments[0]))


@pytest.fixture(scope="module")
def opened() -> _Opened:
    return _Opened()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[HostileCase]:
    return list(hostile_models(tmp_path_factory.mktemp("hostile")))


def test_the_corpus_is_large_and_its_names_are_unique(corpus: list[HostileCase]) -> None:
    assert len(corpus) >= 150
    assert len({case.name for case in corpus}) == len(corpus)
    assert reasons(REASONS).keys() == {case.name for case in corpus}


def test_every_hostile_file_is_refused_in_one_line(
    corpus: list[HostileCase], opened: _Opened
) -> None:
    failures = [
        f"{c.name}: {why}" for c in corpus if c.detected_by == "load" for why in _judge(c, opened)
    ]
    assert not failures, "\n".join(failures)


def _judge(case: HostileCase, opened: _Opened) -> Iterator[str]:
    """Yield what is wrong with the answer to a hostile file."""
    opened.paths.clear()
    opened.active = True
    started = time.process_time()
    try:
        load_model(case.path)
    except ModelError as error:
        message = str(error)
        reason = wrong_reason(REASONS, case.name, error, case.path)
        if reason:
            yield reason
    except Exception as error:
        yield f"raised {type(error).__name__}: {error}"
        return
    else:
        yield f"was accepted, although: {case.why}"
        return
    finally:
        opened.active = False
    if time.process_time() - started > SECONDS:
        yield "took too long"
    if not message.isprintable() or len(message) > 600:
        yield f"the message is not one short line: {message[:200]!r}"
    if case.path.name.partition("\0")[0] not in message:
        yield f"the message does not name the file: {message}"
    outside = [
        path for path in opened.paths if "secret" in path or path.startswith(("/dev", "/etc"))
    ]
    if outside:
        yield f"opened {outside}"


def test_what_only_a_run_can_find_keeps_every_rule(corpus: list[HostileCase]) -> None:
    later = [case for case in corpus if case.detected_by == "convert"]
    assert later
    for case in later:
        load_model(case.path)


def test_nothing_is_written(corpus: list[HostileCase]) -> None:
    room = Path(corpus[0].path).parent.parent
    before = sorted(room.rglob("*"))
    for case in corpus[:40]:
        with pytest.raises(ModelError):
            load_model(case.path)
    assert sorted(room.rglob("*")) == before
