"""``samba_logger``: how it writes, and how often."""

from __future__ import annotations

import logging

import pytest

from samba_onnx.sambaflow.logging import SambaLogger, samba_logger


def test_lines_look_like_those_of_the_vendor(capsys: pytest.CaptureFixture[str]) -> None:
    samba_logger.info("%s of %d", "one", 2)
    samba_logger.warning("The conv2d operator is experimental.")
    samba_logger.debug("unseen")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "[info] [samba]: one of 2\n[warning] [samba]: The conv2d operator is experimental.\n"
    )


def test_a_limit_counts_messages_by_their_text_and_level(caplog: pytest.LogCaptureFixture) -> None:
    log = SambaLogger(logging.getLogger("tests.limited"))
    with caplog.at_level(logging.INFO):
        for number in range(4):
            log.info("step %d", number, log_limit=2)
            log.warning("step %d", number, log_limit=1)
            log.info("always")
    messages = [(record.levelname, record.message) for record in caplog.records]
    assert [text for level, text in messages if level == "INFO" and text != "always"] == [
        "step 0",
        "step 1",
    ]
    assert messages.count(("WARNING", "step 0")) == 1
    assert messages.count(("INFO", "always")) == 4
    assert {record.filename for record in caplog.records} == {"test_logging.py"}
