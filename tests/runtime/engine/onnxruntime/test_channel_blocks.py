"""How many channels a block has, whichever onnxruntime and machine it is."""

from __future__ import annotations

import pytest

from samba_onnx.runtime.engine.onnxruntime import channel_blocks
from samba_onnx.runtime.engine.onnxruntime.channel_blocks import channel_block, measured_block


def test_a_block_is_what_a_vector_holds() -> None:
    assert channel_block() == measured_block()
    assert channel_block() in (4, 8, 16, 32)


def test_without_kernels_there_are_no_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise RuntimeError("Failed to find kernel for ReorderInput")

    monkeypatch.setattr(channel_blocks, "measured_block", refuse)
    assert channel_block.__wrapped__() == 0
