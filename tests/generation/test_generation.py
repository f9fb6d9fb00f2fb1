"""Text that is generated with a cache on the device is the text that transformers generates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import PreTrainedModel

from models.generation import Generator, Sizes
from samba_onnx.errors import UsageError
from samba_onnx.pef.manifest import Cause, Direction
from samba_onnx.sessions import SambaSession
from tests.generation.conftest import VOCABULARY, continuations, gpt2, llama, qwen
from tests.generation.families import build

FLOAT, INTEGER = 4, 8
"""Bytes."""


def moved(session: SambaSession) -> dict[tuple[Cause, Direction], tuple[int, int]]:
    return {(t.cause, t.direction): (t.count, t.bytes) for t in session.transfers.totals()}


def test_host_and_device_exchange_tokens_and_logits_only(
    session: SambaSession, tmp_path: Path
) -> None:
    prompts, count = [[5, 7, 9, 3, 50]], 20
    sizes = Sizes(batch=1, prompt=8, rows=32)
    generator = Generator(llama(), sizes)
    generator.load(generator.compile(tmp_path / "llama.pef"))
    # Nobody writes an empty cache, either.
    assert not [move for move in session.transfers if move.symbol.startswith("cache")]
    session.transfers.reset()
    assert generator.generate(prompts, count) == continuations(llama, prompts, count)
    assert moved(session) == {
        # The prompt and its padding; a token for each of the other steps.
        (Cause.INPUT, Direction.HOST_TO_RDU): (
            2 + count - 1,
            INTEGER * (sizes.prompt + 1 + count - 1),
        ),
        (Cause.OUTPUT, Direction.RDU_TO_HOST): (count, FLOAT * VOCABULARY * count),
    }
    # Another text sees nothing of the first one.
    longer = [[*range(1, 9)]]
    assert generator.generate(longer, 6) == continuations(llama, longer, 6)


def test_tokens_that_the_device_chooses_stay_there(session: SambaSession, tmp_path: Path) -> None:
    prompts, count = [[5, 7, 9, 3, 50], [8], [1, 2, 3, 4, 5, 6, 7, 8]], 12
    sizes = Sizes(batch=3, prompt=8, rows=24)
    generator = Generator(llama(), sizes, greedy=True)
    generator.load(generator.compile(tmp_path / "llama.pef"))
    session.transfers.reset()
    assert generator.generate(prompts, count) == continuations(llama, prompts, count)
    assert moved(session) == {
        (Cause.INPUT, Direction.HOST_TO_RDU): (2, INTEGER * sizes.batch * (sizes.prompt + 1)),
        (Cause.OUTPUT, Direction.RDU_TO_HOST): (count, INTEGER * sizes.batch * count),
    }
    # Prompts beyond the prompt graph's length go through the token graph.
    prompts = [[*range(20)], [4, 2], [*range(30, 42)]]
    assert generator.generate(prompts, 5) == continuations(llama, prompts, 5)


@pytest.mark.parametrize(
    "build",
    [pytest.param(gpt2, id="gpt2"), pytest.param(qwen, id="qwen")],
)
def test_other_decoders(
    session: SambaSession, build: Callable[[], PreTrainedModel], tmp_path: Path
) -> None:
    prompts = [[5, 7, 9, 3], [8, 1]]
    generator = Generator(build(), Sizes(batch=2, prompt=4, rows=16))
    generator.load(generator.compile(tmp_path / "decoder.pef"))
    whole = continuations(build, prompts, 10)
    assert generator.generate(prompts, 10) == whole
    end = whole[0][8]
    assert generator.generate(prompts, 10, end) == continuations(build, prompts, 10, end)
    with pytest.raises(UsageError, match="17 tokens must be kept, but the cache has 16 rows"):
        generator.generate(prompts, 14)
    with pytest.raises(UsageError, match=r"1 prompts .* take 2 prompts"):
        generator.generate(prompts[:1], 1)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match="0 < prompt <= rows"):
        Sizes(prompt=9, rows=8)


def test_a_rehearsal_leaves_the_tables_of_a_model_alone(session: SambaSession) -> None:
    # It makes its table of positions anew where a text is longer than that, or seems to be.
    model = build("xglm")
    before = dict(model.named_buffers())
    for _ in range(3):
        Generator(model, Sizes(batch=1, prompt=8, rows=32), greedy=True)
        session.reset()
    assert all(buffer is before[name] for name, buffer in model.named_buffers())
